"""Where a key comes from. No form of a key appears in an error, a text form or a log.

bytes                       32 bytes
64 hex digits, or Base64    the same as text
file:PATH                   a file with one of these
command:PROGRAM ARG ...     what a program prints
keyring:SERVICE/NAME        an entry of the system's keyring, through the package `keyring`
passphrase:TEXT             a passphrase; passphrase-file:PATH and passphrase-command:PROGRAM read one
an object                   has `id`, `wrap(data, about)` and `unwrap(data, about)`: a key service
"""

from __future__ import annotations

import binascii
import hashlib
from base64 import b64decode, urlsafe_b64decode
from pathlib import Path
from secrets import token_bytes
from typing import Any

from everstep.codec.encryption import KEY_BYTES
from everstep.errors import Damaged, EverstepError, InvalidArgument, KeySourceFailed
from everstep.fields import Shape
from everstep.store.encryption.kek import Foreign, Kek, Wrapping

Given = Any
_SECONDS = 60
_LONGEST = 65536
_FORMS = (
    "Give 32 bytes, 64 hex digits, Base64 of 32 bytes, file:PATH, command:PROGRAM, keyring:SERVICE/NAME, passphrase:TEXT, or an object "
    "with id, wrap and unwrap."
)
_LEAST_PASSPHRASE = 12


class Scrypt(Shape, frozen=True):
    """How a passphrase becomes a key. Stored with the store."""

    salt: bytes
    n: int = 1 << 17
    r: int = 8
    p: int = 1

    @classmethod
    def new(cls) -> Scrypt:
        return cls(token_bytes(16))

    def key(self, passphrase: bytes) -> bytes:
        if not (
            self.n & (self.n - 1) == 0 and 1 << 14 <= self.n <= 1 << 20 and 1 <= self.r <= 16 and 1 <= self.p <= 4 and len(self.salt) >= 16
        ):
            raise Damaged("the stored parameters of the passphrase are damaged: they are outside of their limits")
        return hashlib.scrypt(
            passphrase, salt=self.salt, n=self.n, r=self.r, p=self.p, maxmem=256 * self.n * self.r + (1 << 20), dklen=KEY_BYTES
        )


def check_form(text: str) -> str:
    """Return the text of a key if it has one of the forms. Reads no file and runs nothing."""
    form, colon, _ = text.partition(":")
    if not colon:
        _parsed(text.encode(), "the key")
    elif form not in _READERS and form not in ("passphrase", "passphrase-file", "passphrase-command"):
        raise InvalidArgument("a key has an unknown form", remedy=_FORMS)
    return text


class Concealed:
    """The text of a key, from a configuration. Its text form says only which form the key has."""

    __slots__ = ("_text",)

    def __init__(self, text: str):
        self._text = text

    def __repr__(self) -> str:
        form, colon, _ = self._text.partition(":")
        return f"{form}:…" if colon and (form in _READERS or form.startswith("passphrase")) else "(hidden)"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Concealed) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)

    def text(self, folder: Path | None = None) -> str:
        """Return the text; a relative path of a file is taken from `folder`."""
        form, colon, path = self._text.partition(":")
        beside = folder is not None and colon and form in ("file", "passphrase-file") and not path.startswith("~")
        return f"{form}:{folder / path}" if beside and folder is not None else self._text


class Source:
    """A key as the user gave it. It is read when a store needs it."""

    __slots__ = ("_kek", "_passphrase")

    def __init__(self, given: Given):
        self._kek: Wrapping | None = None
        self._passphrase: bytes | None = None
        if isinstance(given, Concealed):
            given = given.text()
        if isinstance(given, Source):
            self._kek, self._passphrase = given._kek, given._passphrase
        elif isinstance(given, (bytes, bytearray)):
            self._kek = Kek(bytes(given))
        elif isinstance(given, str):
            self._text(given)
        elif callable(getattr(given, "wrap", None)) and callable(getattr(given, "unwrap", None)):
            self._kek = Foreign(given)
        else:
            raise InvalidArgument(
                f"a key must be bytes, a text or an object with wrap and unwrap, got {type(given).__name__}", remedy=_FORMS
            )

    def _text(self, given: str) -> None:
        form, colon, rest = given.partition(":")
        if not colon:
            self._kek = Kek(_parsed(given.strip().encode(), "the key"))
        elif form == "passphrase":
            self._passphrase = _passphrase(rest.encode(), "the passphrase")
        elif form.startswith("passphrase-") and (read := _READERS.get(form.removeprefix("passphrase-"))):
            self._passphrase = _passphrase(read(rest).rstrip(b"\r\n"), f"the passphrase from the {form.removeprefix('passphrase-')}")
        elif form in _READERS:
            self._kek = Kek(_parsed(_READERS[form](rest), f"what the {form} gave"))
        else:
            raise InvalidArgument("a key has an unknown form", remedy=_FORMS)

    @property
    def is_passphrase(self) -> bool:
        return self._passphrase is not None

    def kek(self, scrypt: Scrypt | None) -> Wrapping | None:
        """Return the key itself; None for a passphrase where there are no parameters: the store was not made with a passphrase."""
        if self._passphrase is None:
            return self._kek
        return None if scrypt is None else Kek(scrypt.key(self._passphrase))


def _parsed(data: bytes, what: str) -> bytes:
    """Return the 32 bytes that a key is, as they are or as text."""
    text = data.strip()
    if len(data) == KEY_BYTES and not all(32 <= byte < 127 for byte in data):  # 32 letters are not a random key
        return data
    try:
        if len(text) == 2 * KEY_BYTES:
            return bytes.fromhex(text.decode("ascii"))
        padded = text.rstrip(b"=") + b"=" * (-len(text.rstrip(b"=")) % 4)
        found = urlsafe_b64decode(padded) if b"-" in text or b"_" in text else b64decode(padded, validate=True)
        if len(found) == KEY_BYTES:
            return found
    except (ValueError, binascii.Error):
        pass
    raise InvalidArgument(f"{what} is not a key of {KEY_BYTES} bytes: it has {len(data)} characters", remedy=_FORMS) from None


def _passphrase(data: bytes, what: str) -> bytes:
    if len(data) < _LEAST_PASSPHRASE:
        raise InvalidArgument(
            f"{what} must have at least {_LEAST_PASSPHRASE} bytes, got {len(data)}", remedy="Choose several random words."
        )
    return data


def _from_file(path: str) -> bytes:
    try:
        with Path(path).expanduser().open("rb") as file:
            return file.read(_LONGEST)
    except OSError as error:
        raise KeySourceFailed(f"the key file {path!r} cannot be read: {error.strerror or type(error).__name__}") from None


def _from_command(command: str) -> bytes:
    import shlex  # these two take longer to import than all of this module
    import subprocess

    try:
        words = shlex.split(command)
        if not words:
            raise KeySourceFailed("the key command is empty")
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, timeout=_SECONDS, check=False)  # noqa: S603 - the user's command
    except subprocess.TimeoutExpired:
        raise KeySourceFailed(f"the key command did not end within {_SECONDS} seconds") from None
    except (OSError, ValueError) as error:
        raise KeySourceFailed(f"the key command cannot be run: {getattr(error, 'strerror', None) or type(error).__name__}") from None
    if done.returncode:
        raise KeySourceFailed(f"the key command failed with exit code {done.returncode}")
    return done.stdout[:_LONGEST]


def _from_keyring(entry: str) -> bytes:
    service, slash, name = entry.rpartition("/")
    if not slash or not service or not name:
        raise InvalidArgument("a keyring entry must be written SERVICE/NAME", remedy=_FORMS)
    try:
        import keyring  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        raise KeySourceFailed("keyring: needs the package keyring, which is not installed", remedy="pip install keyring") from None
    try:
        found = keyring.get_password(service, name)
    except EverstepError:
        raise
    except Exception as error:  # noqa: BLE001 - of any keyring
        raise KeySourceFailed(f"the keyring failed: {type(error).__name__}") from None
    if not found:
        raise KeySourceFailed(f"the keyring has no entry {service!r} with the name {name!r}")
    return str(found).encode()


_READERS = {"file": _from_file, "command": _from_command, "keyring": _from_keyring}

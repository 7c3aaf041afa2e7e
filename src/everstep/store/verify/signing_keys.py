"""The Ed25519 keys that sign heads, and where they come from. Needs the extra `crypto`, which is imported on first use.

A key is one line of text: `everstep-signing-key:BASE64` (the private key, 32 bytes) or `everstep-public-key:BASE64`. PEM, as OpenSSL
writes it, is accepted, too. A signing key is given by its source, so that it is in no list of processes and in no configuration:

    file:PATH or PATH    a file
    env:NAME             an environment variable
    command:COMMAND      the output of a command, such as that of a password manager; it is split like a shell command, but no shell runs it

No error, `repr` or log has the key, or the output of the command.
"""

from __future__ import annotations

import base64
import binascii
import os
from hashlib import sha256
from pathlib import Path
from typing import Any

from everstep.errors import InvalidArgument
from everstep.system import sync, sync_folder

SIGNING, PUBLIC = "everstep-signing-key:", "everstep-public-key:"
_BYTES = 32
_MOST = 16_384
_SECONDS = 60
_SOURCES = "file:PATH, env:NAME or command:COMMAND"


class PublicKey:
    """Verifies signatures."""

    def __init__(self, key: Any, raw: bytes):
        self._key = key
        self.text = PUBLIC + base64.b64encode(raw).decode("ascii")
        self.id = sha256(raw).hexdigest()[:16]

    def fits(self, signature: bytes, message: bytes) -> bool:
        """Return whether the signature of a message was made with the signing key that belongs to this key."""
        from cryptography.exceptions import InvalidSignature

        try:
            self._key.verify(signature, message)
        except InvalidSignature:
            return False
        return True

    def __repr__(self) -> str:
        return f"<public key {self.id}>"


class SigningKey:
    """Makes signatures. Has no way to print the private key, except `new_file`, which writes it once."""

    def __init__(self, key: Any):
        self._key = key
        self.public = PublicKey(key.public_key(), key.public_key().public_bytes_raw())

    def sign(self, message: bytes) -> bytes:
        signature: bytes = self._key.sign(message)
        return signature

    def __repr__(self) -> str:
        return f"<signing key {self.public.id}>"


def new_file(path: str | os.PathLike[str]) -> PublicKey:
    """Write a new signing key to a file that only its owner can read, and the public key to PATH.pub. Neither may exist."""
    path = Path(path)
    public = path.with_name(path.name + ".pub")
    for one in (path, public):
        if os.path.lexists(one):
            raise InvalidArgument(
                f"{one} already exists; no key was written", remedy="Use another path. A signing key is never overwritten."
            )
    key = SigningKey(_ed25519().Ed25519PrivateKey.generate())
    try:
        _write(path, SIGNING + base64.b64encode(key._key.private_bytes_raw()).decode("ascii"), 0o600)
        _write(public, key.public.text, 0o644)
        sync_folder(path.absolute().parent)
    except OSError as error:
        raise InvalidArgument(
            f"the key cannot be written to {path}: {error.strerror}", remedy="Use a path in a folder that can be written to."
        ) from error
    return key.public


def _write(path: Path, text: str, mode: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, mode)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        os.fchmod(file.fileno(), mode)  # whatever the umask is
        file.write(text + "\n")
        file.flush()
        sync(file.fileno())


def signing_key(source: object) -> SigningKey:
    """Return the signing key from a source."""
    if isinstance(source, SigningKey):
        return source
    if source is None:
        raise InvalidArgument(
            "heads are signed, and there is no signing key",
            remedy=f"Make one: everstep heads --new-key FILE. Then give it, or set signing.key in the configuration: {_SOURCES}.",
        )
    text = _text_of(source, "the signing key")
    library = _ed25519()
    raw = _decoded(text, SIGNING)
    if raw is not None:
        return SigningKey(library.Ed25519PrivateKey.from_private_bytes(raw))
    if "PRIVATE KEY-----" in text:
        found = _pem(text, private=True)
        if isinstance(found, library.Ed25519PrivateKey):
            return SigningKey(found)
    raise _no_key("signing", SIGNING, text)


def public_key(source: object) -> PublicKey:
    """Return a public key from its text or from a source."""
    if isinstance(source, PublicKey):
        return source
    if source is None:
        raise InvalidArgument(
            "signed heads are compared with the public key of their owner, and none was given",
            remedy="Give it, or set signing.public_key in the configuration. `everstep heads --new-key FILE` wrote it to FILE.pub.",
        )
    given = str(source).strip()
    text = given if given.startswith((PUBLIC, SIGNING, "-----BEGIN")) else _text_of(source, "the public key")
    library = _ed25519()
    raw = _decoded(text, PUBLIC)
    if raw is not None:
        return PublicKey(library.Ed25519PublicKey.from_public_bytes(raw), raw)
    if "BEGIN PUBLIC KEY-----" in text:
        found = _pem(text, private=False)
        if isinstance(found, library.Ed25519PublicKey):
            return PublicKey(found, found.public_bytes_raw())
    raise _no_key("public", PUBLIC, text)


def _text_of(source: object, what: str) -> str:
    """Read a source. The text is secret: it must not get into an error."""
    if not isinstance(source, (str, os.PathLike)) or not str(source).strip():
        raise InvalidArgument(f"{what} must be {_SOURCES}, got a {type(source).__name__}")
    given = os.fspath(source) if isinstance(source, os.PathLike) else source
    if given.strip().startswith((SIGNING, "-----BEGIN")):
        raise InvalidArgument(
            f"{what} must be {_SOURCES}, got the key itself", remedy="Others can see arguments and settings. Put the key into a file."
        )
    kind, separator, rest = given.partition(":")
    if not separator or kind not in ("file", "env", "command"):
        kind, rest = "file", given
    if kind == "env":
        if not os.environ.get(rest):
            raise InvalidArgument(f"{what} is in the environment variable {rest!r:.80}, which is not set")
        return os.environ[rest].strip()
    return _of_command(rest, what) if kind == "command" else _of_file(rest, what)


def _of_file(path: str, what: str) -> str:
    try:
        with Path(path).open("rb") as file:
            found = file.read(_MOST + 1)
    except (OSError, ValueError) as error:
        raise InvalidArgument(
            f"{what} cannot be read from {path!r:.200}: {getattr(error, 'strerror', None) or error}", remedy="Check the path."
        ) from error
    return _as_text(found, f"{what} in {path!r:.200}")


def _of_command(command: str, what: str) -> str:
    import shlex
    import subprocess
    from threading import Timer

    try:
        process = subprocess.Popen(shlex.split(command), stdout=subprocess.PIPE)  # noqa: S603 - the owner of the key gave it
    except (OSError, ValueError, IndexError) as error:
        raise _failed(what, str(error)) from None
    late = Timer(_SECONDS, process.kill)
    late.daemon = True
    late.start()
    with process:
        assert process.stdout is not None
        try:
            found = process.stdout.read(_MOST + 1)
            if len(found) > _MOST:
                process.kill()
                return _as_text(found, f"{what} that the command prints")
            code = process.wait()
        finally:
            in_time = not late.finished.is_set()
            late.cancel()
    if code:
        raise _failed(what, f"it ended with exit code {code}" if in_time else f"it took longer than {_SECONDS} s")
    return _as_text(found, f"{what} that the command prints")


def _failed(what: str, why: str) -> InvalidArgument:
    """Return the error of a command. It has nothing of the command's output, which may be the key."""
    return InvalidArgument(f"the command for {what} failed: {why}", remedy="Run the command on its own.")


def _as_text(found: bytes, what: str) -> str:
    if len(found) > _MOST:
        raise InvalidArgument(f"{what} must have at most {_MOST:,} bytes", remedy="Check that this is the file of a key.")
    try:
        return found.decode("ascii").strip()
    except UnicodeDecodeError:
        raise InvalidArgument(f"{what} must be text in ASCII", remedy="Check that this is the file of a key.") from None


def _decoded(text: str, prefix: str) -> bytes | None:
    """Return the bytes of a key of one line; None if it is something else."""
    if not text.startswith(prefix):
        return None
    try:
        raw = base64.b64decode(text.removeprefix(prefix), validate=True)
    except (binascii.Error, ValueError):
        return None
    return raw if len(raw) == _BYTES else None


def _pem(text: str, private: bool) -> Any:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization

    data = text.encode("ascii", "replace")
    try:
        return serialization.load_pem_private_key(data, None) if private else serialization.load_pem_public_key(data)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return None


def _no_key(kind: str, prefix: str, text: str) -> InvalidArgument:
    other = (SIGNING, "-----BEGIN PRIVATE") if prefix == PUBLIC else (PUBLIC, "-----BEGIN PUBLIC")
    if text.startswith(other):
        return InvalidArgument(
            f"a {kind} key is needed, got the other key of the pair", remedy="The signing key stays secret; FILE.pub has the public one."
        )
    return InvalidArgument(
        f"a {kind} key must be {prefix}… or PEM of an Ed25519 key without a password",
        remedy="Make a pair of keys: everstep heads --new-key FILE.",
    )


def _ed25519() -> Any:
    try:
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError as error:
        raise InvalidArgument(
            "signed heads need the package cryptography, which is not installed", remedy="pip install 'everstep[crypto]'"
        ) from error
    return ed25519

"""The key that wraps the other keys of a store (key-encryption key): 32 bytes, or an object of the user, such as a client of a KMS.

A wrapped key is MessagePack: [1, id of the wrapping key, wrapped bytes]. The id is not secret. It tells a wrong key from a damaged one.
"""

from __future__ import annotations

import hmac
from typing import Protocol

from ormsgpack import MsgpackDecodeError, packb, unpackb

from everstep.codec.encryption import KEY_BYTES, Cipher
from everstep.errors import DamagedKey, EverstepError, InvalidArgument, KeySourceFailed

_VERSION = 1


class Wrapping(Protocol):
    """Wraps keys. A user's object needs these three; `id` is a text that names the key, and is stored in the clear."""

    @property
    def id(self) -> str: ...

    def wrap(self, data: bytes, about: bytes) -> bytes: ...

    def unwrap(self, data: bytes, about: bytes) -> bytes: ...


class Kek:
    """A key of 32 bytes. Neither its text form nor an error shows it."""

    __slots__ = ("_cipher", "id")

    def __init__(self, key: bytes):
        if type(key) is not bytes or len(key) != KEY_BYTES:
            raise InvalidArgument(
                f"a key must have {KEY_BYTES} bytes, got {len(key) if isinstance(key, bytes) else type(key).__name__}",
                remedy="Make one: python -c 'import secrets; print(secrets.token_hex(32))'",
            )
        self._cipher = Cipher(key)
        self.id = hmac.digest(key, b"everstep kek id", "sha256")[:8].hex()

    def wrap(self, data: bytes, about: bytes) -> bytes:
        return self._cipher.seal(data, about)

    def unwrap(self, data: bytes, about: bytes) -> bytes:
        content = self._cipher.open(data, about)
        if content is None:
            raise DamagedKey("a stored key was changed, or it belongs to another store or family")
        return content


class Foreign:
    """A user's object with `wrap` and `unwrap`. Its failures become errors with a code."""

    __slots__ = ("_given", "id")

    def __init__(self, given: Wrapping):
        name = getattr(given, "id", None)
        if not isinstance(name, str) or not 0 < len(name) <= 200 or not name.isprintable():
            raise InvalidArgument("the object that wraps keys must have an `id`, a text of 1 to 200 characters that names its key")
        self._given, self.id = given, name

    def wrap(self, data: bytes, about: bytes) -> bytes:
        return self._bytes("wrap", data, about)

    def unwrap(self, data: bytes, about: bytes) -> bytes:
        return self._bytes("unwrap", data, about)

    def _bytes(self, name: str, data: bytes, about: bytes) -> bytes:
        try:
            done = getattr(self._given, name)(data, about)
        except EverstepError:
            raise
        except Exception as error:
            raise KeySourceFailed(f"the key service {self.id!r} failed to {name} a key: {type(error).__name__}") from error
        if type(done) is not bytes or not done:
            raise KeySourceFailed(f"{name} of the key service {self.id!r} must return bytes, got {type(done).__name__}")
        return done


def wrapped(kek: Wrapping, key: bytes, about: bytes) -> bytes:
    """Return a key as it is stored. `about` says which key it is."""
    return packb([_VERSION, kek.id, kek.wrap(key, about)])


def wrapped_by(stored: bytes) -> tuple[str, bytes]:
    """Return the id of the key that wraps a stored key, and the wrapped bytes."""
    try:
        match unpackb(stored):
            case [1, str() as name, bytes() as data]:
                return name, data
    except (MsgpackDecodeError, ValueError):
        pass
    raise DamagedKey("a stored key is damaged")


def unwrapped(kek: Wrapping, data: bytes, about: bytes) -> bytes:
    """Return a key that was wrapped."""
    key = kek.unwrap(data, about)
    if len(key) != KEY_BYTES:
        raise DamagedKey(f"a stored key has {len(key)} bytes instead of {KEY_BYTES}")
    return key

"""The framing of an encrypted store, and that of one that was opened without its key."""

from __future__ import annotations

from typing import NoReturn

from everstep.codec.encryption import EncryptedFrames
from everstep.codec.frame import Framer
from everstep.errors import MissingKey
from everstep.store.encryption.keyring import Keyring, Read


class EncryptedFraming:
    """Makes and opens encrypted frames. `read` returns stored keys of families."""

    encrypted = True

    def __init__(self, inner: Framer, ring: Keyring, read: Read):
        self.inner, self.ring, self._read = inner, ring, read

    def of(self, family: bytes, key: bytes) -> EncryptedFrames:
        return EncryptedFrames(self.inner, self.ring.family(family, self._read), self.ring.header.store, family, key)

    def store(self) -> EncryptedFrames:
        return EncryptedFrames(self.inner, self.ring.store, self.ring.header.store, b"", b"")


class LockedFraming:
    """What a store has that is encrypted and was opened without a key: it opens nothing."""

    encrypted = True

    def __init__(self, inner: Framer, where: str):
        self.inner, self._where = inner, where

    def of(self, family: bytes, key: bytes) -> NoReturn:
        raise MissingKey(f"{self._where} is encrypted, and it was opened without a key")

    def store(self) -> NoReturn:
        raise MissingKey(f"{self._where} is encrypted, and it was opened without a key")

"""Encrypts frames, names and labels under given keys. Format of an encrypted frame:

    byte 0      format version, 1
    byte 1      flags: 8, encrypted
    12 bytes    nonce, random
    the rest    AES-256-GCM of an inner frame (`codec.frame`), then its tag of 16 bytes

The associated data names the store and the place that the frame belongs to, so that a frame that was moved cannot be opened. No I/O.
`cryptography` is imported when the first cipher is made.
"""

from __future__ import annotations

import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Sequence
from hashlib import sha256
from secrets import token_bytes
from typing import Any

from ormsgpack import packb

from everstep.codec.frame import VERSION, Framer
from everstep.errors import DamagedFrame, MissingPackage
from everstep.records import Chunk, Fetch, Place

KEY_BYTES = 32
NONCE_BYTES = 12
TAG_BYTES = 16
ENCRYPTED = 8
_BLOCK = 64  # of SHA-256, in bytes; a key is shorter
HEAD = bytes((VERSION, ENCRYPTED))
OVERHEAD = len(HEAD) + NONCE_BYTES + TAG_BYTES
_BODY = len(HEAD) + NONCE_BYTES


def derive(key: bytes, purpose: str) -> bytes:
    """Return the key for one purpose that belongs to `key`: HKDF-SHA256 without a salt."""
    extracted = hmac.digest(bytes(KEY_BYTES), key, "sha256")
    return hmac.digest(extracted, purpose.encode() + b"\x01", "sha256")


def keyed_seal(key: bytes) -> Callable[[bytes], bytes]:
    """Return a seal that only a holder of the key can make."""
    # HMAC-SHA256 with both states prepared: a third of the time of `hmac.digest`, and two of these are made for each record.
    padded = key.ljust(_BLOCK, b"\0")
    inner, outer = sha256(bytes(byte ^ 0x36 for byte in padded)), sha256(bytes(byte ^ 0x5C for byte in padded))

    def seal(data: bytes) -> bytes:
        hashed, ended = inner.copy(), outer.copy()
        hashed.update(data)
        ended.update(hashed.digest())
        return ended.digest()

    return seal


class Cipher:
    """Encrypts and decrypts with one key. Its text form does not show the key."""

    __slots__ = ("_decrypt", "_encrypt")

    def __init__(self, key: bytes):
        try:
            from cryptography.exceptions import InvalidTag
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        except ImportError as error:
            raise MissingPackage("encryption needs the package cryptography, which is not installed") from error
        aead = AESGCM(key)
        self._encrypt = aead.encrypt

        def decrypt(nonce: bytes, data: bytes, about: bytes) -> bytes | None:
            try:
                return aead.decrypt(nonce, data, about)
            except InvalidTag:
                return None

        self._decrypt = decrypt

    def seal(self, content: bytes, about: bytes) -> bytes:
        """Return nonce, ciphertext and tag."""
        nonce = token_bytes(NONCE_BYTES)
        return nonce + self._encrypt(nonce, content, about)

    def open(self, data: bytes, about: bytes) -> bytes | None:
        """Return the content; None if it was not sealed by this key for this place, or was changed since."""
        if len(data) < NONCE_BYTES + TAG_BYTES:
            return None
        return self._decrypt(data[:NONCE_BYTES], data[NONCE_BYTES:], about)


class EncryptedFrames:
    """The frames of one run, or those of the store that belong to no run: `owner` tells them apart."""

    __slots__ = ("_cipher", "_family", "_inner", "_names", "_owner")

    def __init__(self, inner: Framer, ring: FamilyKey, store: bytes, family: bytes, owner: bytes):
        self._inner = inner
        self._cipher, self._names = ring.cipher, ring.names
        self._owner = packb([VERSION, store, family, owner])
        self._family = packb([VERSION, store, family])

    def wrap(self, content: bytes, place: Place, least: int = 0) -> bytes:
        return HEAD + self._cipher.seal(self._inner.wrap(content, None, least), self._owner + packb(place))

    def unwrap(self, frame: bytes, place: Place) -> bytes:
        if not frame.startswith(HEAD):
            raise DamagedFrame("a frame of an encrypted store is not encrypted")
        inner = self._cipher.open(frame[len(HEAD) :], self._owner + packb(place))
        if inner is None:
            raise DamagedFrame("an encrypted frame was changed, or it belongs to another place")
        return self._inner.unwrap(inner)

    def chunk_name(self, digest: bytes) -> bytes:
        return hmac.digest(self._names, digest, "sha256")

    def stored(self, chunks: Sequence[Chunk]) -> Sequence[Chunk]:
        seal, family, named = self._cipher.seal, self._family, [(self.chunk_name(digest), inner) for digest, inner in chunks]
        return [(name, HEAD + seal(inner, family + name)) for name, inner in named]

    def open_chunk(self, name: bytes, frame: bytes) -> bytes:
        inner = self._cipher.open(frame[len(HEAD) :], self._family + name) if frame.startswith(HEAD) else None
        return HEAD if inner is None else inner

    def fetcher(self, read: Fetch) -> Fetch:
        def fetch(digests: Sequence[bytes]) -> dict[bytes, bytes]:
            known = {self.chunk_name(digest): digest for digest in digests}
            return {known[name]: self.open_chunk(name, frame) for name, frame in read(list(known)).items()}

        return fetch

    def seal_text(self, content: bytes, place: Place) -> str:
        """Return content encrypted as text, for a column that holds texts."""
        return as_text(self._cipher.seal(content, self._owner + packb(place)))

    def open_text(self, text: str, place: Place) -> bytes:
        """Return what `seal_text` was given. Raises `DamagedFrame` if it was changed or moved."""
        content = self._cipher.open(as_bytes(text), self._owner + packb(place))
        if content is None:
            raise DamagedFrame("an encrypted text was changed, or it belongs to another place")
        return content


class FamilyKey:
    """The key of a family, or of the store, with what follows from it."""

    __slots__ = ("cipher", "names")

    def __init__(self, key: bytes):
        self.cipher = Cipher(key)
        self.names = derive(key, "names of chunks")


def hashed(key: bytes, *parts: Any) -> str:
    """Return the keyed hash under which a label is searched: 16 bytes as text."""
    return as_text(hmac.digest(key, packb(parts), "sha256")[:16])


def as_text(data: bytes) -> str:
    """Return bytes in the alphabet of Base64 that is safe in addresses, without padding."""
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def as_bytes(text: str) -> bytes:
    """Return what `as_text` was given; empty for other texts."""
    try:
        return urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except ValueError:
        return b""

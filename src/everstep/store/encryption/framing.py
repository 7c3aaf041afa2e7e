"""The framing of an encrypted store, and that of one that was opened without its key."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import monotonic
from typing import NoReturn

from everstep.codec.encryption import OVERHEAD
from everstep.codec.frame import Framer
from everstep.errors import MissingKey
from everstep.records import Chunk, Fetch, Labels, Place, Seal
from everstep.store.encryption.header import Header
from everstep.store.encryption.keyring import Keyring, Read
from everstep.store.encryption.labels import Index, RunFrames

LOCKED = "(encrypted)"
"""Shown in place of a note that cannot be opened."""
_MOST_FRAMES = 1024


FOLLOW_SECONDS = 0.5
"""How long a process may wrap new keys with a key that another process has replaced."""


class EncryptedFraming:
    """Makes and opens encrypted frames. `read` returns stored keys of families, `look` what the store says about its encryption."""

    encrypted = True
    locked = False
    overhead = OVERHEAD

    def __init__(self, inner: Framer, ring: Keyring, read: Read, look: Callable[[], str | None] | None = None):
        self.inner, self.ring, self._read, self._look = inner, ring, read, look
        self.index = Index(ring.index)
        self._due = monotonic() + FOLLOW_SECONDS
        self._frames: dict[tuple[bytes, bytes], RunFrames] = {}

    def with_inner(self, inner: Framer) -> EncryptedFraming:
        """Return the framing with another choice of compression."""
        return EncryptedFraming(inner, self.ring, self._read, self._look)

    def for_stored(self) -> EncryptedFraming:
        return self

    def of(self, family: bytes, key: bytes) -> RunFrames:
        found = self._frames.get((family, key))
        if found is None:
            if len(self._frames) >= _MOST_FRAMES:
                self._frames.clear()
            found = RunFrames(self.inner, self.ring.family(family, self._read), self.ring.header.store, family, key, self.index)
            self._frames[family, key] = found
        return found

    def store(self) -> RunFrames:
        return RunFrames(self.inner, self.ring.store, self.ring.header.store, b"", b"", self.index)

    def new_family(self, family: bytes) -> bytes:
        if self._look is not None and monotonic() >= self._due:  # `rekey` waits as long before it looks for the last keys
            said = self._look()
            if said is not None:
                self.ring.follow(Header.parse(said))
            self._due = monotonic() + FOLLOW_SECONDS
        return self.ring.create(family)

    def forget(self, family: bytes) -> None:
        self._frames.clear()
        self.ring.forget([family])

    @property
    def seal(self) -> Seal:
        """The seal of the store."""
        return self.ring.seal

    def stored_key(self, family: bytes) -> bytes:
        """Return the wrapped key of a family as it is stored."""
        return self._read([family])[family]


class LockedFraming:
    """The framing of an encrypted store that was opened without a key: it opens nothing and makes nothing."""

    encrypted = True
    locked = True
    overhead = OVERHEAD

    def __init__(self, inner: Framer, where: str):
        self.inner, self._frames = inner, LockedFrames(where)

    def with_inner(self, inner: Framer) -> LockedFraming:
        return LockedFraming(inner, self._frames.where)

    def for_stored(self) -> LockedFraming:
        return self

    def of(self, family: bytes, key: bytes) -> LockedFrames:
        return self._frames

    def store(self) -> NoReturn:
        self._frames.refuse()

    def new_family(self, family: bytes) -> NoReturn:
        self._frames.refuse()

    def forget(self, family: bytes) -> None:
        return


class LockedFrames:
    """The frames of any run of a locked store."""

    def __init__(self, where: str):
        self.where = where

    def refuse(self) -> NoReturn:
        raise MissingKey(f"{self.where} is encrypted, and it was opened without a key")

    def wrap(self, content: bytes, place: Place, least: int = 0) -> bytes:
        self.refuse()

    def unwrap(self, frame: bytes, place: Place) -> bytes:
        self.refuse()

    def stored(self, chunks: Sequence[Chunk]) -> Sequence[Chunk]:
        self.refuse()

    def chunk_name(self, digest: bytes) -> bytes:
        self.refuse()

    def open_chunk(self, name: bytes, frame: bytes) -> bytes:
        self.refuse()

    def fetcher(self, read: Fetch) -> Fetch:
        self.refuse()

    def seal_labels(self, labels: Labels, place: Place) -> Labels:
        self.refuse()

    def open_labels(self, labels: Labels, place: Place) -> Labels:
        note, tags, meta = labels
        return (None if note is None and meta is None else LOCKED), tuple(tag for tag in tags if not tag.startswith("#")), None

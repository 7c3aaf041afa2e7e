"""The state of a run as its records describe it, followed from checkpoint to checkpoint and compared with every base on the way.

The state is read lazily: a delta opens only the segments that it changes, and a base that shares segments with the one before is compared
only where they differ. So checking the whole history of a state costs as much as its changes. If following it would exceed the allowance
(see `chunks`), the state counts as unknown until the next base. Relies on `Chunks` for proved contents; never reports a fault twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from everstep.codec.values import Decoder
from everstep.errors import Damaged, DamagedChunk
from everstep.snapshot.delta import apply
from everstep.snapshot.equality import alike
from everstep.snapshot.loader import Entry
from everstep.snapshot.saver import NO_DELTA
from everstep.snapshot.view import LazyLoader
from everstep.store.verify.chunks import Chunks, TooDear


class _Loader(LazyLoader):
    """Takes contents from proved chunks instead of fetching and checking them again."""

    def __init__(self, chunks: Chunks):
        super().__init__(lambda digests: {}, bytes)  # it never has a frame to open
        self._chunks = chunks

    def contents(self, digests: Sequence[bytes]) -> list[bytes]:
        return self._chunks.again(digests)

    def leaves(self, count: int, level: int, digest: bytes) -> list[Entry]:
        return self._chunks.leaves(count, level, digest)


class Mirror:
    """The state of one run as of the last record, while it is known."""

    def __init__(self, chunks: Chunks):
        self._loader = _Loader(chunks)
        self._decoder = Decoder()
        self._value: Any = None  # before checkpoint 1
        self._known = True

    def lost(self) -> None:
        """Mark the state as unknown until the next base."""
        self._value, self._known = None, False

    def delta(self, content: bytes) -> None:
        """Apply one checkpoint. Raises `Damaged` if its body is not a delta or does not fit."""
        if content == NO_DELTA:
            self.lost()
            return
        ops = self._decoder.decode(content)
        if not isinstance(ops, list):
            self.lost()
            raise Damaged("its body is not a delta")
        if not self._known:
            return
        try:
            self._value = apply(self._value, ops)
        except (TooDear, DamagedChunk):
            self.lost()
        except Damaged:
            self.lost()
            raise

    def base(self, content: bytes) -> bool:
        """Continue from a base whose chunks are proved; return False if it differs from the state that the deltas give."""
        value, known, before = self._loader.load(content), self._known, self._value
        self._value, self._known = value, True
        try:
            return not known or alike(before, value)
        except (TooDear, DamagedChunk, RecursionError):
            return True

"""The state of a run as its records tell it, followed from checkpoint to checkpoint and compared with every base on the way.

It is read lazily: a delta opens the segments that it changes and no others, and a base that shares segments with the one before is
compared where they differ. So the whole history of a state costs as much as its changes. Where following it would cost more than has
been earned (see `chunks`), it is lost until the next base. Relies on `Chunks` for what was proved; never reports what that has reported.
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
    """Takes contents from what was proved, instead of fetching and proving them once more."""

    def __init__(self, chunks: Chunks):
        super().__init__(lambda digests: {}, bytes)  # it never has a frame to open
        self._chunks = chunks

    def contents(self, digests: Sequence[bytes]) -> list[bytes]:
        return self._chunks.again(digests)

    def leaves(self, count: int, level: int, digest: bytes) -> list[Entry]:
        return self._chunks.leaves(count, level, digest)


class Mirror:
    """One run's state, up to the record that was looked at last, while it is known."""

    def __init__(self, chunks: Chunks):
        self._loader = _Loader(chunks)
        self._decoder = Decoder()
        self._value: Any = None  # before checkpoint 1
        self._known = True

    def lost(self) -> None:
        """From here on nothing is known, until the next base."""
        self._value, self._known = None, False

    def delta(self, content: bytes) -> None:
        """Go on by one checkpoint. Raises `Damaged` if its delta is none or does not fit."""
        if content == NO_DELTA:
            self.lost()
            return
        ops = self._decoder.decode(content)
        if not isinstance(ops, list):
            self.lost()
            raise Damaged("its body is no delta")
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
        """Go on from a base, whose chunks are proved; False if it is not what the deltas before it say."""
        value, known, before = self._loader.load(content), self._known, self._value
        self._value, self._known = value, True
        try:
            return not known or alike(before, value)
        except (TooDear, DamagedChunk, RecursionError):
            return True

"""The frames of a store as its backend returns them, each of which can be returned with one bit flipped. Part of `flips`.

Everything below the frames is intact, so that only our own digests can detect it. Relies on `recall` for the reads that use a frame.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import replace
from itertools import accumulate
from typing import Any

import everstep
from everstep.api import Store
from everstep.backends.contract.core import MAX_SEQ
from everstep.records import Base, Message, Record
from harness.faults.broken_backends import Wrapper
from harness.faults.damage.reads import DETECTED, SAME, WRONG, compare
from harness.faults.damage.recall import Recall

Name = tuple[Any, ...]


def frames_in(answer: Any) -> Iterator[tuple[Name, bytes]]:
    """Yield the frames in an answer of a backend, by names that are the same in all answers."""
    if isinstance(answer, Record):
        if answer.body is not None:
            yield ("record", answer.run, answer.seq), answer.body
    elif isinstance(answer, Message):
        yield ("message", answer.key, answer.name), answer.body
    elif isinstance(answer, Base):
        yield ("base", answer.key, answer.number), answer.body
    elif isinstance(answer, dict):
        yield from ((("chunk", digest), frame) for digest, frame in answer.items() if isinstance(digest, bytes))
    elif isinstance(answer, (list, tuple)):
        for part in answer:
            yield from frames_in(part)


def with_frame(answer: Any, name: Name, frame: bytes) -> Any:
    """Replace one frame in an answer."""
    if isinstance(answer, (Record, Message, Base)):
        return replace(answer, body=frame) if name in dict(frames_in(answer)) else answer
    if isinstance(answer, dict):
        return answer | {name[1]: frame} if name in dict(frames_in(answer)) else answer
    if isinstance(answer, (list, tuple)):
        parts = [with_frame(part, name, frame) for part in answer]
        return answer._make(parts) if hasattr(answer, "_make") else type(answer)(parts)
    return answer


class Flipped(Wrapper):
    """A backend that returns one frame with a bit flipped."""

    def __init__(self, backend: Any, name: Name, frame: bytes):
        super().__init__(backend)
        self._name, self._frame = name, frame

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._backend, name)
        return (lambda *args, **options: with_frame(real(*args, **options), self._name, self._frame)) if callable(real) else real


class Frames:
    """Every frame of an open store, and the reads that use it. Flips are numbered."""

    def __init__(self, store: everstep.Store, recall: Recall):
        self._backend = store.backend
        self._recall = recall
        found = dict(_stored(store))
        self._names, self._frames = list(found), list(found.values())
        self._ends = list(accumulate(len(frame) * 8 for frame in self._frames))
        self._reads: dict[Name, set[str]] = {name: set() for name in found}
        for call in recall.calls:
            for name, _ in frames_in(call.answer):
                self._reads[name] |= call.reads

    @property
    def bits(self) -> int:
        return self._ends[-1]

    def kinds(self) -> set[str]:
        return {name[0] for name in self._names}

    def flip(self, number: int) -> tuple[str, str]:
        """Return one frame with one bit flipped, and do all reads that use it; `verify` must find a flip that no read sees."""
        which = bisect_right(self._ends, number)
        name, frame = self._names[which], bytearray(self._frames[which])
        bit = number - (self._ends[which - 1] if which else 0)
        frame[bit >> 3] ^= 1 << (bit & 7)
        store = Store(Flipped(self._backend, name, bytes(frame)))
        worst = (SAME, "") if self._reads[name] else _verified(store)
        for read in sorted(self._reads[name]):
            kind, said = compare(self._recall.reads[read], store, self._recall.good[read])
            if kind not in (SAME, DETECTED):
                return WRONG, f"bit {bit} of {name}: {read}: {said}"
            worst = (DETECTED, said) if kind == DETECTED else worst
        return worst


def _stored(store: everstep.Store) -> Iterator[tuple[Name, bytes]]:
    backend = store.backend
    for info in store.runs():
        yield from frames_in(backend.records(info.id, 1, MAX_SEQ))
        yield from frames_in(backend.messages(info.id))
        yield from frames_in(backend.bases(info.id))
    for family in backend.families():
        yield from frames_in(backend.chunks(family, list(backend.chunk_sizes(family))))


def _verified(store: everstep.Store) -> tuple[str, str]:
    return (WRONG, "no read sees it, and verify reports no damage") if store.verify("full").ok else (DETECTED, "verify")

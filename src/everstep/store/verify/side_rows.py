"""The side rows of a run: tags, messages, the prune mark, added bases. Reports what is wrong with them; reads only."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from everstep.backends.contract.core import Backend
from everstep.errors import Damaged
from everstep.fields import Shape
from everstep.records import Base, Frames, Message, Pruned, RunRow, Seal, Tag
from everstep.store.encryption.frames import frames_of
from everstep.store.verify.report import Problem


class Beside(Shape):
    """The side rows of one run."""

    tags: list[Tag]
    messages: list[Message]
    mark: Pruned | None
    bases: list[Base]

    @classmethod
    def of(cls, backend: Backend, run: str) -> Beside:
        return cls(backend.tags(run), backend.messages(run), backend.pruned(run), backend.bases(run))

    def pruning(self) -> tuple[bytes, ...]:
        """Return a value that changes when the run is pruned."""
        return (b"" if self.mark is None else self.mark.check, *(base.check for base in self.bases))

    def problems(self, row: RunRow, opening: bool, backend: Backend) -> Iterator[Problem]:
        """Yield side rows that do not match their own digest or the row of the run. `opening`: also open the messages."""
        where, seal = f"run {row.id}", backend.seal
        for tag in self.tags:
            if tag.digest(seal) != tag.check or tag.key != row.key or not 1 <= tag.number <= row.checkpoints:
                yield Problem("E501", where, f"tag {tag.name!r} does not match its digest")
        for message in self.messages:
            if message.digest(seal) != message.check or message.key != row.key:
                yield Problem("E501", f"{where}, message {message.name}", "it does not match its digest")
            elif opening:
                yield from _unopened(message, f"{where}, message {message.name}", frames_of(backend, row))
        if self.mark is not None and not _fits(self.mark, row, seal):
            yield Problem("E501", where, "its prune mark does not match its digest")
        for base in self.bases:
            if base.digest(seal) != base.check or base.key != row.key or not 1 <= base.number <= row.checkpoints:
                yield Problem("E501", where, f"the added base for checkpoint {base.number} does not match its digest")


def _unopened(message: Message, where: str, frames: Frames) -> Iterator[Problem]:
    try:
        frames.unwrap(message.body, ("message", message.name))
    except Damaged as error:
        yield Problem(error.code, where, error.message)


def _fits(mark: Pruned, row: RunRow, seal: Seal) -> bool:
    whole = mark.digest(seal) == mark.check and mark.key == row.key
    return whole and _in_order(mark.ranges, row.head_seq) and _in_order(mark.numbers, row.checkpoints)


def _in_order(ranges: tuple[tuple[int, int], ...], last: int) -> bool:
    """Whether ranges lie between 1 and the last, in order and without overlap."""
    apart = all(end < first for (_, end), (first, _) in pairwise(ranges))
    return apart and all(1 <= first <= end <= last for first, end in ranges)

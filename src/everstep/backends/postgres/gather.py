"""Reads all rows of a page of runs in a few statements, for verify, gc and clean-up. Relies on Readers.

A run that has more than `_MOST_BYTES` is left to single reads, so that a page stays small in memory. So is a run with any unreadable row:
the single read reports the error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from everstep.backends.contract.types import Gathered
from everstep.backends.postgres.connections.readers import Readers
from everstep.backends.postgres.rows import pruned_from, record_from, run_from
from everstep.errors import Damaged
from everstep.records import Base, Message, RunRow, Tag

T = TypeVar("T")
_MOST_BYTES = 32_768
_MOST_RECORDS = 64


def gather(readers: Readers, page: Sequence[tuple[int, RunRow]], heads: bool) -> Gathered:
    """Read a page. Lists chunks before it reads the rows again: chunks of a commit in between are then missing from the list, not from the
    rows."""
    out = Gathered()
    reading = _Reading(readers, page)
    if not heads:
        _chunks(readers, list({row.family for _, row in page}), out)
        out.parents.update(parent for (parent,) in readers.rows("parents_of", [row.id for _, row in page]))
    _fill(out.tags, reading.each("tags_of", lambda _, values: Tag(*values)))
    _fill(out.messages, reading.each("messages_of", lambda _, values: Message(*values)))
    out.marks.update(reading.each("marks_of", pruned_from))
    _fill(out.bases, reading.each("bases_of", lambda _, values: Base(*values)))
    if heads:
        out.rows.update({row.id: row for _, row in page})
        out.records.update({row.id: [] for _, row in page})
        _fill(out.records, reading.each("heads_of", record_from, [row.head_seq for _, row in page]))
    else:
        out.rows.update(reading.each("rows_of", lambda _, values: run_from(values)))
        reading.pks = [pk for pk, row in page if row.stored <= _MOST_BYTES and row.head_seq <= _MOST_RECORDS]
        out.records.update({reading.names[pk]: [] for pk in reading.pks})
        _fill(out.records, reading.each("records_of", record_from))
    for run in reading.unread:
        out.rows.pop(run, None)
        out.records.pop(run, None)
    return out


class _Reading:
    """Reads rows of several runs and notes the runs that have an unreadable row."""

    def __init__(self, readers: Readers, page: Sequence[tuple[int, RunRow]]):
        self._readers = readers
        self.names = {pk: row.id for pk, row in page}
        self.pks = list(self.names)
        self.unread: set[str] = set()

    def each(self, name: str, make: Callable[[str, tuple[Any, ...]], T], *more: object) -> list[tuple[str, T]]:
        found: list[tuple[str, T]] = []
        for pk, *values in self._readers.rows(name, self.pks, *more):
            run = self.names[pk]
            try:
                found.append((run, make(run, tuple(values))))
            except Damaged:
                self.unread.add(run)
        return found


def _chunks(readers: Readers, families: list[bytes], out: Gathered) -> None:
    """Read the sizes of all chunks, and the frames of small families."""
    out.sizes.update({family: {} for family in families})
    for family, digest, size in readers.rows("sizes_of", families):
        out.sizes[family][digest] = size
    small = [family for family in families if sum(out.sizes[family].values()) <= _MOST_BYTES]
    out.frames.update({family: {} for family in small})
    for family, digest, frame in readers.rows("frames_of", small):
        out.frames[family][digest] = frame


def _fill(target: dict[str, list[T]], found: list[tuple[str, T]]) -> None:
    for run, one in found:
        target.setdefault(run, []).append(one)

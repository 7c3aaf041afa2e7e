"""The cursor of a reader of events: a position and the last event seen, which reveals a store with another history. Only reads.

A position alone is not enough: after a restore from an older backup, new events get positions that the reader has passed. As text a cursor is

    position:anchor:seq:key:digest:run      the last event seen: its position, its seq in its run, the run's key (hex), 8 bytes of its digest (hex), its run

or only the position if the last event is unknown. Older cursors, which were only positions, are read as such.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from everstep.backends.contract.core import Backend
from everstep.errors import HistoryChanged, InvalidArgument
from everstep.records import Record

_PREFIX = 8
_PARTS = 6
_STONES = 500
REMEMBERED_DAYS = 7
"""How long a store remembers the keys of deleted runs. A cursor is refused if the run of its last event was deleted before that."""


class Anchor(NamedTuple):
    """The last event that a reader saw."""

    position: int
    seq: int
    key: str
    digest: str
    run: str


class Cursor(int):
    """A position that remembers the event before it. `str(cursor)` is the text to keep."""

    anchor: Anchor | None = None

    @classmethod
    def at(cls, position: int, anchor: Anchor | None) -> Cursor:
        made = cls(position)
        made.anchor = anchor
        return made

    @classmethod
    def parse(cls, given: Any) -> Cursor:
        """Make a cursor from that of a page, from its text, or from a bare position."""
        if isinstance(given, Cursor):
            return given
        parts = given.split(":", _PARTS - 1) if isinstance(given, str) else [given]
        try:
            if len(parts) == _PARTS:
                position, anchor, seq, key, digest, run = parts
                bytes.fromhex(key + digest)
                return cls.at(_count(position), Anchor(_count(anchor), _count(seq), key, digest, run))
            if len(parts) == 1 and (type(given) is int or isinstance(given, str)):
                return cls(_count(parts[0]))
        except ValueError:
            pass
        raise InvalidArgument(f"after must be 0, a position, or the cursor of a page of events, got {given!r:.80}")

    def __str__(self) -> str:
        position = int.__repr__(self)
        return position if self.anchor is None else ":".join((position, *map(str, self.anchor)))

    __repr__ = int.__repr__


def _count(value: int | str) -> int:
    number = int(value)
    if not 0 <= number < 2**63:
        raise ValueError
    return number


def anchored(backend: Backend, position: int, newest: tuple[int, Record] | None, before: Cursor) -> Cursor:
    """Return the cursor of a page that ends at a position; `newest` is its last event, `before` where it began."""
    if newest is None:
        return Cursor.at(position, before.anchor)
    at, record = newest
    row = backend.run(record.run)
    known = None if row is None else Anchor(at, record.seq, row.key.hex(), record.digest[:_PREFIX].hex(), record.run)
    return Cursor.at(position, known)


def checked(backend: Backend, cursor: Cursor, end: int) -> Cursor:
    """Return the cursor if this store has the history that it belongs to; without its anchor if that was deleted since."""
    if cursor > end:
        raise _changed(cursor, f"the newest event has position {end}")
    anchor = cursor.anchor
    if anchor is None:
        return cursor
    found = backend.feed(anchor.position - 1, 1)
    if found and found[0][0] == anchor.position:
        record = found[0][1]
        if record.digest[:_PREFIX].hex() != anchor.digest:
            raise _changed(cursor, f"position {anchor.position} now has a different record: {record.seq} of run {record.run!r}")
        return cursor
    row = backend.run(anchor.run)
    if row is not None and row.key.hex() == anchor.key:
        digest = backend.digests(anchor.run, [anchor.seq]).get(anchor.seq, b"")
        if digest[:_PREFIX].hex() != anchor.digest:
            raise _changed(cursor, f"record {anchor.seq} of run {anchor.run!r} differs from the one that the reader saw")
        return cursor  # repair gave it another position, after all former ones
    if not _was_deleted(backend, anchor.key):
        raise _changed(
            cursor,
            f"run {anchor.run!r}, whose event the reader saw last, is not in this store, and was not deleted in the last {REMEMBERED_DAYS} days",
        )
    return Cursor(cursor)


def _was_deleted(backend: Backend, key: str) -> bool:
    after = 0
    while found := backend.tombstones(after, _STONES):
        if any(stone.key.hex() == key for stone in found):
            return True
        after = found[-1].pk
    return False


def _changed(cursor: Cursor, why: str) -> HistoryChanged:
    return HistoryChanged(
        f"the cursor at position {int(cursor):,} belongs to another history of this store: {why}. "
        "The store was probably restored from an older backup"
    )

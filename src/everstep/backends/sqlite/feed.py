"""The feed of a store in SQLite: the order in which records were committed, without an extra page in each commit.

    entry    12 bytes: pk of the run, seq of its first record, how many records; 4 bytes each, big-endian
    blob     8 bytes of SHA-256(entries, position of the last record as 8 bytes), then the entries
    feed     full blobs, each under its first position
    manifest.feed, manifest.fed     the blob that is being filled, and the newest position

Every commit writes the manifest row anyway; the blob is part of it and moves to the table when it is full. A commit that continues
where the last entry ends extends that entry. Positions never change: `trim` turns entries of deleted runs into gaps, entries of run 0.
Relies on the caller's transaction or snapshot. Never returns an event of a blob that does not match its digest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from hashlib import sha256
from struct import Struct
from typing import Any

import apsw

from everstep.backends import sql_files
from everstep.backends.sqlite.rows import record_from
from everstep.errors import Damaged, DamagedRecord
from everstep.records import Record

_SQL = sql_files.load("sqlite", "read")
_ENTRY = Struct(">III")
_pack_entry, _unpack_entry = _ENTRY.pack, _ENTRY.unpack_from
_DIGEST = 8
_FULL = 1200
Entry = tuple[int, int, int]


def _prove(blob: Any, end: Any) -> None:
    """Refuse a blob that is not the one that was written for this position."""
    if type(blob) is not bytes or len(blob) % _ENTRY.size != _DIGEST or type(end) is not int or not 0 <= end < 1 << 62:
        raise Damaged("a part of the feed is damaged: it has no whole entries or no position")
    if sha256(blob[_DIGEST:] + end.to_bytes(8)).digest()[:_DIGEST] != blob[:_DIGEST]:
        raise Damaged(f"the part of the feed that ends at position {end} does not match its digest")


def _entries(blob: bytes) -> list[Entry]:
    return list(_ENTRY.iter_unpack(blob[_DIGEST:]))


def length(entries: list[Entry]) -> int:
    """Return how many positions the entries take."""
    return sum(count for _, _, count in entries)


def proven(blob: Any, end: Any) -> list[Entry] | None:
    """Return the entries of a part that ends at a position; None if it is not the part that was written for it."""
    try:
        _prove(blob, end)
    except Damaged:
        return None
    return _entries(blob)


class FeedWriter:
    """The end of the feed, which each write transaction extends. Its last entry is open, the others are packed."""

    __slots__ = ("_count", "_hash", "_packed", "_pk", "_seq", "fed", "full")

    def __init__(self) -> None:
        self.fed = 0
        self.full: list[tuple[int, bytes]] = []
        self._pk = self._seq = self._count = 0
        self._begin(b"")

    def load(self, blob: Any, fed: Any) -> None:
        """Continue from the stored end. Must be cheap: two processes that write in turn do it at each commit."""
        _prove(blob, fed)
        self.fed = fed
        self.full.clear()
        self._pk, self._seq, self._count = _unpack_entry(blob, -_ENTRY.size) if len(blob) > _DIGEST else (0, 0, 0)
        self._begin(blob[_DIGEST : -_ENTRY.size])

    def _begin(self, packed: bytes) -> None:
        self._packed = packed
        self._hash = sha256(packed)

    def add(self, pk: int, seq: int, count: int) -> None:
        """Add `count` records of a run, beginning with `seq`. Full blobs are collected in `full`, for the table."""
        if pk == self._pk and seq == self._seq + self._count:
            self._count += count
        else:
            if self._count:
                self._close_entry()
            self._pk, self._seq, self._count = pk, seq, count
        self.fed += count

    def _close_entry(self) -> None:
        entry = _pack_entry(self._pk, self._seq, self._count)
        self._packed += entry
        self._hash.update(entry)
        if len(self._packed) >= _FULL:
            blob = self._blob(b"")
            self.full.append((self.fed - length(_entries(blob)) + 1, blob))
            self._begin(b"")

    def blob(self) -> bytes:
        """Return the blob for the manifest."""
        return self._blob(_pack_entry(self._pk, self._seq, self._count) if self._count else b"")

    def _blob(self, last: bytes) -> bytes:
        """Hash only the last entry again: this is done at every commit."""
        digest = self._hash.copy()
        digest.update(last + self.fed.to_bytes(8))
        return digest.digest()[:_DIGEST] + self._packed + last


def read_feed(cursor: apsw.Cursor, after: int, limit: int) -> list[tuple[int, Record]]:
    found: list[tuple[int, Record]] = []
    names: dict[int, str | None] = {}
    for position, (pk, seq, count) in _beyond(cursor, max(after, 0)):
        if len(found) >= limit:
            break
        name = names[pk] if pk in names else names.setdefault(pk, _name(cursor, pk))
        if name is not None:
            records = _records(cursor, name, pk, seq, min(count, limit - len(found)))
            found += enumerate(records, position)
    return found


def feed_end(cursor: apsw.Cursor) -> int:
    _, fed = _newest(cursor)
    return fed


def _newest(cursor: apsw.Cursor) -> tuple[bytes, int]:
    blob, fed = cursor.execute(_SQL["feed_newest"]).fetchone() or (None, None)
    _prove(blob, fed)
    return blob, fed  # type: ignore[return-value] # verified


def _beyond(cursor: apsw.Cursor, after: int) -> Iterator[tuple[int, Entry]]:
    """Yield the entries beyond a position, each with its first position; the first entry without its part before that position."""
    for first, entries in _blobs(cursor, after + 1):
        position = first
        for pk, seq, count in entries:
            skipped = max(after + 1 - position, 0)
            if skipped < count:
                yield position + skipped, (pk, seq + skipped, count - skipped)
            position += count


def _blobs(cursor: apsw.Cursor, position: int) -> Iterator[tuple[int, list[Entry]]]:
    """Yield the blobs from the one that holds a position to the newest. Raises Damaged if one of them is missing."""
    blob, fed = _newest(cursor)
    newest = _entries(blob)
    last = fed - length(newest) + 1
    whole = False
    while position < last:
        first, entries = _stored(cursor, position)
        end = first + length(entries)
        if end <= position or end > last or (whole and first != position):
            raise Damaged(f"the feed is damaged: the part that holds position {position} is missing")
        yield first, entries
        position, whole = end, True
    yield last, newest


def _stored(cursor: apsw.Cursor, position: int) -> tuple[int, list[Entry]]:
    found: Any = cursor.execute(_SQL["feed_at"], (position,)).fetchone()
    if found is None:
        raise Damaged(f"the feed is damaged: the part that holds position {position} is missing")
    first, blob = found
    entries = _entries(blob) if type(blob) is bytes and len(blob) % _ENTRY.size == _DIGEST else []
    _prove(blob, first + length(entries) - 1)
    return first, entries


def _name(cursor: apsw.Cursor, pk: int) -> str | None:
    found = cursor.execute(_SQL["id_at"], (pk,)).fetchone()
    if found is not None and type(found[0]) is not str:
        raise Damaged(f"the row of run number {pk} is damaged: its id is not text")
    return None if found is None else found[0]


def _records(cursor: apsw.Cursor, name: str, pk: int, seq: int, count: int) -> list[Record]:
    first = pk << 31 | seq
    records = [record_from(name, values) for values in cursor.execute(_SQL["records"], (first, first + count - 1))]
    for expected, record in enumerate(records, seq):
        if record.seq != expected:
            raise DamagedRecord(name, expected, "it is missing, although the feed names it")
    if len(records) != count:
        raise DamagedRecord(name, seq + len(records), "it is missing, although the feed names it")
    return records


def trim(rows: list[tuple[Any, Any]], there: Callable[[int], bool]) -> tuple[list[tuple[int, bytes]], int]:
    """Return parts of the feed, as new parts, without the entries of deleted runs, and the number of removed entries; empty if none."""
    entries: list[Entry] = []
    before = 0
    for first, blob in rows:
        part = _entries(blob) if type(blob) is bytes and len(blob) % _ENTRY.size == _DIGEST else []
        _prove(blob, first + length(part) - 1)
        before += len(part)
        for pk, seq, count in part:
            if there(pk):
                entries.append((pk, seq, count))
            elif entries and not entries[-1][0] and entries[-1][2] + count < 1 << 32:
                entries[-1] = (0, 1, entries[-1][2] + count)
            else:
                entries.append((0, 1, count))
    if len(entries) == before:
        return [], 0
    position, parts, most = rows[0][0], [], _FULL // _ENTRY.size
    for at in range(0, len(entries), most):
        part = entries[at : at + most]
        parts.append((position, _sealed(part, position + length(part) - 1)))
        position += length(part)
    return parts, before - len(entries)


def runs_in(rows: list[tuple[Any, Any]]) -> set[int]:
    """Return the positions of the runs that these parts name."""
    return {pk for _, blob in rows if type(blob) is bytes and len(blob) % _ENTRY.size == _DIGEST for pk, _, _ in _entries(blob)}


def _sealed(entries: list[Entry], end: int) -> bytes:
    packed = b"".join(_pack_entry(*entry) for entry in entries)
    return sha256(packed + end.to_bytes(8)).digest()[:_DIGEST] + packed


def faults(cursor: apsw.Cursor) -> list[str]:
    """Return the faults of the feed: a damaged part, or records of a run that it has twice, not at all, or in the wrong order."""
    heads: list[Any] = cursor.execute(_SQL["heads"]).fetchall()
    there = {pk for pk, _, _ in heads}
    following: dict[int, int] = {}
    parts = -1
    try:
        for _, entries in _blobs(cursor, 1):
            parts += 1
            for pk, seq, count in entries:
                if pk in there and seq != following.get(pk, 1):
                    return [f"the feed has record {seq} of run number {pk}, expected record {following.get(pk, 1)}"]
                following[pk] = seq + count
    except Damaged as error:
        return [error.message]
    stray = [] if cursor.execute(_SQL["count_feed"]).fetchone() == (parts,) else ["the feed has parts that hold no position"]
    return stray + [
        f"the feed ends at record {ends} of run {name}, not at its head"
        for pk, name, head in heads
        if (ends := following.get(pk, 1) - 1) != head
    ]

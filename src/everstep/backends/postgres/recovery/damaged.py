"""Reads a damaged store in PostgreSQL: rows as the server reads them, in parts where it fails. Relies on psycopg.

All of it is one snapshot, read in one transaction that writes nothing, so the store may be in use. A row is skipped if the server cannot
read its page or a long value of it; its neighbours are still found. Deleted rows are out of reach: the server
does not show them. Rows that it returns are candidates like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from decimal import Decimal
from typing import Any, TypeVar

import psycopg

from everstep.backends.contract.core import MAX_SEQ
from everstep.backends.contract.recovery import Entry, Feed, Summary
from everstep.backends.postgres.connections.connect import Address, Connection, Rows, execute
from everstep.backends.postgres.connections.errors import translated
from everstep.backends.postgres.format import BUCKETS, FORMAT, MISSING, version_of
from everstep.backends.postgres.rows import Values, property_from, pruned_from, record_from, run_from
from everstep.errors import Damaged, NewerFormat, NotAStore, StoreUnreachable
from everstep.records import MODULUS, ZERO, Base, Message, Pruned, Record, RunRow, Seal, Tag, Tombstone

T = TypeVar("T")
_MOST_RUNS = (1 << 32) - 1
_PATIENCE = 150  # failed reads of one range before the rest of it is skipped
_ELSEWHERE = 200  # how many chunks to look for in all families: each search scans the table
_OWNERS = (
    ("tags", "run"),
    ("messages", "run"),
    ("pruned", "run"),
    ("bases", "run"),
    ("records", "run"),
    ("run_tags", "pk"),
    ("run_meta", "pk"),
)


class DamagedPostgresStore:
    """A store in PostgreSQL that may be damaged."""

    def __init__(self, url: str) -> None:
        self._address = Address(url)
        self._sql = self._address.load("damaged")
        self._connection = self._address.connect(seconds=0)
        self._elsewhere = _ELSEWHERE
        try:
            self._begin()
            self._rows = {values[0]: values for values in self._range("runs", 1, _MOST_RUNS)}
        except psycopg.Error as error:
            self.close()
            raise translated(error, self._address.url) from error
        except BaseException:
            self.close()
            raise

    def _begin(self) -> None:
        version = _format(self._connection, self._address)
        if version > FORMAT:
            raise NewerFormat(f"{self._address.url} has format {version}; this version of Everstep knows formats up to {FORMAT}")
        execute(self._connection, self._sql["begin"])
        execute(self._connection, self._sql["patient"])

    def _all(self, name: str, *values: Any) -> Rows:
        """Return all rows of a statement; none if it fails."""
        return self._tried(self._sql[name], values) or []

    def _tried(self, sql: bytes, values: tuple[Any, ...]) -> Rows | None:
        """Return the rows of a statement, or None if the server could not read them. The snapshot stays the same."""
        try:
            with self._connection.transaction():
                return execute(self._connection, sql, values)
        except (psycopg.Error, UnicodeDecodeError) as error:
            meaning = translated(error, self._address.url)
            if isinstance(meaning, StoreUnreachable) or self._connection.closed:
                raise meaning from error
            return None

    def _range(self, name: str, first: int, last: int, *values: Any) -> Rows:
        """Return the rows of a statement between two keys; if a read fails, in halves."""
        found: Rows = []
        waiting, patience = [(first, last)], _PATIENCE
        while waiting and patience:
            low, high = waiting.pop()
            rows = self._tried(self._sql[name], (*values, low, high))
            if rows is None:
                patience -= 1
                middle = (low + high) // 2
                waiting += [(middle + 1, high), (low, middle)] if low < high else []
            found += rows or []
        return found

    def summary(self, deep: bool) -> Summary:
        buckets = self._all("manifest")
        totals = [_whole(total) for _, total, _, _ in buckets]
        told = sum(n for n in totals if n is not None) if len(buckets) == BUCKETS and None not in totals else None
        newest = max(buckets, key=lambda bucket: bucket[3], default=None)
        counts = [n for (n,) in self._all("created") if 0 < n <= _MOST_RUNS]
        last = newest[2] if newest is not None else None
        return Summary(None if told is None else (told % MODULUS).to_bytes(32), max(counts, default=0), last, buries=True)

    def pks(self, deep: bool) -> list[int]:
        found = set(self._rows)
        if deep:
            for table, column in _OWNERS:
                sql = self._sql["owners"].replace(b"{table}", table.encode()).replace(b"{column}", column.encode())
                found.update(pk for (pk,) in self._tried(sql, ()) or ())
        return sorted(pk for pk in found if 0 < pk <= _MOST_RUNS)

    def alive(self, pk: int) -> bool:
        return pk in self._rows or bool(self._all("has_records", pk))

    def rows(self, pk: int, deep: bool) -> list[tuple[RunRow, bool]]:
        return [(row, True) for row in self._made(run_from, [self._rows[pk]] if pk in self._rows else [])]

    def _made(self, make: Callable[[Values], T], candidates: Rows) -> list[T]:
        """Return those of the candidates that can be read."""
        found: list[T] = []
        for values in candidates:
            with suppress(Damaged):
                found.append(make(values))
        return found

    def names(self, pk: int) -> list[str]:
        if pk in self._rows:
            return [self._rows[pk][1]]
        known = {values[1] for values in self._rows.values()}
        return sorted({name for (name,) in self._all("parents")} - known)

    def records(self, pk: int, run: str, deep: bool) -> dict[int, list[Record]]:
        rows = self._range("records", 0, MAX_SEQ, pk)
        found = {values[0]: _records(run, values) for values in rows}
        if deep:
            bare = (values for values in self._range("bare_records", 0, MAX_SEQ, pk) if values[0] not in found)
            found.update({values[0]: _records(run, (*values, None, None)) for values in bare})
        return {seq: records for seq, records in found.items() if records}

    def tags(self, pk: int, deep: bool) -> list[Tag]:
        return [Tag(*values) for values in self._all("tags", pk)]

    def tag_names(self, pk: int) -> list[tuple[str, int]]:
        return [(tag.name, tag.number) for tag in self.tags(pk, True)]

    def messages(self, pk: int, deep: bool) -> list[Message]:
        return [Message(*values) for values in self._all("messages", pk)]

    def pruned(self, pk: int, deep: bool) -> list[Pruned]:
        return self._made(lambda values: pruned_from("", values), self._all("pruned", pk))

    def bases(self, pk: int, deep: bool) -> list[Base]:
        return [Base(*values) for values in self._all("bases", pk)]

    def tombstones(self, deep: bool) -> list[Tombstone]:
        return [Tombstone(*values) for values in self._range("tombstones", 1, _MOST_RUNS)]

    def chunk(self, family: bytes, digest: bytes) -> Iterator[bytes]:
        for (frame,) in self._all("chunk", family, digest):
            yield frame
        if self._elsewhere:
            self._elsewhere -= 1
            yield from (frame for (frame,) in self._all("chunk_elsewhere", family, digest))

    def feed(self, deep: bool) -> Feed:
        """Read the feed. It has no digests; it counts if its entries do not overlap and the records of each run have no gap."""
        given, waiting, ends = self._all("feed"), self._all("feed_new"), self._all("feed_end")
        newest = max([*(last for last, *_ in given), *(position for (position,) in ends)], default=0)
        entries: list[Entry] = [*_with_holes(given, newest), *waiting]
        end = newest + sum(count for _, _, count in waiting)
        heads = _heads(entries)
        if heads is None or ends != [(newest,)] or not _follow(given):
            return Feed(None, max(end, 0))
        return Feed(entries, end, heads)

    def properties(self, deep: bool) -> dict[str, str]:
        return dict(self._made(property_from, self._all("properties")))

    def keys(self) -> dict[bytes, list[bytes]]:
        out: dict[bytes, list[bytes]] = {}
        for family, wrapped in self._all("keys"):
            if isinstance(family, bytes) and isinstance(wrapped, bytes):
                out.setdefault(family, []).append(wrapped)
        return out

    def set_seal(self, seal: Seal) -> None:
        return  # properties of such a store are not sealed with a key

    def close(self) -> None:
        self._connection.close()


def _format(connection: Connection, address: Address) -> int:
    """Return the format of the store. If the row that holds it is lost, the tables may still be complete."""
    try:
        version = version_of(connection, address)
    except psycopg.Error as error:
        raise translated(error, address.url) from error
    if version or execute(connection, address.load("read")["has_schema"], (address.schema,)) == [(True,)]:
        return version
    raise NotAStore.nothing_at(address.url, MISSING)


def _whole(total: Decimal) -> int | None:
    return int(total) if total.is_finite() and total == total.to_integral_value() else None


def _records(run: str, values: Values) -> list[Record]:
    """Make a record. If its body is missing, its digest is still known."""
    with suppress(Damaged):
        if values[11] is None and values[12] is None:
            return [record_from(run, (*values[:11], ZERO, None))]
        return [record_from(run, values)]
    return []


def _follow(given: Rows) -> bool:
    """Return whether no entry overlaps the one before it."""
    position = 0
    for last, _, _, count in given:
        if last < position + count or count < 1:
            return False
        position = last
    return True


def _with_holes(given: Rows, end: int) -> list[Entry]:
    """Return the entries, and one without a run for each gap: positions of deleted runs stay empty."""
    entries: list[Entry] = []
    position = holes = 0
    for last, run, seq, count in [*given, (end, 0, 0, 0)]:
        if (gap := last - count - position) > 0:
            entries.append((0, holes + 1, gap))
            holes += gap
        if count and run:
            entries.append((run, seq, count))
        elif count:
            entries.append((0, holes + 1, count))
            holes += count
        position = last
    return entries


def _heads(entries: list[Entry]) -> dict[int, int] | None:
    """Return the newest record of each run; None if the records of a run have a gap. Positions lost to a repair have no run."""
    heads: dict[int, int] = {}
    for pk, seq, count in entries:
        if pk and seq != heads.get(pk, 0) + 1:
            return None
        heads[pk] = seq + count - 1
    heads.pop(0, None)
    return heads

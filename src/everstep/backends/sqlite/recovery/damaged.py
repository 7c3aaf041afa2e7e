"""Reads a damaged store in SQLite: rows as SQLite reads them, in parts where it fails, and beyond that directly from the pages.

Works on a private copy (`pages`), so that not even a WAL recovery changes the source. Relies on `recovery.carve` for rows that SQLite
cannot find. Rows that SQLite returns are candidates like any other.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import apsw

from everstep.backends import sql_files
from everstep.backends.contract.core import MAX_SEQ
from everstep.backends.contract.recovery import Entry, Feed, Summary
from everstep.backends.sqlite.feed import length, proven
from everstep.backends.sqlite.files.create import folder_error
from everstep.backends.sqlite.files.format import FORMAT
from everstep.backends.sqlite.files.parts import TABLES, attach
from everstep.backends.sqlite.files.rollback_guard import RollbackGuard
from everstep.backends.sqlite.recovery.carve import GONE, Carver
from everstep.backends.sqlite.recovery.pages import Pages
from everstep.backends.sqlite.rows import (
    Values,
    base_from,
    message_from,
    property_from,
    pruned_from,
    record_from,
    run_from,
    tag_from,
    tombstone_from,
)
from everstep.errors import Damaged, NewerFormat
from everstep.fields import replace
from everstep.records import ENCRYPTION, ZERO, Base, Message, Pruned, Record, RunRow, Seal, Tag, Tombstone, unkeyed

T = TypeVar("T")
_SQL = sql_files.load("sqlite", "damaged")
_MOST_RUNS = (1 << 32) - 1
_PATIENCE = 150  # failed reads of one range before the rest of it is left to the carver


class DamagedSqliteStore:
    """A store file that may be damaged in any way."""

    def __init__(self, source: str | os.PathLike[str], private: str, seal: Seal = unkeyed) -> None:
        self._seal = seal
        self.path = os.path.realpath(source)
        self._seen = RollbackGuard(self.path).recall()
        try:
            self._pages = Pages(self.path, private, self._seen)
        except OSError as error:
            raise folder_error(error, Path(private)) from error
        self._carver: Carver | None = None
        self._cursor = self._connect()
        self._pages.hide()
        self._refuse_newer()
        self._rows = {values[0]: values for values in self._range("runs", 1, _MOST_RUNS)}

    def _connect(self) -> apsw.Cursor | None:
        name = "file:" + "".join(
            c if c.isalnum() or c in "/._-" else "".join(f"%{b:02x}" for b in os.fsencode(c)) for c in str(self._pages.image)
        )
        try:
            connection = apsw.Connection(f"{name}?immutable=1", flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
            for setting, value in (
                (apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0),
                (apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0),
                (apsw.SQLITE_DBCONFIG_ENABLE_VIEW, 0),
                (apsw.SQLITE_DBCONFIG_DEFENSIVE, 1),
            ):
                connection.config(setting, value)
            with suppress(apsw.Error):  # the tables cannot be read: then no statement finds anything
                attach(connection)
            return connection.cursor()
        except apsw.Error:
            return None

    def _refuse_newer(self) -> None:
        """Refuse a store of a newer Everstep, which we cannot judge. A greater number alone may be a flipped bit."""
        versions = self._all("format")
        unknown = {name for (name,) in self._all("tables")} - TABLES
        if versions and type(versions[0][0]) is int and versions[0][0] > FORMAT and unknown:
            raise NewerFormat(f"{self.path} has format {versions[0][0]}; this version of Everstep knows formats up to {FORMAT}")

    def _all(self, name: str, values: Values = ()) -> list[Any]:
        """Return all rows of a statement; none if it fails."""
        if self._cursor is None:
            return []
        try:
            return self._cursor.execute(_SQL[name], values).fetchall()
        except (apsw.Error, UnicodeDecodeError):
            return []

    def _range(self, name: str, first: int, last: int) -> list[Any]:
        """Return the rows of a statement between two keys; if a read fails, in halves."""
        found: list[Any] = []
        waiting, patience = [(first, last)], _PATIENCE
        while waiting and patience and self._cursor is not None:
            low, high = waiting.pop()
            try:
                found += self._cursor.execute(_SQL[name], (low, high)).fetchall()
            except (apsw.Error, UnicodeDecodeError):
                patience -= 1
                middle = (low + high) // 2
                waiting += [(middle + 1, high), (low, middle)] if low < high else []
        return found

    @property
    def _deep(self) -> Carver:
        if self._carver is None:
            self._carver = Carver(self._pages)
        return self._carver

    def _made(self, make: Callable[[Values], T], candidates: list[Values]) -> list[T]:
        """Return those of the candidates that have the types of their table."""
        found: list[T] = []
        for values in candidates:
            with suppress(Damaged):
                found.append(make(values))
        return found

    def _carved(self, table: str, key: Any, live: bool = False) -> list[Values]:
        return [values for is_live, values in self._deep.rows(table, key) if is_live or not live]

    def summary(self, deep: bool) -> Summary:
        found = self._manifests(deep)
        return self._summary(found[0]) if found else Summary(unreadable=self._pages.unreadable)

    def _manifests(self, deep: bool) -> list[Values]:
        """Return the candidates for the manifest row."""
        return list(dict.fromkeys([*self._all("manifest"), *(self._carved("manifest", 1) if deep else ())]))

    def _summary(self, values: Values) -> Summary:
        _, total, _, following, last, _, _, writes, identity, _ = values
        seen = self._seen.writes if self._seen is not None and self._seen.identity == identity else 0
        return Summary(
            total if type(total) is bytes else None,
            following - 1 if type(following) is int and 0 < following <= _MOST_RUNS else 0,
            last if type(last) is int else None,
            max(seen - writes, 0) if type(writes) is int else 0,
            self._pages.unreadable,
            len(identity) == 16 if type(identity) is bytes else True,
        )

    def pks(self, deep: bool) -> list[int]:
        found = set(self._rows)
        if deep:
            for table in ("runs", "names", "tags", "messages", "pruned", "bases"):
                found.update(self._deep.keys(table))
            found.update(id >> 31 for id in self._deep.keys("records"))
        return sorted(pk for pk in found if 0 < pk <= _MOST_RUNS)

    def alive(self, pk: int) -> bool:
        carver = self._deep
        if pk in self._rows or any(live for table in ("runs", "names") for live, _ in carver.rows(table, pk)):
            return True
        return any(live for id in carver.records(pk)[:50] for live, _ in carver.rows("records", id))

    def rows(self, pk: int, deep: bool) -> list[tuple[RunRow, bool]]:
        found = [(self._rows[pk], True)] if pk in self._rows else []
        if deep:
            found += [(values, live) for live, values in self._deep.rows("runs", pk) if GONE not in values]
        made: list[tuple[RunRow, bool]] = []
        for values, live in found:
            with suppress(Damaged):
                made.append((run_from(values), live))
        return made

    def names(self, pk: int) -> list[str]:
        rows = [values[1] for values in (self._rows.get(pk, ()), *self._carved("runs", pk)) if values]
        told = [name for values in self._carved("names", pk) for name in values if isinstance(name, str)]
        return list(dict.fromkeys(name for name in (*rows, *told) if isinstance(name, str)))

    def records(self, pk: int, run: str, deep: bool) -> dict[int, list[Record]]:
        found: dict[int, list[Record]] = {}
        candidates = self._range("records", pk << 31, pk << 31 | MAX_SEQ)
        if deep:
            candidates += [values for id in self._deep.records(pk) for values in self._carved("records", id)]
        for values in candidates:
            with suppress(Damaged):
                record = _record(run, values)
                if record not in found.setdefault(record.seq, []):
                    found[record.seq].append(record)
        return found

    def tags(self, pk: int, deep: bool) -> list[Tag]:
        carved = [(v[5], v[1], v[2], v[4], v[6]) for v in self._carved("tags", pk)] if deep else []
        return self._made(lambda values: tag_from("", values), [*self._all("tags", (pk,)), *carved])

    def tag_names(self, pk: int) -> list[tuple[str, int]]:
        return sorted({(name, number) for _, number, name in self._carved("tag_names", pk, live=True)})

    def messages(self, pk: int, deep: bool) -> list[Message]:
        carved = [(v[4], v[1], v[2], v[3], v[5], v[6]) for v in self._carved("messages", pk, live=True)] if deep else []
        return self._made(lambda values: message_from("", values), [*self._all("messages", (pk,)), *carved])

    def pruned(self, pk: int, deep: bool) -> list[Pruned]:
        carved = [values[1:] for values in self._carved("pruned", pk)] if deep else []
        return self._made(lambda values: pruned_from("", values), [*self._all("pruned", (pk,)), *carved])

    def bases(self, pk: int, deep: bool) -> list[Base]:
        carved = [(v[2], v[1], v[3], v[4], v[5]) for v in self._carved("bases", pk, live=True)] if deep else []
        return self._made(lambda values: base_from("", values), [*self._all("bases", (pk,)), *carved])

    def tombstones(self, deep: bool) -> list[Tombstone]:
        carved = [values for pk in self._deep.keys("tombstones") for values in self._carved("tombstones", pk)] if deep else []
        return self._made(tombstone_from, [*self._range("tombstones", 1, _MOST_RUNS), *carved])

    def chunk(self, family: bytes, digest: bytes) -> Iterator[bytes]:
        for (frame,) in self._all("chunk", (family, digest)):
            if type(frame) is bytes:
                yield frame
        for values in self._carved("chunks", digest):
            if type(values[3]) is bytes:
                yield values[3]

    def feed(self, deep: bool) -> Feed:
        for values in self._manifests(deep):
            blob, end = values[5:7]
            newest = proven(blob, end)
            if newest is not None:
                return self._feed(newest, end, deep)
        return Feed()

    def _feed(self, newest: list[Entry], end: int, deep: bool) -> Feed:
        """Return all parts from the newest back to the first one that is missing."""
        parts, first = [newest], end - length(newest) + 1
        while first > 1 and (part := self._part(first, deep)) is not None:
            parts.append(part)
            first -= length(part)
        entries = [entry for part in reversed(parts) for entry in part]
        return Feed(entries if first == 1 else None, end, {pk: seq + count - 1 for pk, seq, count in entries})

    def _part(self, following: int, deep: bool) -> list[Entry] | None:
        """Return the part of the feed that ends right before a position."""
        found = self._all("feed_before", (following,))
        before = max((first for first in self._deep.keys("feed") if first < following), default=0) if deep else 0
        found += self._carved("feed", before) if before else []
        for first, blob in found:
            entries = proven(blob, following - 1)
            if entries is not None and length(entries) == following - first:
                return entries
        return None

    def properties(self, deep: bool) -> dict[str, str]:
        return dict(
            self._made(
                lambda values: property_from(values, self._seal),
                [*self._all("properties"), *(self._carved("properties", 0, live=True) if deep else ())],
            )
        )

    def keys(self) -> dict[bytes, list[bytes]]:
        out: dict[bytes, list[bytes]] = {}
        live = self._all("keys")
        encrypted = live or ENCRYPTION in self.properties(False)
        carved = [values[1:] for values in self._carved("keys", 0, live=True)] if encrypted else []
        for family, wrapped in (*live, *carved):
            if isinstance(family, bytes) and isinstance(wrapped, bytes):
                out.setdefault(family, []).append(wrapped)
        return out

    def set_seal(self, seal: Seal) -> None:
        self._seal = seal

    def close(self) -> None:
        if self._cursor is not None:
            self._cursor.connection.close(True)
        self._pages.close()


def _record(run: str, values: Values) -> Record:
    """Make a record. If its body cannot be read, its digest is still known."""
    if GONE not in values:
        try:
            return record_from(run, values)
        except Damaged:
            if values[11] is not None or values[12] is not None:
                raise
    known = tuple(None if value is GONE else value for value in values[:11])
    return replace(record_from(run, (*known, ZERO, None)), body_digest=ZERO)

"""Reads from a store in SQLite, each in one snapshot. Relies on connections that only read; never waits for a writer.

A connection serves one thread at a time: there are as many connections as there were reads at the same time.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw

from everstep.backends import sql_files
from everstep.backends.contract.core import MAX_SEQ, Manifest
from everstep.backends.sqlite.agreement import REMEDY, Agreement, prove_tags
from everstep.backends.sqlite.errors import read_error
from everstep.backends.sqlite.files import parts
from everstep.backends.sqlite.rows import (  # fmt: skip
    base_from,
    message_from,
    newest_run,
    property_from,
    pruned_from,
    record_from,
    tag_from,
    tombstone_from,
    worker_from,
)
from everstep.errors import Damaged, DamagedRecord, DamagedRun, WrongSeal
from everstep.records import SEALED, Base, Message, Pruned, Record, RunRow, Seal, Tag, Tombstone, Worker, property_check, unkeyed

SQL = sql_files.load("sqlite", "read")
_BEGIN, _SCHEMA_VERSION, _READ_SCHEMA = SQL["begin"], SQL["schema_version"], SQL["read_schema"]
_FRESH = object()
_lost: list[apsw.Connection] = []


def in_order(run: str, records: list[Record], first: int, last: int) -> list[Record]:
    """Return records if each seq is greater than the one before and in range.

    In a damaged page a row may have any number, and a reader that continues from it would never end.
    """
    before = first - 1
    for record in records:
        if not before < record.seq <= last:
            raise DamagedRecord(run, record.seq, "it is not in the order of the numbers")
        before = record.seq
    return records


class Reader:
    """The read connections of one open store."""

    def __init__(self, connect: Callable[[], apsw.Connection], path: str, idle: list[apsw.Connection], seal: Seal = unkeyed) -> None:
        self._seal = seal
        self._connect = connect
        self._path = path
        self._idle = idle
        self._busy: set[apsw.Connection] = set()
        self._schemas: dict[apsw.Connection, Any] = dict.fromkeys(idle, _FRESH)
        self._closed = False
        self.agreement = Agreement()

    @contextmanager
    def snapshot(self) -> Iterator[apsw.Cursor]:
        """Yield a cursor inside one read transaction. A connection that failed is not used again."""
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = self._connect()
            self._schemas[connection] = _FRESH
        self._busy.add(connection)
        try:
            cursor = connection.cursor()
            cursor.execute(_BEGIN)
            if cursor.execute(_SCHEMA_VERSION).fetchone() != self._schemas.get(connection):
                self._catch_up(cursor)
            yield cursor
            cursor.execute(SQL["end"])
        except BaseException as error:
            self._busy.discard(connection)
            self._schemas.pop(connection, None)
            connection.close(True)
            raise read_error(error, self._path) from error
        self._busy.discard(connection)
        if self._closed:
            connection.close(True)
        else:
            self._idle.append(connection)

    def _catch_up(self, cursor: apsw.Cursor) -> None:
        """Let this connection find tables that were created since it last read. Ends in a snapshot with all tables of its manifest."""
        connection, version = cursor.connection, cursor.execute(_SCHEMA_VERSION).fetchone()
        if self._schemas.get(connection) is _FRESH:  # no statement was prepared yet
            # Tables may have been created since this connection was opened. Without this read, SQLite would not notice: it would look for
            # them in the attached empty database, whose schema is still the same.
            cursor.execute(_READ_SCHEMA).fetchall()
            self._schemas[connection] = version
            return
        while version != self._schemas.get(connection):
            cursor.execute(SQL["end"])
            parts.catch_up(connection)
            self._schemas[connection] = version
            cursor.execute(_BEGIN)
            version = cursor.execute(_SCHEMA_VERSION).fetchone()
        if parts.vanished(cursor):
            raise Damaged("the store is damaged: tables that its manifest names are missing", remedy=REMEDY)

    def run(self, run: str) -> RunRow | None:
        with self.snapshot() as cursor:
            values = cursor.execute(SQL["run"], (run,)).fetchone()
            if values is not None:
                return newest_run(values, run)
            self.agreement.prove_ids(cursor)
            return None

    def records(self, run: str, first: int, last: int, kinds: Sequence[str] | None, newest: int | None) -> list[Record]:
        with self.snapshot() as cursor:
            pk = find(cursor, run)
            if pk is None:
                return []
            low, high = pk << 31 | max(first, 0), pk << 31 | min(last, MAX_SEQ)
            if kinds is None and newest is None:
                return in_order(run, [record_from(run, values) for values in cursor.execute(SQL["records"], (low, high))], first, last)
            limit = -1 if newest is None else newest
            if kinds is None:
                found = cursor.execute(SQL["newest_records"], (low, high, limit))
            else:
                found = cursor.execute(SQL["records_of_kinds"], (low, high, json.dumps(list(kinds)), limit))
            records = [record_from(run, values) for values in found]
        records.reverse()
        return in_order(run, records, first, last)

    def chunks(self, family: bytes, digests: Sequence[bytes]) -> dict[bytes, bytes]:
        found: dict[bytes, bytes] = {}
        statement = SQL["chunk"]
        with self.snapshot() as cursor:
            for digest in digests:
                row = cursor.execute(statement, (family, digest)).fetchone()
                if row is not None:
                    found[digest] = _typed(row[0], bytes)
        return found

    def digests(self, run: str, seqs: Sequence[int]) -> dict[int, bytes]:
        found: dict[int, bytes] = {}
        with self.snapshot() as cursor:
            pk = find(cursor, run)
            if pk is None:
                return found
            for seq in seqs:
                row = cursor.execute(SQL["digest"], (pk << 31 | seq,)).fetchone()
                if row is not None:
                    found[seq] = _typed(row[0], bytes)
        return found

    def tags(self, run: str, first: int | None, last: int | None, name: str | None = None) -> list[Tag]:
        with self.snapshot() as cursor:
            pk = find(cursor, run)
            if pk is None:
                return []
            if name is not None:
                return _named(cursor, run, pk, name)
            prove_tags(cursor, run, pk)
            if first is None and last is None:
                return [tag_from(run, values) for values in cursor.execute(SQL["tags"], (pk,))]
            between = (pk, 0 if first is None else first, MAX_SEQ if last is None else last)
            return sorted((tag_from(run, values) for values in cursor.execute(SQL["tags_between"], between)), key=_by_name)

    def messages(self, run: str) -> list[Message]:
        with self.snapshot() as cursor:
            pk = find(cursor, run)
            self.agreement.prove_rows(cursor)
            found = [] if pk is None else [message_from(run, values) for values in cursor.execute(SQL["messages"], (pk,))]
            if pk is not None and not found:  # strayed ones are named by `verify`, which reads those of their new run
                self.agreement.prove_messages(cursor)
            return found

    def message_count(self, cursor: apsw.Cursor, run: str) -> int:
        """Return the number of messages of a run, in the snapshot of this cursor."""
        self.agreement.prove_messages(cursor)
        return sum(_typed(count, int) for (count,) in cursor.execute(SQL["message_count"], (run,)))

    def due(self, now: int, limit: int | None, outside: bool) -> list[str]:
        with self.snapshot() as cursor:
            self.agreement.prove_rows(cursor)
            return [_typed(name, str) for (name,) in cursor.execute(SQL["due"], (now, outside, -1 if limit is None else limit))]

    def workers(self) -> list[Worker]:
        """Return all workers that were not found dead, by the time at which they started."""
        with self.snapshot() as cursor:
            return sorted(map(worker_from, cursor.execute(SQL["workers"])), key=lambda worker: (worker.started_at, worker.id))

    def worker(self, id: str) -> Worker | None:
        with self.snapshot() as cursor:
            values = cursor.execute(SQL["worker"], (id,)).fetchone()
            return None if values is None else worker_from(values)

    def manifest(self) -> Manifest:
        with self.snapshot() as cursor:
            self.agreement.prove_rows(cursor)
            total, runs, last, created, writes = cursor.execute(SQL["manifest"]).fetchone() or (None,) * 5
        if last is not None:
            last = _typed(last, str)
        return Manifest(_typed(total, bytes), _typed(runs, int), last, _typed(created, int), _typed(writes, int))

    def stats(self) -> dict[str, int]:
        with self.snapshot() as cursor:
            runs = _numbers(cursor, "count_runs")
            records = _numbers(cursor, "count_records")
            chunks = _numbers(cursor, "count_chunks")
            messages = _numbers(cursor, "count_all_messages")
        files = (Path(self._path), Path(self._path + "-wal"))
        return {
            "runs": runs[0],
            "records": records[0],
            "chunks": chunks[0],
            "messages": messages[0],
            "record_bytes": records[1],
            "chunk_bytes": chunks[1],
            "file_bytes": sum(file.stat().st_size for file in files if file.exists()),
        }

    def families(self) -> list[bytes]:
        with self.snapshot() as cursor:
            return [_typed(family, bytes) for (family,) in cursor.execute(SQL["families"])]

    def chunk_sizes(self, family: bytes) -> dict[bytes, int]:
        with self.snapshot() as cursor:
            return {_typed(digest, bytes): _typed(size, int) for digest, size in cursor.execute(SQL["chunk_sizes"], (family,))}

    def pruned(self, run: str) -> Pruned | None:
        with self.snapshot() as cursor:
            pk = find(cursor, run)
            values = None if pk is None else cursor.execute(SQL["pruned"], (pk,)).fetchone()
            return None if values is None else pruned_from(run, values)

    def bases(self, run: str, upto: int | None) -> list[Base]:
        with self.snapshot() as cursor:
            pk = find(cursor, run)
            if pk is None:
                return []
            asked = ("bases", (pk,)) if upto is None else ("base_upto", (pk, upto))
            return [base_from(run, values) for values in cursor.execute(SQL[asked[0]], asked[1])]

    def tombstones(self, after: int, limit: int | None) -> list[Tombstone]:
        with self.snapshot() as cursor:
            return [tombstone_from(values) for values in cursor.execute(SQL["tombstones"], (after, -1 if limit is None else limit))]

    def properties(self, prefix: str) -> dict[str, str]:
        with self.snapshot() as cursor:
            self.agreement.prove_rows(cursor)
            return dict(property_from(values, self._seal) for values in cursor.execute(SQL["properties"], (prefix,)))

    def get_property(self, name: str) -> str | None:
        with self.snapshot() as cursor:
            self.agreement.prove_rows(cursor)
            found = cursor.execute(SQL["property"], (name,)).fetchone()
            return None if found is None else property_from(found, self._seal)[1]

    def set_seal(self, seal: Seal) -> None:
        """Prove properties with another seal from now on."""
        self._seal = seal

    def prove_seal(self) -> bool:
        """Refuse a store whose checks were made with another seal. False for a new store that must first be marked as keyed."""
        with self.snapshot() as cursor:
            found = cursor.execute(SQL["property"], (SEALED,)).fetchone()
            (_, writes) = cursor.execute(SQL["seen"]).fetchone() or (None, None)
        if found is None and (self._seal is unkeyed or writes == 0):
            return self._seal is unkeyed
        if found is None or found[2] != property_check(SEALED, str(found[1]), self._seal):
            raise WrongSeal(f"{self._path} must be opened with the key that it was created with, or without one if it had none")
        return True

    def abandon(self) -> bool:
        """Close idle connections in a forked child; return whether that was all of them. Those in use are kept until the process ends."""
        self.close()
        _lost.extend(self._busy)
        return not self._busy

    def close(self) -> None:
        self._closed = True
        while self._idle:
            self._idle.pop().close()
        self._schemas.clear()


def find(cursor: apsw.Cursor, run: str) -> int | None:
    """Return the pk of a run."""
    row = cursor.execute(SQL["pk"], (run,)).fetchone()
    return None if row is None else int(row[0])


def _named(cursor: apsw.Cursor, run: str, pk: int, name: str) -> list[Tag]:
    """Return the tags of a run with a name; both trees that hold them must have the same number."""
    found = [tag_from(run, values) for values in cursor.execute(SQL["tags_named"], (pk, name))]
    if cursor.execute(SQL["count_named"], (name, pk)).fetchone() != (len(found),):
        raise DamagedRun(f"the tags of run {run!r} are incomplete: a page of them is missing or older than the others", remedy=REMEDY)
    return found


def _by_name(tag: Tag) -> tuple[str, int]:
    return tag.name, tag.number


def _numbers(cursor: apsw.Cursor, name: str) -> list[int]:
    return [_typed(value, int) for value in cursor.execute(SQL[name]).fetchone() or ()]


def _typed(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise Damaged(f"the store is damaged: a value must be {kind.__name__}, got {type(value).__name__}")
    return value

"""Builds a store in PostgreSQL from verified rows. Relies on `format` for the tables.

All of it is one transaction: a killed process leaves nothing. Positions, digests and rows are kept exactly as given. Never writes
into a schema that has a table.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from typing import Any

import psycopg

from everstep.backends.columns import pack_ranges
from everstep.backends.contract.queues import Task, rebuilt_entry
from everstep.backends.contract.recovery import Entry
from everstep.backends.postgres.connections.connect import Address, execute
from everstep.backends.postgres.connections.errors import translated
from everstep.backends.postgres.format import begin_new
from everstep.backends.postgres.rows import Values, items_of, record_values, run_values
from everstep.clock import clock
from everstep.records import Base, Message, Pruned, Record, RunRow, Seal, Tag, Tombstone, property_check

_AT_ONCE = 1000


class PostgresBuilder:
    """A store that is being built."""

    def __init__(self, url: str) -> None:
        self._address = Address(url)
        self._sql = self._address.load("rebuild")
        self._total = self._runs = 0
        self._once: set[tuple[str, str]] = set()
        self._connection = self._address.connect(seconds=0)
        self._folder = tempfile.TemporaryDirectory(prefix="everstep-repair-")
        self.private = f"{self._folder.name}/copy"
        try:
            begin_new(self._connection, self._address)
        except psycopg.Error as error:
            self.abandon()
            raise translated(error, self._address.url) from error
        except BaseException:
            self.abandon()
            raise

    def _write(self, name: str, rows: Iterable[Sequence[Any]]) -> None:
        given = list(rows)
        try:
            for first in range(0, len(given), _AT_ONCE):
                self._connection.cursor().executemany(self._sql[name], given[first : first + _AT_ONCE])
        except (psycopg.Error, UnicodeEncodeError, OverflowError) as error:
            raise translated(error, self._address.url) from error

    def run(
        self, pk: int, row: RunRow, records: Sequence[Record], tags: Iterable[Tag], messages: Iterable[Message], mark: Pruned | None,
        bases: Iterable[Base], task: Task | None = None,
    ) -> None:  # fmt: skip
        tags, messages, bases = list(tags), list(messages), list(bases)
        marks = [mark] if mark is not None else []
        self._write("run", [(pk, *run_values(row))])
        self._write("record", ((pk, *record_values(record)) for record in records))
        self._write("tag", ((pk, tag.name, tag.number, tag.at, tag.key, tag.check) for tag in tags))
        self._write("message", ((pk, m.name, m.due, m.at, m.key, m.body, m.check) for m in messages))
        self._write("mark", (_mark(pk, m) for m in marks))
        self._write("base", ((pk, base.number, base.key, base.at, base.body, base.check) for base in bases))
        self._write("run_tag", ((tag, pk) for tag in row.tags))
        self._write("run_meta", ((item, pk) for item in items_of(row.meta)))
        found = None if task is None else rebuilt_entry(row, messages, task, self._once, clock.now_us())
        if found is not None:
            kept = found.task
            self._write("task", [(pk, kept.queue, kept.priority, kept.key, kept.dedupe, found.ready, found.worker)])
        self._runs += 1
        checks = [
            row.check,
            *(tag.check for tag in tags),
            *(m.check for m in messages),
            *(m.check for m in marks),
            *(b.check for b in bases),
        ]
        self._total += sum(map(int.from_bytes, checks))

    def chunk(self, family: bytes, digest: bytes, frame: bytes) -> None:
        self._write("chunk", [(family, digest, frame)])

    def tombstone(self, tombstone: Tombstone) -> None:
        t = tombstone
        self._write("tombstone", [(t.pk, t.id, t.key, t.family, t.created_at, t.at, t.head_seq, t.head_digest, t.checkpoints, t.check)])
        self._total += int.from_bytes(t.check)

    def add_property(self, name: str, value: str) -> None:
        check = property_check(name, value)
        self._write("property", [(name, value, check)])
        self._total += int.from_bytes(check)

    def add_key(self, family: bytes, wrapped: bytes) -> None:
        self._write("key", [(family, wrapped)])

    def set_seal(self, seal: Seal) -> None:
        return  # properties of such a store are not sealed with a key

    def finish(self, created: int, last: int | None, feed: Iterable[Entry]) -> None:
        position, rows = 0, []
        for run, seq, count in feed:
            position += count
            rows.append((position, run, seq, count))
        self._write("feed", rows)
        self._write("feed_end", [(position,)])
        self._write("created", [(created,)])
        self._write("manifest", [(self._total, self._runs, last)])
        try:
            execute(self._connection, self._sql["durably"])
            self._connection.commit()
        except psycopg.Error as error:
            raise translated(error, self._address.url) from error

    def abandon(self) -> None:
        """Undo everything that was built, unless it is finished: the server does that when the connection ends."""
        self._connection.close()
        self._folder.cleanup()


def _mark(pk: int, mark: Pruned) -> Values:
    return (pk, mark.key, pack_ranges(mark.ranges), mark.freed, mark.at, pack_ranges(mark.numbers), mark.check)

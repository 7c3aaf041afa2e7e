"""Builds a store in SQLite from verified rows. Relies on `files.format` for the tables.

It is built under another name, without a journal, then synced and linked to its own name when it is complete. A killed process leaves
a file that is never taken for a store, and that the next one removes. Positions, digests and rows are kept exactly as given.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

import apsw

from everstep.backends import sql_files
from everstep.backends.contract.query_semantics import meta_scalars
from everstep.backends.contract.queues import Task, rebuilt_entry
from everstep.backends.contract.recovery import Entry
from everstep.backends.sqlite.errors import write_error
from everstep.backends.sqlite.feed import FeedWriter
from everstep.backends.sqlite.files import format as sqlite_format
from everstep.backends.sqlite.files.create import discard, folder_error, link, remove_unfinished, unfinished
from everstep.backends.sqlite.files.leftovers import leftovers
from everstep.backends.sqlite.files.parts import PARTS
from everstep.backends.sqlite.rows import (
    Values,
    base_values,
    known_items,
    message_values,
    property_values,
    pruned_values,
    record_values,
    run_values,
    tombstone_values,
)
from everstep.clock import clock
from everstep.errors import InvalidArgument
from everstep.records import MODULUS, SEALED, Base, Kind, Message, Pruned, Record, RunRow, Seal, Tag, Tombstone, property_check, unkeyed
from everstep.system import sync, sync_folder, sync_parents

_SQL = sql_files.load("sqlite", "write")
_PARTS = {
    "add_chunk": PARTS["chunks"], "add_run_tag": PARTS["listing"], "add_run_meta": PARTS["listing"], "add_tag": PARTS["tags"],
    "add_message": PARTS["messages"], "add_feed": PARTS["feed"], "set_prune_mark": PARTS["pruned"], "add_base": PARTS["pruned"],
    "add_tombstone": PARTS["tombstones"], "add_checkpoint_meta": PARTS["finding"], "set_property": PARTS["properties"], "add_task": PARTS["queues"],
    "add_key": PARTS["keys"],
}  # fmt: skip


class SqliteBuilder:
    """A store file that is being built."""

    def __init__(self, target: str | os.PathLike[str], seal: Seal = unkeyed) -> None:
        self._seal = seal
        self.path = Path(os.path.realpath(target))
        self._refuse_taken()
        self._new = unfinished(self.path)
        self.private = str(self._new)
        self._total = self._runs = self._made = 0
        self._once: set[tuple[str, str]] = set()
        self._encrypted = False
        try:
            remove_unfinished(self.path)
            os.close(os.open(self._new, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        except OSError as error:
            raise folder_error(error, self.path) from error
        try:
            self._connection = apsw.Connection(str(self._new), flags=apsw.SQLITE_OPEN_READWRITE)
            sqlite_format.build(self._connection)
            self._connection.execute("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; BEGIN").fetchall()
        except apsw.Error as error:
            self.abandon()
            raise write_error(error, str(self.path)) from error

    def _refuse_taken(self) -> None:
        taken = [str(self.path)] if os.path.lexists(self.path) else leftovers(self.path)
        if taken:
            raise InvalidArgument(f"{taken[0]} already exists", remedy="Use a path where nothing exists: repair never overwrites anything.")

    def _write(self, name: str, rows: Iterable[Values]) -> None:
        rows = list(rows)
        if not rows:
            return
        try:
            part = _PARTS.get(name)
            if part is not None and not self._made & part.bit:
                self._made = sqlite_format.make(self._connection, part, self._made)
            self._connection.cursor().executemany(_SQL[name], rows)
        except apsw.Error as error:
            raise write_error(error, str(self.path)) from error

    def run(
        self, pk: int, row: RunRow, records: Sequence[Record], tags: Iterable[Tag], messages: Iterable[Message], mark: Pruned | None,
        bases: Iterable[Base], task: Task | None = None,
    ) -> None:  # fmt: skip
        seqs = {record.number: record.seq for record in records if record.kind == Kind.CHECKPOINT}
        tags, messages, bases = list(tags), list(messages), list(bases)
        for name in ("workflow", "session", "parent", "note"):
            if getattr(row, name) is not None and not self._made & PARTS[f"{name}s"].bit:
                self._made = sqlite_format.make(self._connection, PARTS[f"{name}s"], self._made)
        kinds = {record.kind for record in records}
        for name, indexed in (("attached", {Kind.ATTACHED.value}), ("gates", {Kind.GATE.value, Kind.ANSWER.value})):
            if kinds & indexed and not self._made & PARTS[name].bit:
                self._made = sqlite_format.make(self._connection, PARTS[name], self._made)
        self._write("create", [(pk, *run_values(row))])
        self._write("add_record", (record_values(pk, record) for record in records))
        metas = [record for record in records if record.meta is not None and record.kind == Kind.CHECKPOINT]
        self._write("add_checkpoint_meta", ((item, pk << 31 | record.seq) for record in metas for item in known_items(record.meta)))
        self._write("add_tag", ((pk, tag.name, tag.number, seqs[tag.number], tag.at, tag.key, tag.check) for tag in tags))
        self._write("add_message", (message_values(pk, message) for message in messages))
        self._write("set_prune_mark", [pruned_values(pk, mark)] if mark is not None else [])
        self._write("add_base", (base_values(pk, base) for base in bases))
        self._write("add_run_tag", ((tag, pk) for tag in row.tags))
        self._write("add_run_meta", ((key, value, pk) for key, value in meta_scalars(row.meta).items()))
        if task is not None:
            self._add_entry(pk, row, messages, task)
        self._runs += 1
        checks = [row.check, *(tag.check for tag in tags), *(message.check for message in messages), *(base.check for base in bases)]
        self._total += sum(map(int.from_bytes, [*checks, mark.check] if mark is not None else checks))

    def _add_entry(self, pk: int, row: RunRow, messages: Iterable[Message], task: Task) -> None:
        found = rebuilt_entry(row, messages, task, self._once, clock.now_us())
        if found is not None:
            kept = found.task
            self._write("add_task", [(pk, kept.queue, kept.priority, kept.key, kept.dedupe)])
            self._write("move_task", [(found.worker, found.ready, pk)])

    def chunk(self, family: bytes, digest: bytes, frame: bytes) -> None:
        self._write("add_chunk", [(family, digest, frame, 0)])

    def tombstone(self, tombstone: Tombstone) -> None:
        self._write("add_tombstone", [tombstone_values(tombstone)])
        self._total += int.from_bytes(tombstone.check)

    def add_property(self, name: str, value: str) -> None:
        self._write("set_property", [property_values(name, value, self._seal)])
        self._total += int.from_bytes(property_check(name, value, self._seal))

    def add_key(self, family: bytes, wrapped: bytes) -> None:
        self._write("add_key", [(family, wrapped)])

    def set_seal(self, seal: Seal) -> None:
        self._seal = seal
        self._encrypted = True
        if not self._made & PARTS["keys"].bit:
            self._made = sqlite_format.make(self._connection, PARTS["keys"], self._made)

    def finish(self, created: int, last: int | None, feed: Iterable[Entry]) -> None:
        if self._seal is not unkeyed and not self._encrypted:
            self.add_property(SEALED, "keyed")
        writer = FeedWriter()
        for entry in feed:
            writer.add(*entry)
        blob = writer.blob()  # leaves the last part open, in the manifest
        self._write("add_feed", writer.full)
        self._write("set_manifest", [((self._total % MODULUS).to_bytes(32), self._runs, created + 1, last, blob, writer.fed, 1)])
        try:
            self._connection.execute("COMMIT; PRAGMA synchronous = FULL; PRAGMA journal_mode = WAL").fetchall()
            self._connection.close()
        except apsw.Error as error:
            raise write_error(error, str(self.path)) from error
        self._publish()

    def _publish(self) -> None:
        try:
            sync_file(self._new)
            if not link(self._new, self.path):
                self._refuse_taken()
            sync_folder(self.path.parent)
            sync_parents(self.path.parent)
        except OSError as error:
            raise folder_error(error, self.path) from error

    def abandon(self) -> None:
        """Remove the temporary name and all files beside it; also after `finish`."""
        if hasattr(self, "_connection"):
            self._connection.close(True)
        discard(self._new)


def sync_file(path: Path) -> None:
    descriptor = os.open(path, os.O_RDWR)
    try:
        sync(descriptor)
    finally:
        os.close(descriptor)

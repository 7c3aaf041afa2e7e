"""Applies writes to the tables in one transaction: commits, tags, messages, leases, deletion. Relies on an open writer connection.

Many callers share a transaction (see `writer`). So every operation first executes the one statement that may be refused, and
writes nothing before it; a refusal leaves the others in the batch untouched. Records, chunks and the manifest
are collected and written once for the batch.

Values cached between transactions (the manifest, the end of the feed, how many messages a run has) are valid as long as
only this connection writes; SQLite's data_version shows that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import apsw

from everstep.backends import sql_files
from everstep.backends.columns import pack_tags
from everstep.backends.contract.core import MAX_SEQ, Commit, Committed
from everstep.backends.contract.query_semantics import meta_scalars
from everstep.backends.contract.queues import ENDED, Task, settled
from everstep.backends.contract.types import Cut
from everstep.backends.sqlite.errors import Halfway
from everstep.backends.sqlite.feed import FeedWriter
from everstep.backends.sqlite.files import format as sqlite_format
from everstep.backends.sqlite.files.format import FORMAT
from everstep.backends.sqlite.files.parts import (  # fmt: skip
    ATTACHED,
    CHUNKS,
    FEED,
    FINDING,
    GATES,
    KEYS,
    LISTING,
    MESSAGES,
    NOTES,
    PARENTS,
    PROPERTIES,
    PRUNED,
    QUEUES,
    SESSIONS,
    TAGS,
    TOMBSTONES,
    WORKFLOWS,
    Part,
)
from everstep.backends.sqlite.rows import (  # fmt: skip
    Values,
    base_values,
    known_items,
    message_values,
    meta_items,
    newest_run,
    pruned_values,
    record_values,
    run_values,
    tombstone_values,
)
from everstep.clock import clock
from everstep.errors import (
    AlreadyQueued,
    Conflict,
    Damaged,
    DamagedRun,
    EverstepError,
    LimitExceeded,
    LostLease,
    MissingKey,
    NewerFormat,
    NotFound,
    RunExists,
)
from everstep.records import MODULUS, Kind, Message, Record, RunRow, Seal, Tag, Tombstone, unkeyed
from everstep.seals import is_locked
from everstep.threads.guard import interrupts

_SQL = sql_files.load("sqlite", "write")
_READ = sql_files.load("sqlite", "read")
_BEGIN, _COMMIT, _ROLLBACK = _SQL["begin"], _SQL["commit"], _SQL["rollback"]
_MANIFEST, _SET_MANIFEST, _ADVANCE, _ADD_RECORD, _ADD_CHUNK = (
    _SQL[name] for name in ("manifest", "set_manifest", "advance", "add_record", "add_chunk")
)  # fmt: skip
_CHECKS = ((TAGS, "tag_checks"), (MESSAGES, "message_checks"), (PRUNED, "pruned_checks"))
_DROPS = ((TAGS, "drop_tags"), (MESSAGES, "drop_messages"), (QUEUES, "drop_task"), (PRUNED, "drop_prune_mark"), (PRUNED, "drop_bases"))
_QUEUE_READS = ("held_tasks", "held", "started", "top_priority", "candidates")
_NEEDS = {"property": PROPERTIES, "properties": PROPERTIES, "feed_between": FEED, **dict.fromkeys(_QUEUE_READS, QUEUES)}
_NONE_WAITING = Committed(0)
_INDEXED = {Kind.ATTACHED.value: ATTACHED, Kind.GATE.value: GATES, Kind.ANSWER.value: GATES}
_KNOWN_RUNS = 10_000
_MAX_RUNS = 1 << 32


class Transaction:
    """The writer connection with the rows that are collected for the running batch."""

    def __init__(self, connection: apsw.Connection, seal: Seal = unkeyed) -> None:
        self.connection = connection
        self.seal = seal
        self._cursor = connection.cursor()
        self._execute = self._cursor.execute
        self._changes = connection.changes
        self._connection_version = connection.data_version
        self._version: int | None = None
        self._pks: dict[str, int] = {}
        self._messages: dict[int, int] = {}
        self._feed = FeedWriter()
        self._records: list[Values] = []
        self._chunks: list[Values] = []
        self._total = self._delta = self._runs = self._next = self.writes = self._made = 0
        self._last: int | None = None
        self.touched = False

    def begin(self) -> None:
        self._execute(_BEGIN)
        self._delta = 0
        self.touched = False
        if self._connection_version() != self._version:
            self._read_manifest()

    def _read_manifest(self) -> None:
        """Read the manifest again after another process wrote or the last batch was rolled back: the cached one is stale."""
        (version,) = self._execute(_SQL["format"]).fetchone() or (None,)
        if version != FORMAT:
            raise NewerFormat(f"another process brought the store to format {version}; this version of Everstep writes format {FORMAT}")
        found: Any = self._execute(_MANIFEST).fetchone() or (None,) * 8
        total, self._runs, self._next, self._last, feed, fed, self.writes, self._made = found
        numbers = (self._runs, self._next, self.writes, self._made)
        if type(total) is not bytes or any(type(n) is not int for n in numbers) or not 0 < self._next < _MAX_RUNS:
            raise Damaged("the manifest of the store is damaged: nothing is written to it")
        self._total = int.from_bytes(total)
        if self._made & KEYS.bit:
            self.leave_no_copies()
            if self.seal is unkeyed or is_locked(self.seal):
                raise MissingKey("the store is encrypted, and it was opened here without a key")
        self._feed.load(feed, fed)
        self._messages.clear()

    def need(self, part: Part) -> None:
        """Create a part of the tables, unless it exists."""
        if not self._made & part.bit:
            self._made = sqlite_format.make(self.connection, part, self._made)

    def has(self, part: Part) -> bool:
        """Return whether a part of the tables was created. A part that was not is empty."""
        return bool(self._made & part.bit)

    def flush(self) -> None:
        """Write the collected rows; only COMMIT remains."""
        records, chunks = self._records, self._chunks
        if len(records) == 1:
            self._execute(_ADD_RECORD, records[0])
            records.clear()
        elif records:
            self._cursor.executemany(_ADD_RECORD, records)
            records.clear()
        if chunks:
            self.need(CHUNKS)
            self._cursor.executemany(_ADD_CHUNK, chunks)
            chunks.clear()
        if self.touched:
            self.writes += 1
            self._total = (self._total + self._delta) % MODULUS
            feed = self._feed
            if feed.full:
                self.need(FEED)
                self._cursor.executemany(_SQL["add_feed"], feed.full)
                feed.full.clear()
            values = (self._total.to_bytes(32), self._runs, self._next, self._last, feed.blob(), feed.fed, self.writes)
            self._execute(_SET_MANIFEST, values)

    def commit(self) -> None:
        self._execute(_COMMIT)
        self._version = self._connection_version()

    def rollback(self) -> None:
        self._version = None
        self._records.clear()
        self._chunks.clear()
        self._pks.clear()
        if self.connection.in_transaction:
            self._execute(_ROLLBACK)

    def apply_all(self, commits: Sequence[Commit]) -> Committed:
        """Apply commits of several runs. If one is refused after another was applied, the whole transaction is rolled back."""
        found: list[int] = []
        for commit in commits:
            try:
                found.append(self.apply(commit).waiting)
            except EverstepError as refusal:
                if not found or interrupts(refusal):
                    raise
                raise Halfway(refusal) from refusal
        return Committed(found[0], tuple(found[1:]))

    def apply(self, commit: Commit) -> Committed:
        """Apply one commit of one run: move its head if it is still where the writer saw it, or create the run."""
        run, was = commit.run, commit.was
        if run.head_seq > MAX_SEQ:
            raise LimitExceeded(f"run {run.id!r} has {MAX_SEQ} records, the maximum")
        if was is None:
            self._refuse_twin(commit.task)
            pk = self._create(run)
            if commit.family_key is not None:
                self._execute(_SQL["add_key"], (run.family, commit.family_key))
            self._delta += int.from_bytes(run.check)
        else:
            pk = self._pks.get(run.id) or self._find(run.id)
            fence = (pk, was.epoch, was.head_seq, was.check)
            head = (run.updated_at, run.head_seq, run.head_digest, run.checkpoints, run.stored, run.check)
            if _only_head_differs(run, was):
                self._execute(_ADVANCE, head + fence)
            else:
                self._index(run)
                self._execute(_SQL["rewrite"], head + _rest(run) + fence)
            if self._changes() != 1:
                self._refuse(run.id, was)
            if run.tags != was.tags or run.meta != was.meta:
                self._label(pk, was.tags, was.meta, run.tags, run.meta)
            self._delta += int.from_bytes(run.check) - int.from_bytes(was.check)
        self._last = pk
        self.touched = True
        self._gather(pk, commit)
        if commit.read or commit.messages or commit.task is not None or (was is not None and _may_move(run, was)):
            self.settle(pk, run)
        waiting = self._messages.get(pk)
        if waiting is None:
            waiting = self._count_messages(pk)
        return Committed(waiting) if waiting else _NONE_WAITING

    def _gather(self, pk: int, commit: Commit) -> None:
        """Collect the rows of a commit besides its run row."""
        records = commit.records
        if records:
            self._feed.add(pk, records[0].seq, len(records))
        for record in records:
            self._records.append(record_values(pk, record))
            if record.meta is not None and record.kind == Kind.CHECKPOINT:
                self._find_by_meta(pk, record)
            if record.tags and record.kind == Kind.CHECKPOINT:
                self._tag_record(pk, commit.run, record)
            elif record.kind in _INDEXED:
                self.need(_INDEXED[record.kind])
        if commit.chunks:
            self._add_chunks(commit.run.family, commit.chunks)
        if commit.read or commit.messages:
            self._exchange_messages(pk, commit)
        if commit.task is not None:
            self._add_task(pk, commit.task)

    def has_run(self, run: str) -> bool:
        """Return whether there is a run with that id."""
        return self._execute(_SQL["pk"], (run,)).fetchone() is not None

    def _add_chunks(self, family: bytes, chunks: Sequence[tuple[bytes, bytes]]) -> None:
        stamp = self.writes + 1
        self._chunks += [(family, digest, frame, stamp) for digest, frame in chunks]

    def _refuse_twin(self, task: Task | None) -> None:
        if task is not None and task.dedupe is not None and self.has(QUEUES):
            found = self._execute(_READ["twin"], (task.queue, task.dedupe)).fetchone()
            if found is not None:
                raise AlreadyQueued(task.queue, task.dedupe, str(found[0]))

    def _add_task(self, pk: int, task: Task) -> None:
        self.need(QUEUES)
        self._execute(_SQL["add_task"], (pk, task.queue, task.priority, task.key, task.dedupe))

    def settle(self, pk: int, row: RunRow) -> None:
        """Update the queue entry of a run after a change of the run, its messages or its lease."""
        found: Any = self._execute(_READ["task_queue"], (pk,)).fetchone() if self.has(QUEUES) else None
        if found is None:
            return
        messages: list[Any] = self._execute(_READ["message_times"], (pk,)).fetchall() if self.has(MESSAGES) else []
        gone, ready = settled(row, messages, clock.now_us())
        if gone is None:
            self._execute(_SQL["move_task"], (row.worker, ready, pk))
        else:
            self._execute(_SQL["drop_task"], (pk,))
            self.tick(found[0], ended=gone == ENDED, failed=gone != ENDED)

    def tick(self, queue: str, claimed: int = 0, ended: int = 0, failed: int = 0, deaths: int = 0) -> None:
        """Count the activity of a queue."""
        self.need(QUEUES)
        self._execute(_SQL["tick"], (queue, clock.now_us() // 60_000_000, claimed, int(ended), int(failed), deaths))

    def _create(self, run: RunRow) -> int:
        pk = self._next
        if (
            run.parent is not None
            and run.family != run.key
            and self._execute(_SQL["is_family"], (run.parent, run.family)).fetchone() is None
        ):
            raise NotFound(f"run {run.parent!r} was deleted meanwhile: it can no longer be forked")
        self._index(run)
        self._execute(_SQL["create"], (pk, *run_values(run)))
        if self._changes() != 1:
            raise RunExists.of(run.id)
        self._next += 1
        self._runs += 1
        self._remember(run.id, pk)
        self._messages[pk] = 0
        self._label(pk, (), None, run.tags, run.meta)
        return pk

    def _index(self, run: RunRow) -> None:
        """Create the indexes that list a run by the fields that it has."""
        for value, part in ((run.workflow, WORKFLOWS), (run.session, SESSIONS), (run.parent, PARENTS), (run.note, NOTES)):
            if value is not None and not self._made & part.bit:
                self.need(part)

    def _refuse(self, name: str, was: RunRow) -> None:
        self._pks.pop(name, None)
        stored = self._execute(_SQL["fence"], (name,)).fetchone()
        if stored is None:
            raise LostLease(f"run {name!r} was deleted while this writer had it open")
        if stored[1] != was.epoch:
            raise LostLease(f"run {name!r} was taken over: epoch {was.epoch} is now {stored[1]}")
        raise Conflict(f"run {name!r} has changed: this write follows record {was.head_seq}, the head is {stored[2]}")

    def _find(self, name: str) -> int:
        """Return the pk of a run. It never changes and is never reused, so it can be cached."""
        found = self._execute(_SQL["pk"], (name,)).fetchone()
        if found is None:
            raise LostLease(f"run {name!r} was deleted while this writer had it open")
        pk: int = found[0]
        self._remember(name, pk)
        return pk

    def _remember(self, name: str, pk: int) -> None:
        if len(self._pks) >= _KNOWN_RUNS:
            self._pks.clear()
            self._messages.clear()
        self._pks[name] = pk

    def _label(self, pk: int, old_tags: tuple[str, ...], old_meta: str | None, tags: tuple[str, ...], meta: str | None) -> None:
        """Keep the listing tables consistent with a row."""
        if not (old_tags or old_meta or tags or meta):
            return
        self.need(LISTING)
        for tag in set(old_tags) - set(tags):
            self._execute(_SQL["drop_run_tag"], (tag, pk))
        for tag in set(tags) - set(old_tags):
            self._execute(_SQL["add_run_tag"], (tag, pk))
        if meta == old_meta:
            return
        before, after = set(meta_scalars(old_meta).items()), set(meta_scalars(meta).items())
        for key, value in before - after:
            self._execute(_SQL["drop_run_meta"], (key, value, pk))
        for key, value in after - before:
            self._execute(_SQL["add_run_meta"], (key, value, pk))

    def _find_by_meta(self, pk: int, record: Record) -> None:
        self.need(FINDING)
        for item in meta_items(record.meta):
            self._execute(_SQL["add_checkpoint_meta"], (item, pk << 31 | record.seq))

    def _forget_meta(self, low: int, high: int) -> None:
        """Have the checkpoints in a range of ids found by their metadata no more."""
        if self.has(FINDING):
            for place, meta in self._execute(_SQL["metas"], (low, high)).fetchall():
                for item in known_items(meta):
                    self._execute(_SQL["drop_checkpoint_meta"], (item, place))

    def _tag_record(self, pk: int, run: RunRow, record: Record) -> None:
        for name in record.tags:
            self.add_tag(pk, record.seq, Tag.make(run.key, name, record.number, record.at, self.seal))

    def add_tag(self, pk: int, seq: int, tag: Tag) -> None:
        self.need(TAGS)
        self._execute(_SQL["add_tag"], (pk, tag.name, tag.number, seq, tag.at, tag.key, tag.check))
        if self._changes() == 1:
            self._delta += int.from_bytes(tag.check)
            self.touched = True

    def add_message(self, pk: int, message: Message) -> bool:
        self.need(MESSAGES)
        self._execute(_SQL["add_message"], message_values(pk, message))
        if self._changes() != 1:
            return False
        self._messages.pop(pk, None)
        self._delta += int.from_bytes(message.check)
        self.touched = True
        return True

    def _exchange_messages(self, pk: int, commit: Commit) -> None:
        for name in commit.read:
            self._take_message(pk, name)
        for message in commit.messages:
            self.add_message(pk, message)

    def _take_message(self, pk: int, name: str) -> None:
        taken: list[Any] = self._execute(_SQL["take_message"], (pk, name)).fetchall() if self.has(MESSAGES) else []
        for (check,) in taken:
            self._messages.pop(pk, None)
            self._delta -= _number(check)

    def _count_messages(self, pk: int) -> int:
        """Return how many messages a run has. Cached, so that a loop of commits reads it once."""
        (count,) = (self._execute(_SQL["count_messages"], (pk,)).fetchone() or (0,)) if self.has(MESSAGES) else (0,)
        if len(self._messages) >= _KNOWN_RUNS:
            self._messages.clear()
        self._messages[pk] = count
        return count

    def existing(self, name: str) -> tuple[int, RunRow]:
        """Return a run as it is in this transaction, verified by its own digest: damage must not be sealed again."""
        values = self._execute(_READ["run"], (name,)).fetchone()
        if values is None:
            raise NotFound(f"there is no run {name!r}")
        row = newest_run(values, name)
        if row.digest(self.seal) != row.check:
            raise DamagedRun(f"the row of run {name!r} does not match its digest")
        return values[0], row

    def lease(self, pk: int, before: RunRow, after: RunRow) -> None:
        self._execute(_SQL["lease"], (after.epoch, after.worker, after.since, after.check, pk, before.check))
        self._delta += int.from_bytes(after.check) - int.from_bytes(before.check)
        self.touched = True
        self.settle(pk, after)

    def remove(self, pk: int, row: RunRow) -> None:
        """Remove a run with all its rows, and its family's chunks if no run of the family is left."""
        self._write_gathered()
        checks = [check for part, name in _CHECKS if self.has(part) for (check,) in self._execute(_SQL[name], (pk,))]
        self._delta -= sum(_number(check) for check in (row.check, *checks))
        self._label(pk, row.tags, row.meta, (), None)
        for part, name in _DROPS:
            if self.has(part):
                self._execute(_SQL[name], (pk,))
        self._messages.pop(pk, None)
        self._forget_meta(pk << 31, pk << 31 | MAX_SEQ)
        self._execute(_SQL["drop_records"], (pk << 31, pk << 31 | MAX_SEQ))
        self._execute(_SQL["drop_run"], (pk,))
        self.need(TOMBSTONES)
        tombstone = Tombstone.of(pk, row, clock.now_us(), self.seal)
        self._execute(_SQL["add_tombstone"], tombstone_values(tombstone))
        self._delta += int.from_bytes(tombstone.check)
        self._runs -= 1
        self._last = None if self._last == pk else self._last
        self.touched = True
        if self.has(CHUNKS) and self._execute(_SQL["family_lives"], (row.family,)).fetchone() is None:
            self._execute(_SQL["drop_family"], (row.family,))
        if self.has(KEYS) and self._execute(_SQL["family_lives"], (row.family,)).fetchone() is None:
            self._execute(_SQL["destroy_key"], (row.family,))

    def prune(self, cut: Cut) -> None:
        """Drop bodies of a run, unless another process pruned it meanwhile."""
        pk, row = self.existing(cut.run)
        if row.key != cut.now.key:
            raise NotFound(f"run {cut.run!r} cannot be pruned: it was deleted, and another run has its id now")
        (stored,) = (self._execute(_SQL["prune_mark"], (pk,)).fetchone() if self.has(PRUNED) else None) or (None,)
        if stored != (cut.was.check if cut.was is not None else None):
            raise Conflict(f"another process has pruned run {cut.run!r} meanwhile")
        self._write_gathered()
        self.need(PRUNED)
        self._add_chunks(row.family, cut.chunks)
        for number in (*cut.gone, *(base.number for base in cut.bases)):
            self._delta -= sum(_number(check) for (check,) in self._execute(_SQL["take_base"], (pk, number)).fetchall())
        for base in cut.bases:
            self._execute(_SQL["add_base"], base_values(pk, base))
            self._delta += int.from_bytes(base.check)
        self._drop_bodies(pk, cut.bodies)
        self._drop_labels(pk, cut.labels)
        self._execute(_SQL["set_prune_mark"], pruned_values(pk, cut.now))
        self._delta += int.from_bytes(cut.now.check) - (_number(stored) if stored is not None else 0)
        self.touched = True

    def _drop_labels(self, pk: int, labels: Sequence[tuple[int, bytes | None]]) -> None:
        """Drop note, tags and metadata of checkpoints, and everything that finds them by these."""
        for seq, digest in labels:
            place = pk << 31 | seq
            self._forget_meta(place, place)
            for (number,) in self._execute(_SQL["drop_labels"], (digest, place)).fetchall():
                if self.has(TAGS):
                    gone: list[Any] = self._execute(_SQL["drop_tags_of"], (pk, number)).fetchall()
                    self._delta -= sum(_number(check) for (check,) in gone)

    def _drop_bodies(self, pk: int, bodies: Sequence[tuple[int, bytes]]) -> None:
        """Delete the records and insert them without bodies: after an update, each page would stay as large as it was."""
        short: list[Values] = []
        for seq, digest in bodies:
            found: list[Values] = self._execute(_SQL["take_record"], (pk << 31 | seq,)).fetchall()
            short += [(*values, digest, None) for values in found]
        self._cursor.executemany(_ADD_RECORD, sorted(short))

    def forget(self, first: int, last: int, before: int) -> list[int]:
        """Drop the tombstones between two positions that are older than a time; return their positions."""
        gone: list[Values] = self._execute(_SQL["take_tombstones"], (first, last, before)).fetchall() if self.has(TOMBSTONES) else []
        self._delta -= sum(_number(check) for _, check in gone)
        self.touched = self.touched or bool(gone)
        return [pk for pk, _ in gone]

    def replace_feed(self, firsts: Sequence[int], parts: Sequence[tuple[int, bytes]]) -> None:
        """Replace some parts of the feed with others."""
        self._cursor.executemany(_SQL["drop_feed"], [(first,) for first in firsts])
        self._cursor.executemany(_SQL["add_feed"], parts)
        self.touched = True

    def set_property(self, name: str, values: Values | None) -> None:
        """Set a property, or remove it."""
        self.need(PROPERTIES)
        forgotten: list[Any] = self._execute(_SQL["take_property"], (name,)).fetchall()
        self._delta -= sum(_number(check) for (check,) in forgotten)
        if values is not None:
            self._execute(_SQL["set_property"], values)
            self._delta += int.from_bytes(values[2])
        self.touched = True

    def sweep(self, asked: tuple[bytes, Sequence[bytes], int]) -> int:
        """Remove unreachable chunks; return their bytes."""
        family, digests, stamp = asked
        self._write_gathered()
        freed = 0
        for digest in digests if self.has(CHUNKS) else ():
            gone: list[Any] = self._execute(_SQL["sweep"], (family, digest, stamp)).fetchall()
            freed += sum(size for (size,) in gone)
        return freed

    def _write_gathered(self) -> None:
        """Write the rows of earlier members of the batch, before an operation reads the tables."""
        touched, self.touched = self.touched, False
        self.flush()
        self.touched = touched

    def statement(self, name: str, values: Values = ()) -> None:
        """Execute one of the named statements, for operations in other modules."""
        self._execute(_SQL[name], values)

    def change(self, name: str, values: Values) -> int:
        """Execute one of the named statements; return how many rows it changed."""
        self._execute(_SQL[name], values)
        self.touched = True
        return self._changes()

    def leave_no_copies(self) -> None:
        """Have SQLite overwrite what it moves inside of a page: no copy of a wrapped key may stay."""
        self._execute("PRAGMA secure_delete = FAST").fetchall()

    @property
    def created(self) -> bool:
        """Whether a run was ever created."""
        return self._next > 1

    def rows(self, name: str, values: Values = ()) -> list[Any]:
        """Return the rows of a named read, as this transaction sees them; none if their table was not created."""
        if name in _NEEDS and not self.has(_NEEDS[name]):
            return []
        return self.reading()(_READ[name], values).fetchall()

    def reading(self) -> Callable[..., apsw.Cursor]:
        """Return a function that executes reads as this transaction sees them: everything collected so far is written first."""
        self._write_gathered()
        return self._execute


def _number(check: Any) -> int:
    """Return a stored check as a number. A wrong type is not an error of ours: that would keep the operation's writes in the batch."""
    if type(check) is not bytes:
        raise apsw.CorruptError("a check is not a blob")
    return int.from_bytes(check)


def _may_move(run: RunRow, was: RunRow) -> bool:
    """Return whether a queue entry may have to change."""
    return run.status != was.status or run.worker != was.worker


def _only_head_differs(run: RunRow, was: RunRow) -> bool:
    return (
        run.status == was.status
        and run.epoch == was.epoch
        and run.worker == was.worker
        and run.since == was.since
        and run.note == was.note
        and run.meta == was.meta
        and run.tags == was.tags
        and run.workflow == was.workflow
        and run.session == was.session
    )


def _rest(run: RunRow) -> Values:
    return (run.workflow, run.session, pack_tags(run.tags), run.note, run.meta, run.status, run.epoch, run.worker, run.since)

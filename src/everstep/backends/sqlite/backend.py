"""A store in one SQLite file, for one machine and any number of processes. The default backend.

    files             the file and those beside it: creating, opening, migrating; paths, the WAL, forks of the process, rolled-back copies
    writer            group commit; `transaction` applies a commit to the tables
    feed              the order of all commits, for the event stream
    upkeep            pruning, sweeping, returning space
    health            SQLite's own check, a census, figures about the file and its folder
    agreement         checks that rows are the newest versions
    queues            claiming runs, waiting runs, noticing changes
    leases            which worker may write a run; OS locks that reveal a death at once
    reader, listing, gather   reads
    rows, errors      convert rows and errors of SQLite to ours
    recovery          reading a damaged store, and building a new one

Needs a local file system. One handle belongs to one process: in a forked child, every call is refused.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from typing import Any
from weakref import finalize

import apsw

from everstep.backends.contract.core import Commit, Committed, Done, Located, Manifest, Query
from everstep.backends.contract.queues import Claim, Claimed, Depth, QueueEntry, Task
from everstep.backends.contract.types import Census, Cut, Gathered
from everstep.backends.group_commit import Request
from everstep.backends.sqlite import health as sqlite_health
from everstep.backends.sqlite import keys, upkeep
from everstep.backends.sqlite import queues as sqlite_queues
from everstep.backends.sqlite.feed import feed_end, read_feed
from everstep.backends.sqlite.files import os_fork
from everstep.backends.sqlite.files.store_file import BUSY_MS, SqliteFile, quoted, whole_number
from everstep.backends.sqlite.files.wal import GROW_BYTES, WalKeeper
from everstep.backends.sqlite.leases import Leases, WorkerLocks
from everstep.backends.sqlite.listing import (
    find_checkpoint,
    find_checkpoints,
    list_attached,
    list_checkpoints,
    list_gates,
    list_runs,
    list_unanswered,
    locate,
)
from everstep.backends.sqlite.reader import Reader
from everstep.backends.sqlite.transaction import Transaction
from everstep.backends.sqlite.writer import Writer
from everstep.clock import clock
from everstep.codec.frame import Framer
from everstep.errors import MissingKey, NotFound, StoreClosed
from everstep.records import SEALED, Base, Framing, Message, Pruned, Record, RunRow, Seal, Tag, Tombstone, Worker, unkeyed
from everstep.threads.guard import inside, refuse_inside


class SqliteBackend:
    """An open store in a SQLite file."""

    durable = True

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        create: bool = True,
        busy_ms: int = BUSY_MS,
        wal_bytes: int = GROW_BYTES,
        accept_older: bool = False,
        seal: Seal = unkeyed,
    ) -> None:
        most_wal = whole_number("wal_bytes", wal_bytes, 2**40)
        self.seal = seal
        self.framer: Framing = Framer()
        self._file = SqliteFile(path, create, busy_ms, accept_older)
        self.url = f"sqlite:///{quoted(self._file.path)}"
        self._reader = Reader(self._file.reader, self._file.path, self._file.readers(), seal)
        self._writer = Writer(self._connect_writer, self._file.path, self._file.rollback_guard.note, seal, self._file.watch.check)
        self._wal = WalKeeper(self._writer, self._file.writer, self._file.wal, self._file.rollback_guard.merged, most_wal)
        self._locks = WorkerLocks(self._file.path + "-locks")
        if self._file.read_only is None:
            self._locks.clean()
        self._leases = Leases(self._locks)
        self._queues = sqlite_queues.Queues(self._leases)
        self._bells: list[sqlite_queues.Bell] = []
        self._closed = False
        self._forked = False
        self._encrypted = False
        self._rests = False
        self._spare_wal = finalize(self, self._file.spare_foreign_wal)  # also for a store that was never closed
        os_fork.register(self)
        self._prove_seal()

    def _connect_writer(self) -> apsw.Connection:
        connection = self._file.writer()
        self._wal.watch(connection)
        seen = upkeep.seen(connection)
        self._file.watch.learn()
        self._file.rollback_guard.begin(*seen)
        return connection

    def _prove_seal(self) -> None:
        """Refuse a store that has another seal; mark a new store that has a keyed one."""
        try:
            self._encrypted = keys.header(self._reader) is not None
            if not self._encrypted and not self._reader.prove_seal():
                self._writer.call(upkeep.set_property, (SEALED, "keyed"))
        except BaseException:
            self.close()
            raise

    def _check_open(self) -> None:
        if self._forked:
            raise StoreClosed(
                f"the store {self._file.path} was opened before this process was forked",
                remedy="Open the store again in the child process.",
            )
        if self._closed:
            raise StoreClosed(f"the store {self._file.path} is closed")

    def commit(self, commit: Commit, *others: Commit) -> Committed:
        if self._closed:
            self._check_open()
        done: Committed = self._writer.perform(
            Request(Transaction.apply_all, (commit, *others)) if others else Request(Transaction.apply, commit)
        )
        return done

    def submit(self, commit: Commit, done: Done) -> None:
        if self._closed:
            self._check_open()
        self._writer.submit(Transaction.apply, commit, done)

    def run(self, run: str) -> RunRow | None:
        self._check_open()
        return self._reader.run(run)

    def runs(self, query: Query) -> list[tuple[int, RunRow]]:
        self._check_open()
        with self._reader.snapshot() as cursor:
            return list_runs(cursor, query)

    def records(self, run: str, first: int, last: int, kinds: Sequence[str] | None = None, newest: int | None = None) -> list[Record]:
        self._check_open()
        return self._reader.records(run, first, last, kinds, newest)

    def locate(self, run: str, number: int, upto: int | None = None) -> Located | None:
        self._check_open()
        with self._reader.snapshot() as cursor:
            found = find_checkpoint(cursor, run, number, upto)
            return found if found is None or not upto else found._replace(waiting=self._reader.message_count(cursor, run))

    def checkpoints(self, run: str, query: Query) -> list[Record]:
        self._check_open()
        with self._reader.snapshot() as cursor:
            return list_checkpoints(cursor, run, query)

    def gates(self, run: str) -> list[Record]:
        self._check_open()
        with self._reader.snapshot() as cursor:
            return list_gates(cursor, run, self._reader.agreement)

    def unanswered(self, workflow: str | None = None, after: int = 0, limit: int | None = None) -> list[tuple[int, Record]]:
        self._check_open()
        with self._reader.snapshot() as cursor:
            return list_unanswered(cursor, workflow, after, limit)

    def attached(self, run: str, address: str = "") -> list[Record]:
        self._check_open()
        with self._reader.snapshot() as cursor:
            return list_attached(cursor, run, address, self._reader.agreement)

    def chunks(self, family: bytes, digests: Sequence[bytes]) -> dict[bytes, bytes]:
        self._check_open()
        return self._reader.chunks(family, digests)

    def digests(self, run: str, seqs: Sequence[int]) -> dict[int, bytes]:
        self._check_open()
        return self._reader.digests(run, seqs)

    def tags(self, run: str, first: int | None = None, last: int | None = None, name: str | None = None) -> list[Tag]:
        self._check_open()
        return self._reader.tags(run, first, last, name)

    def find(
        self, tags: Sequence[str], meta: dict[str, Any], after: int | None = None, limit: int | None = None
    ) -> list[tuple[int, Record]]:
        self._check_open()
        with self._reader.snapshot() as cursor:
            return find_checkpoints(cursor, tags, meta, after, limit, self._reader.agreement)

    def tag(self, tag: Tag, run: str) -> None:
        self._check_open()
        self._writer.call(_tag, (tag, run))

    def post(self, message: Message, run: str) -> bool:
        self._check_open()
        new: bool = self._writer.call(_post, (message, run))
        return new

    def messages(self, run: str) -> list[Message]:
        self._check_open()
        return self._reader.messages(run)

    def due(self, now: int, limit: int | None = None, outside: bool = False) -> list[str]:
        self._check_open()
        return self._reader.due(now, limit, outside)

    def feed(self, after: int, limit: int) -> list[tuple[int, Record]]:
        self._check_open()
        with self._reader.snapshot() as cursor:
            return read_feed(cursor, after, limit)

    def feed_end(self) -> int:
        self._check_open()
        with self._reader.snapshot() as cursor:
            return feed_end(cursor)

    def acquire(self, run: str, worker: Worker) -> RunRow:
        self._check_open()
        row: RunRow = self._writer.call(self._leases.acquire, (run, worker))
        return row

    def introduce(self, worker: Worker) -> None:
        self._check_open()
        self._writer.call(self._leases.introduce, worker)

    def holder(self, row: RunRow) -> Worker | None:
        self._check_open()
        found = self._reader.worker(row.worker) if row.worker is not None else None
        return found if found is not None and self._locks.alive(found, os.uname().nodename) else None

    def living(self) -> list[Worker]:
        self._check_open()
        host = os.uname().nodename
        return [worker for worker in self._reader.workers() if self._locks.alive(worker, host)]

    def release(self, row: RunRow) -> None:
        self._check_open()
        self._writer.call(self._leases.release, row)

    def renew(self, worker: Worker) -> None:
        self._check_open()
        self._writer.call(self._leases.renew, worker)

    def delete(self, row: RunRow) -> None:
        self._check_open()
        self._writer.call(self._leases.delete, row)
        if self._encrypted:
            self._wal.forget()  # no copy of a destroyed key may stay

    def delete_many(self, rows: Sequence[RunRow]) -> set[bytes]:
        self._check_open()
        gone: set[bytes] = self._writer.call(self._leases.delete_many, rows)
        if self._encrypted:
            self._wal.forget()  # no copy of a destroyed key may stay
        return gone

    def manifest(self) -> Manifest:
        self._check_open()
        return self._reader.manifest()

    def stats(self) -> dict[str, int]:
        self._check_open()
        return self._reader.stats()

    def check(self, stop: Callable[[], bool] | None = None) -> list[str] | None:
        self._check_open()
        with self._reader.snapshot() as cursor:
            return sqlite_health.check(cursor, stop)

    def census(self) -> Census:
        self._check_open()
        with self._reader.snapshot() as cursor:
            return sqlite_health.census(cursor)

    def health(self) -> dict[str, object]:
        self._check_open()
        with self._reader.snapshot() as cursor:
            return sqlite_health.health(cursor, self._file)

    def pruned(self, run: str) -> Pruned | None:
        self._check_open()
        return self._reader.pruned(run)

    def bases(self, run: str, upto: int | None = None) -> list[Base]:
        self._check_open()
        return self._reader.bases(run, upto)

    def prune(self, cut: Cut) -> None:
        self._check_open()
        self._writer.call(Transaction.prune, cut)

    def gather(self, page: Sequence[tuple[int, RunRow]], heads: bool) -> Gathered:
        self._check_open()
        if not heads:
            return Gathered()
        from everstep.backends.sqlite import gather as sqlite_gather

        with self._reader.snapshot() as cursor:
            return sqlite_gather.heads(cursor, page)

    def families(self) -> list[bytes]:
        self._check_open()
        return self._reader.families()

    def chunk_sizes(self, family: bytes) -> dict[bytes, int]:
        self._check_open()
        return self._reader.chunk_sizes(family)

    def sweep(self, family: bytes, digests: Sequence[bytes], stamp: int) -> int:
        self._check_open()
        freed: int = self._writer.call(Transaction.sweep, (family, digests, stamp))
        return freed

    def shrink(self, most: int) -> int:
        self._check_open()
        given: int = self._writer.call(upkeep.shrink, most)
        if not given:
            self._wal.merge()
        return given

    def compact(self) -> int:
        self._check_open()
        return upkeep.compact(self._file, self._wal)

    def tombstones(self, after: int = 0, limit: int | None = None) -> list[Tombstone]:
        self._check_open()
        return self._reader.tombstones(after, limit)

    def trim_feed(self, after: int, most: int) -> int:
        self._check_open()
        gone: int = self._writer.call(upkeep.trim_feed, (after, most))
        return gone

    def forget(self, block: int, before: int) -> int:
        self._check_open()
        gone: int = self._writer.call(upkeep.forget, (block, before))
        return gone

    @property
    def header(self) -> str | None:
        """The property `encryption`; None if the store is not encrypted."""
        self._check_open()
        return keys.header(self._reader)

    def encrypt(self, header: str) -> str | None:
        self._check_open()
        with suppress(MissingKey):  # another process was first
            self._writer.call(keys.encrypt, header)
        self._encrypted = self.header is not None
        return self.header

    def set_seal(self, seal: Seal) -> None:
        self.seal = seal
        self._reader.set_seal(seal)
        self._writer.set_seal(seal)

    def family_keys(self, families: Sequence[bytes]) -> dict[bytes, bytes]:
        self._check_open()
        return keys.family_keys(self._reader, families)

    def key_page(self, after: bytes = b"", limit: int = 1000) -> list[tuple[bytes, bytes]]:
        self._check_open()
        return keys.key_page(self._reader, after, limit)

    def replace_keys(self, changes: Sequence[tuple[bytes, bytes, bytes]]) -> int:
        self._check_open()
        return int(self._writer.call(keys.replace_keys, changes))

    def replace_header(self, old: str, new: str) -> bool:
        self._check_open()
        replaced = bool(self._writer.call(keys.replace_header, (old, new)))
        self._wal.forget()  # here and not for each batch of keys: it waits for readers
        return replaced

    def get_property(self, name: str) -> str | None:
        self._check_open()
        return self._reader.get_property(name)

    def properties(self, prefix: str = "") -> dict[str, str]:
        self._check_open()
        return self._reader.properties(prefix)

    def set_property(self, name: str, value: str | None) -> None:
        self._check_open()
        self._writer.call(upkeep.set_property, (name, value))

    def create(self, commits: Sequence[Commit], known: Sequence[str] = ()) -> list[bool]:
        self._check_open()
        new: list[bool] = self._writer.call(sqlite_queues.create, (commits, frozenset(known)))
        return new

    def claim(self, claim: Claim) -> list[Claimed]:
        """Look for ready runs without writing first: workers ask often, and mostly there is none."""
        self._check_open()
        ready = sqlite_queues.next_ready(self._reader, claim.queues)
        if not claim.most or ready is None or ready > clock.now_us():
            return []
        taken: list[Claimed] = self._writer.call(self._queues.claim, claim)
        return taken

    def free(self, known_dead: Sequence[str] = ()) -> int:
        self._check_open()
        host = os.uname().nodename
        dead = sqlite_queues.dead_holders(self._reader, lambda worker: worker.id not in known_dead and self._locks.alive(worker, host))
        freed: int = self._writer.call(self._queues.free, dead) if dead else 0
        return freed

    def queue_entry(self, run: str) -> QueueEntry | None:
        self._check_open()
        return sqlite_queues.queue_entry(self._reader, run)

    def held_by(self, worker: str) -> list[str]:
        self._check_open()
        return sqlite_queues.held_by(self._reader, worker)

    def queue_entries(self, queue: str | None = None, limit: int | None = None) -> list[QueueEntry]:
        self._check_open()
        return sqlite_queues.queue_entries(self._reader, queue, limit)

    def twin(self, task: Task) -> str | None:
        self._check_open()
        return sqlite_queues.twin(self._reader, task)

    def next_ready(self, queues: Sequence[str]) -> int | None:
        self._check_open()
        return sqlite_queues.next_ready(self._reader, queues)

    def depths(self, minutes: int = 5) -> list[Depth]:
        self._check_open()
        return sqlite_queues.depths(self._reader, minutes)

    def bell(self, ring: Callable[[], None]) -> Callable[[], None]:
        self._check_open()
        bell = sqlite_queues.Bell(self._file.reader(), ring)
        self._bells.append(bell)
        return bell.stop

    def close(self) -> None:
        if self._closed:
            return
        refuse_inside()
        self._closed = True
        # In reverse order, each even if another one fails. The writer's connection is closed last: if no other process has the store open,
        # SQLite then merges and removes the WAL.
        with ExitStack() as closing:
            closing.callback(self._file.release)
            for part in (self._file.rollback_guard, self._locks, self._writer, self._reader, self._wal):
                closing.callback(part.close)
            for bell in self._bells:
                closing.callback(bell.stop)
            closing.callback(self._spare_wal)

    def rest(self) -> None:
        """Pause before a fork; see `files.os_fork`. A thread that forks during its own save can't wait for it: the child undoes it."""
        self._rests = not inside()
        if self._rests:
            self._wal.rest()
            self._writer.rest()

    def resume(self) -> None:
        if self._rests:
            self._writer.resume()
            self._wal.resume()

    def abandon(self) -> str | None:
        if self._closed:
            return None
        self._closed = self._forked = True
        self._wal.abandon()
        self._writer.abandon()
        self._locks.abandon()
        self._file.rollback_guard.close()
        return None if self._reader.abandon() else self._file.path


def _tag(transaction: Transaction, asked: tuple[Tag, str]) -> None:
    tag, run = asked
    pk, row = transaction.existing(run)
    seq = locate(transaction.reading(), pk, row.head_seq, tag.number)
    if seq is None:
        raise NotFound(f"run {run!r} has no checkpoint {tag.number}")
    transaction.add_tag(pk, seq, tag)


def _post(transaction: Transaction, asked: tuple[Message, str]) -> bool:
    message, run = asked
    pk, row = transaction.existing(run)
    if row.key != message.key:
        raise NotFound(f"the message {message.name!r} is for a deleted run {run!r}; another run has its id now")
    if not transaction.add_message(pk, message):
        return False
    if row.worker is None:  # otherwise the holder reads the message; if it has died, the entry is or becomes ready anyway
        transaction.settle(pk, row)
    return True

"""A store in a PostgreSQL database, for any number of machines.

    format            the tables, and how they are created; each write is one call of sql/functions.sql, in one round trip
    connections       the address, timeouts, the encoding; connections shared by reads; connections for users' functions; errors
    writer            group commit, and retries after a lost connection; `commit` and `fast_commit` make the call
    leases            which worker may write a run, by the server's clock
    queues            claiming runs, waiting runs, noticing changes
    listing, gather   lists by any filter; pages of runs for verify, gc and clean-up
    feed              the records of all runs in the order of their commits
    user_transaction  users' transactions that end with the commit of a step
    upkeep, deletion  pruning, sweeping, deleting, and figures about the store
    rows              convert rows of PostgreSQL to ours
    recovery          reading a damaged store, and building a new one

Works through a pooler that gives each transaction another session. One handle belongs to one process: in a forked child, every call is
refused.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakSet

from everstep.backends.contract.core import MAX_SEQ, Commit, Committed, Done, Located, Manifest, Query
from everstep.backends.contract.queues import Claim, Claimed, Depth, QueueEntry, Task
from everstep.backends.contract.types import Census, Cut, Gathered
from everstep.backends.group_commit import Request
from everstep.backends.postgres import feed as feeds
from everstep.backends.postgres import gather as gathering
from everstep.backends.postgres import keys, queues, upkeep
from everstep.backends.postgres.commit import commit_all
from everstep.backends.postgres.connections.connect import Address, Connection, Rows, execute
from everstep.backends.postgres.connections.guarded import Lender
from everstep.backends.postgres.connections.readers import Readers
from everstep.backends.postgres.deletion import Deletion, forget
from everstep.backends.postgres.format import BUCKETS, prepare_within
from everstep.backends.postgres.leases import Leases, living
from everstep.backends.postgres.listing import find_checkpoints, list_checkpoints, list_runs
from everstep.backends.postgres.rows import newest_run, property_from, pruned_from, record_from
from everstep.backends.postgres.user_transaction import PostgresTransaction
from everstep.backends.postgres.writer import Writer
from everstep.codec.frame import Framer
from everstep.errors import NotFound, StoreClosed
from everstep.records import Base, Framing, Message, Pruned, Record, RunRow, Seal, Tag, Tombstone, Worker, unkeyed
from everstep.seals import ServerSeal

_LAST = 2**63 - 1


class PostgresBackend:
    """An open store in a PostgreSQL database."""

    durable = True

    def __init__(
        self,
        url: str,
        schema: str | None = None,
        *,
        namespace: str | None = None,
        create: bool = True,
        patience: float | None = None,
        wait: bool = False,
    ) -> None:
        self._address = Address(url, schema, namespace, patience)
        patience = self._address.patience
        self.url = self._address.url
        self.framer: Framing = Framer()
        self.seal: Seal = unkeyed  # the server also computes checks of rows: sql/queues.sql
        self._readers = Readers(self._address, patience, prepare_within(self._address, create, patience if wait else 0.0))
        self._writer = Writer(self._address, os.urandom(1)[0] % BUCKETS, patience)
        self._claims = Writer(
            self._address, (self._writer.bucket + 1) % BUCKETS, patience
        )  # separate, so that commits do not wait while a worker claims runs
        self._leases = Leases(self._readers.sql, self._writer.sql, self._writer.bucket)
        self._lender = Lender(self._address)
        self._patience = patience
        self._stamps = upkeep.Stamps()
        self._bells: list[queues.Bell] = []
        self._closed = False
        self._forked = False
        _stores.add(self)

    def _check_open(self) -> None:
        if self._forked:
            raise StoreClosed(
                f"the store {self.url} was opened before this process was forked", remedy="Open the store again in the child process."
            )
        if self._closed:
            raise StoreClosed(f"the store {self.url} is closed")

    def _rows(self, name: str, *values: object) -> Rows:
        self._check_open()
        return self._readers.rows(name, *values)

    def commit(self, commit: Commit, *others: Commit) -> Committed:
        self._check_open()
        done: Committed
        if others:
            sql, bucket, commits = self._writer.sql, self._writer.bucket, (commit, *others)
            done = self._writer.call(lambda connection, again: commit_all(connection, sql, bucket, commits, again))
        else:
            done = self._writer.perform(Request(None, commit))
        return done

    def submit(self, commit: Commit, done: Done) -> None:
        self._check_open()
        self._writer.submit(commit, done)

    def transaction(self) -> PostgresTransaction:
        self._check_open()
        return PostgresTransaction(self._lender, self._writer.sql, lambda: self._writer.call(lambda *_: None), self._patience)

    def run(self, run: str) -> RunRow | None:
        found = self._rows("run", run)
        return newest_run(found[0]) if found else None

    def runs(self, query: Query) -> list[tuple[int, RunRow]]:
        self._check_open()
        return list_runs(self._readers, self._address.schema, query)

    def records(self, run: str, first: int, last: int, kinds: Sequence[str] | None = None, newest: int | None = None) -> list[Record]:
        asked = None if kinds is None else list(kinds)
        found = self._rows("records", run, max(first, 0), min(last, MAX_SEQ), asked, asked, newest)
        return [record_from(run, row) for row in reversed(found)]

    def locate(self, run: str, number: int, upto: int | None = None) -> Located | None:
        """Use at most two round trips. If a prune happens between them, the load notices it and calls this again."""
        self._check_open()
        asked = [("locate", (run, number)), ("pruned", (run,)), ("bases", (run, number, 1)), *([("message_count", (run,))] if upto else [])]
        rows, marks, bases, *counts = self._readers.together(*asked)
        if not rows or rows[0][0] is None:
            return None
        mark, added = pruned_from(run, marks[0]) if marks else None, Base(*bases[0]) if bases else None
        found = Located(rows[0][0], rows[0][1] or 0, mark, added, waiting=counts[0][0][0] if counts else None)
        return found if upto is None else found._replace(records=self.records(run, found.first, found.last(upto)))

    def checkpoints(self, run: str, query: Query) -> list[Record]:
        self._check_open()
        return list_checkpoints(self._readers, self._address.schema, run, query)

    def gates(self, run: str) -> list[Record]:
        return [record_from(run, row) for row in self._rows("gates", run)]

    def unanswered(self, workflow: str | None = None, after: int = 0, limit: int | None = None) -> list[tuple[int, Record]]:
        found = self._rows("unanswered", after, after, workflow, workflow, limit)
        return [(row[0], record_from(row[1], row[2:])) for row in found]

    def attached(self, run: str, address: str = "") -> list[Record]:
        return [record_from(run, row) for row in self._rows("attached", run, address, address + "\U0010ffff")]

    def digests(self, run: str, seqs: Sequence[int]) -> dict[int, bytes]:
        return dict(self._rows("digests", run, list(seqs)))

    def chunks(self, family: bytes, digests: Sequence[bytes]) -> dict[bytes, bytes]:
        return dict(self._rows("chunks", family, list(digests)))

    def find(
        self, tags: Sequence[str], meta: dict[str, Any], after: int | None = None, limit: int | None = None
    ) -> list[tuple[int, Record]]:
        self._check_open()
        return find_checkpoints(self._readers, self._address.schema, tags, meta, after, limit)

    def tags(self, run: str, first: int | None = None, last: int | None = None, name: str | None = None) -> list[Tag]:
        found = self._rows("tags", run, 0 if first is None else first, _LAST if last is None else last, name, name)
        return [Tag(*row) for row in found]

    def tag(self, tag: Tag, run: str) -> None:
        values = (self._writer.bucket, run, tag.key, tag.name, tag.number, tag.at, tag.check)
        code = self._write(lambda connection, _: execute(connection, self._writer.sql["tag"], values)[0][0])
        if code == 2:
            raise NotFound(f"there is no run {run!r}")
        if code == 4:
            raise NotFound(f"run {run!r} has no checkpoint {tag.number}")

    def _write(self, operation: Callable[[Connection, bool], object]) -> object:
        self._check_open()
        return self._writer.call(operation)

    def post(self, message: Message, run: str) -> bool:
        values = (run, message.key, message.name, message.due, message.at, message.body, message.check)
        sql, bucket = self._writer.sql["post"], self._writer.bucket
        code = self._write(lambda connection, again: execute(connection, sql, (bucket, again, *values))[0][0])
        if code == 2:
            raise NotFound(f"there is no run {run!r}")
        if code == 3:
            raise NotFound(f"the message {message.name!r} is for a deleted run {run!r}; another run has its id now")
        return code == 0

    def messages(self, run: str) -> list[Message]:
        return [Message(*row) for row in self._rows("messages", run)]

    def due(self, now: int, limit: int | None = None, outside: bool = False) -> list[str]:
        return [str(name) for (name,) in self._rows("due", now, outside, limit)]

    def feed(self, after: int, limit: int) -> list[tuple[int, Record]]:
        self._check_open()
        feeds.settle(self._readers)
        return feeds.read(self._readers, max(after, 0), limit)

    def feed_end(self) -> int:
        self._check_open()
        feeds.settle(self._readers)
        return feeds.end(self._readers)

    def acquire(self, run: str, worker: Worker) -> RunRow:
        row = self._write(lambda connection, again: self._leases.acquire(connection, run, worker, again))
        assert isinstance(row, RunRow)
        return row

    def introduce(self, worker: Worker) -> None:
        self._write(lambda connection, _: self._leases.introduce(connection, worker))

    def holder(self, row: RunRow) -> Worker | None:
        found = self._rows("holder", row.worker) if row.worker is not None else []
        return living(found[0]) if found else None

    def living(self) -> list[Worker]:
        return [worker for row in self._rows("workers") if (worker := living(row)) is not None]

    def release(self, row: RunRow) -> None:
        self._write(lambda connection, _: self._leases.release(connection, row))

    def renew(self, worker: Worker) -> None:
        self._write(lambda connection, _: self._leases.renew(connection, worker))

    def delete(self, row: RunRow) -> None:
        self._write(lambda connection, again: self._leases.delete(connection, row, again))

    def delete_many(self, rows: Sequence[RunRow]) -> set[bytes]:
        self._check_open()
        deletion = Deletion(self._claims.sql, self._claims.bucket, rows)
        return deletion.keys if not rows else self._claims.call(deletion.do)  # separate, so that commits do not wait for it

    def trim_feed(self, after: int, most: int) -> int:
        self._check_open()
        values = (after, after + most)
        ((gone,),) = self._claims.call(lambda connection, _: execute(connection, self._claims.sql["drop_feed"], values))
        return int(gone)

    def manifest(self) -> Manifest:
        self._check_open()
        return upkeep.manifest(self._readers, self._stamps)

    def stats(self) -> dict[str, int]:
        ((*counts,),) = self._rows("stats")
        names = ("runs", "records", "chunks", "messages", "record_bytes", "chunk_bytes")
        return {**dict(zip(names, counts, strict=True)), "file_bytes": self._size()}

    def _size(self) -> int:
        ((size,),) = self._readers.rows("size", self._address.schema)
        return int(size)

    def check(self, stop: Callable[[], bool] | None = None) -> list[str] | None:
        self._check_open()
        return upkeep.check(self._readers, stop)

    def census(self) -> Census:
        self._check_open()
        return upkeep.census(self._readers)

    def health(self) -> dict[str, object]:
        self._check_open()
        return upkeep.health(self._readers, self._address)

    def pruned(self, run: str) -> Pruned | None:
        found = self._rows("pruned", run)
        return pruned_from(run, found[0]) if found else None

    def bases(self, run: str, upto: int | None = None) -> list[Base]:
        found = self._rows("bases", run, *((_LAST, None) if upto is None else (upto, 1)))
        return [Base(*row) for row in reversed(found)]

    def prune(self, cut: Cut) -> None:
        sql, bucket = self._writer.sql["prune"], self._writer.bucket

        def mark() -> bytes | None:
            found = self._readers.rows("pruned", cut.run)
            return found[0][-1] if found else None

        self._write(lambda connection, again: upkeep.prune(connection, sql, bucket, cut, again, mark))

    def gather(self, page: Sequence[tuple[int, RunRow]], heads: bool) -> Gathered:
        self._check_open()
        return gathering.gather(self._readers, page, heads)

    def families(self) -> list[bytes]:
        return [family for (family,) in self._rows("families")]

    def chunk_sizes(self, family: bytes) -> dict[bytes, int]:
        return dict(self._rows("chunk_sizes", family))

    def sweep(self, family: bytes, digests: Sequence[bytes], stamp: int) -> int:
        """Remove chunks. A stamp is valid for the handle whose manifest it came from, and for others while nothing was written since."""
        self._check_open()
        if self._stamps.at(stamp) is None:
            self.manifest()
        buckets = self._stamps.at(stamp)
        if buckets is None:
            return 0
        values = (family, list(digests), buckets)
        ((freed,),) = self._writer.call(lambda connection, _: execute(connection, self._writer.sql["sweep"], values))
        return int(freed)

    def shrink(self, most: int) -> int:  # the server's autovacuum does that
        self._check_open()
        return 0

    def compact(self) -> int:
        self._check_open()
        return upkeep.compact(self._address, self._size)

    def tombstones(self, after: int = 0, limit: int | None = None) -> list[Tombstone]:
        return [Tombstone(*row) for row in self._rows("tombstones", after, limit)]

    def forget(self, block: int, before: int) -> int:
        self._check_open()
        sql, bucket = self._writer.sql, self._writer.bucket
        gone: int = self._writer.call(lambda connection, _: forget(connection, sql, bucket, block, before))
        return gone

    @property
    def header(self) -> str | None:
        """The property `encryption`; None if the store is not encrypted."""
        self._check_open()
        return keys.header(self._readers)

    def encrypt(self, header: str) -> str | None:
        self._check_open()
        sql, bucket = self._writer.sql, self._writer.bucket
        self._writer.call(lambda connection, again: keys.encrypt(connection, sql, bucket, header))
        return self.header

    def set_seal(self, seal: Seal) -> None:
        self.seal = ServerSeal(seal)

    def family_keys(self, families: Sequence[bytes]) -> dict[bytes, bytes]:
        return {bytes(family): bytes(wrapped) for family, wrapped in self._rows("family_keys", list(families))}

    def key_page(self, after: bytes = b"", limit: int = 1000) -> list[tuple[bytes, bytes]]:
        return [(bytes(family), bytes(wrapped)) for family, wrapped in self._rows("key_page", after, limit)]

    def replace_keys(self, changes: Sequence[tuple[bytes, bytes, bytes]]) -> int:
        self._check_open()
        sql = self._writer.sql
        replaced: int = self._writer.call(lambda connection, again: keys.replace_keys(connection, sql, changes))
        return replaced

    def replace_header(self, old: str, new: str) -> bool:
        self._check_open()
        sql, bucket = self._writer.sql, self._writer.bucket
        replaced: bool = self._writer.call(lambda connection, again: keys.replace_header(connection, sql, bucket, old, new))
        return replaced

    def get_property(self, name: str) -> str | None:
        found = self._rows("property", name)
        return property_from(found[0])[1] if found else None

    def properties(self, prefix: str = "") -> dict[str, str]:
        return dict(map(property_from, self._rows("properties", prefix)))

    def set_property(self, name: str, value: str | None) -> None:
        sql, bucket = self._writer.sql["set_property"], self._writer.bucket
        self._write(lambda connection, _: upkeep.set_property(connection, sql, bucket, name, value))

    def create(self, commits: Sequence[Commit], known: Sequence[str] = ()) -> list[bool]:
        self._check_open()
        sql, bucket = self._writer.sql, self._writer.bucket
        new: list[bool] = self._writer.call(lambda connection, again: queues.create(connection, sql, bucket, commits, known, again))
        return new

    def claim(self, claim: Claim) -> list[Claimed]:
        self._check_open()
        sql, bucket = self._claims.sql["claim"], self._claims.bucket
        if not claim.most:
            return []
        self._leases.own(claim.worker)
        taken: list[Claimed] = self._claims.call(lambda connection, _: queues.claim(connection, sql, bucket, claim))
        return taken

    def free(self, known_dead: Sequence[str] = ()) -> int:
        self._check_open()
        dead = [*known_dead, *queues.dead_here(self._readers)]
        if not dead and self._readers.rows("abandoned") == [(False,)]:
            return 0
        values = (self._claims.bucket, dead)
        freed: int = self._claims.call(lambda connection, _: execute(connection, self._claims.sql["free"], values)[0][0])
        return freed

    def queue_entry(self, run: str) -> QueueEntry | None:
        found = self._rows("queue_entry", run)
        return queues.entry_from(found[0]) if found else None

    def held_by(self, worker: str) -> list[str]:
        return [str(run) for (run,) in self._rows("held_by", worker)]

    def queue_entries(self, queue: str | None = None, limit: int | None = None) -> list[QueueEntry]:
        return [queues.entry_from(row) for row in self._rows("queue_entries", queue, queue, limit)]

    def twin(self, task: Task) -> str | None:
        found = self._rows("twin", task.queue, task.dedupe)
        return str(found[0][0]) if found else None

    def next_ready(self, names: Sequence[str]) -> int | None:
        self._check_open()
        return queues.next_ready(self._readers, names)

    def depths(self, minutes: int = 5) -> list[Depth]:
        self._check_open()
        return queues.depths(self._readers, minutes)

    def order_sql(self) -> str | None:
        return self._readers.sql["order"].decode()

    def orders(self, limit: int) -> list[tuple[int, str, bytes, bytes]]:
        return [(number, run, body, digest) for number, run, body, digest in self._rows("orders", limit)]

    def drop_orders(self, numbers: Sequence[int]) -> None:
        sql, asked = self._writer.sql["drop_orders"], (list(numbers),)
        self._write(lambda connection, _: execute(connection, sql, asked))

    def bell(self, ring: Callable[[], None]) -> Callable[[], None]:
        self._check_open()
        bell = queues.Bell(self._address, ring)
        self._bells.append(bell)
        return bell.stop

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        for bell in self._bells:
            bell.stop()
        self._claims.close()
        self._writer.close_after(lambda connection, _: self._leases.forget(connection))
        self._readers.close()
        self._lender.close()

    def abandon(self) -> None:
        """Forget the connections in a forked child: they are the parent's. The driver does not close those that another process made."""
        self._closed = self._forked = True


_stores: WeakSet[PostgresBackend] = WeakSet()


def _in_child() -> None:
    for store in list(_stores):
        store.abandon()


os.register_at_fork(after_in_child=_in_child)

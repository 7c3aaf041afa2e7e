"""Queues of a store in SQLite: claiming runs, freeing the runs of dead workers, counting waiting runs, noticing changes.

Relies on the tables `tasks`, `starts` and `ticks`. Claiming is a write transaction like any other, so limits apply to all processes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import apsw

from everstep.backends.contract.core import Commit
from everstep.backends.contract.queues import LIMITS, Claim, Claimed, Depth, Limits, QueueEntry, Room, Task, gather
from everstep.backends.sqlite.leases import Leases
from everstep.backends.sqlite.reader import SQL, Reader
from everstep.backends.sqlite.rows import property_from, worker_from
from everstep.backends.sqlite.transaction import Transaction
from everstep.clock import clock
from everstep.errors import AlreadyQueued, Damaged, LeaseHeld, RunExists
from everstep.records import Worker
from everstep.threads.wakeup import Wakeup

_MINUTE = 60_000_000
_DAY = 24 * 60
_HIGHEST = 1 << 62
_PAGE = 64
_LOOK_SECONDS = 0.01


class Queues:
    """The queue operations; each runs inside a write transaction."""

    def __init__(self, leases: Leases) -> None:
        self._leases = leases
        self._swept = 0

    def claim(self, transaction: Transaction, claim: Claim) -> list[Claimed]:
        taken: list[Claimed] = []
        for queue in dict.fromkeys(claim.queues):
            if len(taken) < claim.most:
                taken += self._claim(transaction, claim, queue, claim.most - len(taken))
        return taken

    def _claim(self, transaction: Transaction, claim: Claim, queue: str, most: int) -> list[Claimed]:
        now = clock.now_us()
        room = _room(transaction, queue, now)
        taken: list[Claimed] = []
        for key, deaths, run, workflow, _, _ in _candidates(transaction, queue, now):
            if len(taken) == most or room.full:
                break
            if workflow in claim.workflows and run not in claim.without and room.takes(key):
                found = self._take(transaction, run, queue, claim.worker, deaths)
                if found is None:
                    continue
                taken.append(found)
                if found.row is not None:
                    room.take(key)
                    self._note(transaction, queue, room.limits, now)
        return taken

    def _take(self, transaction: Transaction, run: str, queue: str, worker: Worker, deaths: int) -> Claimed | None:
        try:
            _, before = transaction.existing(run)
            return Claimed(run, queue, self._leases.acquire(transaction, (run, worker)), before.worker, deaths)
        except Damaged:
            return Claimed(run, queue, None, None, deaths)
        except LeaseHeld:
            return None

    def _note(self, transaction: Transaction, queue: str, limits: Limits, now: int) -> None:
        transaction.tick(queue, claimed=1)
        if limits.rate is not None:
            transaction.statement("drop_starts", (queue, now - limits.period))
            transaction.statement("add_start", (queue, now))
        minute = now // _MINUTE
        if minute > self._swept:
            self._swept = minute
            transaction.statement("drop_ticks", (minute - _DAY,))

    def free(self, transaction: Transaction, dead: Sequence[str]) -> int:
        now, freed = clock.now_us(), 0
        for pk, worker, queue, head_seq in transaction.rows("held_tasks"):
            if worker in dead:
                transaction.statement("free_task", (now, head_seq, pk))
                transaction.tick(queue, deaths=1)
                freed += 1
        return freed


def create(transaction: Transaction, asked: tuple[Sequence[Commit], frozenset[str]]) -> list[bool]:
    """Create runs, all or none. Other writers share the transaction, so the whole is refused only before the first write."""
    commits, known = asked
    for commit in commits:
        if commit.run.id not in known and transaction.has_run(commit.run.id):
            raise RunExists.of(commit.run.id)
    return [_is_created(transaction, commit) for commit in commits]


def _is_created(transaction: Transaction, commit: Commit) -> bool:
    try:
        transaction.apply(commit)
    except (AlreadyQueued, RunExists):
        return False
    return True


def _room(transaction: Transaction, queue: str, now: int) -> Room:
    found = transaction.rows("property", (LIMITS + queue,))
    limits = Limits.parse(property_from(found[0], transaction.seal)[1] if found else None)
    if limits.none:
        return Room(limits, 0, {}, 0)
    held = dict(transaction.rows("held", (queue,)))
    started = transaction.rows("started", (queue, now - limits.period))[0][0] if limits.rate is not None else 0
    return Room(limits, sum(held.values()), {key: count for key, count in held.items() if key is not None}, started)


def _candidates(transaction: Transaction, queue: str, now: int) -> Iterator[Any]:
    """Yield ready runs, priority by priority, without reading entries that become ready later."""
    priority = _HIGHEST
    while True:
        ((priority,),) = transaction.rows("top_priority", (queue, priority))
        if priority is None:
            return
        yield from _ready(transaction, queue, priority, now)


def _ready(transaction: Transaction, queue: str, priority: int, now: int) -> Iterator[Any]:
    """Yield the ready runs of one priority, a few at a time: a claim costs the same however many are waiting."""
    last: tuple[int, int] = (-_HIGHEST, 0)
    while True:
        found = transaction.rows("candidates", (queue, priority, now, *last, _PAGE))
        yield from found
        if len(found) < _PAGE:
            return
        last = (found[-1][4], found[-1][5])


def dead_holders(reader: Reader, alive: Callable[[Worker], bool]) -> list[str]:
    """Return the workers that hold runs and are dead."""
    with reader.snapshot() as cursor:
        held = {str(worker) for _, worker, _, _ in cursor.execute(SQL["held_tasks"])}
        known = {name: list(cursor.execute(SQL["worker"], (name,))) for name in held}
    return [name for name, found in known.items() if not found or not alive(worker_from(found[0]))]


def entry_from(values: Any) -> QueueEntry:
    run, queue, priority, key, dedupe, ready, worker, deaths = values
    return QueueEntry(run, Task(queue, priority, key, dedupe), ready, worker, deaths)


def queue_entries(reader: Reader, queue: str | None, limit: int | None) -> list[QueueEntry]:
    with reader.snapshot() as cursor:
        return [entry_from(values) for values in cursor.execute(SQL["queue_entries"], (queue, -1 if limit is None else limit))]


def queue_entry(reader: Reader, run: str) -> QueueEntry | None:
    with reader.snapshot() as cursor:
        found = cursor.execute(SQL["queue_entry"], (run,)).fetchone()
        return None if found is None else entry_from(found)


def held_by(reader: Reader, worker: str) -> list[str]:
    with reader.snapshot() as cursor:
        return [str(run) for (run,) in cursor.execute(SQL["held_by"], (worker,))]


def twin(reader: Reader, task: Task) -> str | None:
    with reader.snapshot() as cursor:
        found: Any = cursor.execute(SQL["twin"], (task.queue, task.dedupe)).fetchone()
        return None if found is None else str(found[0])


def next_ready(reader: Reader, queues: Sequence[str]) -> int | None:
    with reader.snapshot() as cursor:
        found: list[Any] = [cursor.execute(SQL["next_ready"], (queue,)).fetchone() for queue in queues]
        return min((row[0] for row in found if row is not None and row[0] is not None), default=None)


def depths(reader: Reader, minutes: int) -> list[Depth]:
    now = clock.now_us()
    newest = now // _MINUTE
    with reader.snapshot() as cursor:
        counts: dict[Any, Any] = {queue: rest for queue, *rest in cursor.execute(SQL["depths"], (now,))}
        ticked: list[Any] = cursor.execute(SQL["ticks"], (newest - minutes,)).fetchall()
        limited = [str(name).removeprefix(LIMITS) for name, *_ in cursor.execute(SQL["properties"], (LIMITS,))]
    return gather(counts, {(queue, newest - minute): rest for queue, minute, *rest in ticked}, limited, minutes)


class Bell:
    """Watches SQLite's own count of changes, and rings when another connection has committed."""

    def __init__(self, connection: apsw.Connection, ring: Callable[[], None]) -> None:
        self._connection = connection
        self._ring = ring
        self._end = Wakeup()
        self._thread = threading.Thread(target=self._watch, name="everstep-bell", daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        last = None
        cursor = self._connection.cursor()
        while not self._end.wait(_LOOK_SECONDS):
            with suppress(apsw.Error):  # the next use of the store meets the same error and reports it; workers also poll
                version = cursor.execute("PRAGMA data_version").fetchone()
                if version != last:
                    last = version
                    self._ring()

    def stop(self) -> None:
        self._end.give()
        if self._thread is not threading.current_thread():
            self._thread.join()
        self._connection.close()

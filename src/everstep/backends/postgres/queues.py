"""Queues of a store in PostgreSQL: claiming runs, freeing the runs of dead workers, counting waiting runs, noticing changes.

Claiming is one statement (sql/queues.sql), which skips locked entries and rows, so that concurrent claims never wait for each
other. A worker without work listens on its own connection; behind a pooler that shares sessions, notifications do not arrive, so
workers also poll from time to time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import psycopg
from psycopg.errors import DivisionByZero

from everstep.backends.contract.core import Commit, Committed
from everstep.backends.contract.queues import LIMITS, Claim, Claimed, Depth, QueueEntry, Task, gather
from everstep.backends.postgres.commit import NAMES, arguments, outcome
from everstep.backends.postgres.connections.connect import Address, Connection, execute
from everstep.backends.postgres.connections.readers import Readers
from everstep.backends.postgres.leases import known_as, living
from everstep.backends.postgres.rows import run_from
from everstep.clock import clock
from everstep.errors import AlreadyQueued, EverstepError, RunExists

_LISTEN_SECONDS = 1.0
_PAUSE = 1.0


def claim(connection: Connection, sql: bytes, bucket: int, asked: Claim) -> list[Claimed]:
    """Return the runs that a worker gets. If the answer was lost, the worker still holds them, and they are freed with it."""
    values = (bucket, list(dict.fromkeys(asked.queues)), list(asked.workflows), list(asked.without), asked.most, *known_as(asked.worker))
    return [_claimed(row) for row in execute(connection, sql, values)]


def create(
    connection: Connection, sql: dict[str, bytes], bucket: int, commits: Sequence[Commit], known: Sequence[str], again: bool
) -> list[bool]:
    """Create runs in one transaction and one round trip. The last statement fails, and undoes all, if another run has one of the ids."""
    ids, keys = [commit.run.id for commit in commits], [commit.run.key for commit in commits]
    calls = [(commit, arguments(commit, bucket, again)) for commit in commits]
    cursors = [connection.cursor(binary=True) for _ in calls]
    try:
        with connection.pipeline():  # it ends with one sync: the server makes one transaction of it
            try:
                for cursor, (_, values) in zip(cursors, calls, strict=True):
                    cursor.execute(sql[NAMES[len(values)]], values)
                connection.cursor(binary=True).execute(sql["refuse_taken"], (ids, keys, list(known)))
            except BaseException:
                connection.close()  # leaving the block would commit the statements before the bad value; closing undoes them
                raise
    except DivisionByZero:
        raise RunExists("a run with one of these ids already exists") from None
    answers = [outcome(commit, cursor.fetchone() or (), again) for cursor, (commit, _) in zip(cursors, calls, strict=True)]
    for answer in answers:
        if not isinstance(answer, (Committed, AlreadyQueued, RunExists)):
            raise answer
    return [isinstance(answer, Committed) for answer in answers]


def _claimed(values: tuple[Any, ...]) -> Claimed:
    run, queue, before, deaths, sound, *row = values
    return Claimed(run, queue, run_from(tuple(row)) if sound else None, before, deaths)


def dead_here(readers: Readers) -> list[str]:
    """Return the workers of this machine that have runs and whose process has died."""
    return [str(row[0]) for row in readers.rows("holders") if living(row) is None]


def entry_from(values: tuple[Any, ...]) -> QueueEntry:
    run, queue, priority, key, dedupe, ready, worker, deaths = values
    return QueueEntry(run, Task(queue, priority, key, dedupe), ready, worker, deaths)


def next_ready(readers: Readers, queues: Sequence[str]) -> int | None:
    """Return the time by this machine's clock, so that a worker that sleeps until then wakes up in time."""
    ((first, now),) = readers.rows("next_ready", list(queues))
    return None if first is None else clock.now_us() + first - now


def depths(readers: Readers, minutes: int) -> list[Depth]:
    counts: dict[str, Sequence[Any]] = {queue: rest for queue, *rest in readers.rows("depths")}
    ticks: dict[tuple[str, int], Sequence[int]] = {(queue, back): rest for queue, back, *rest in readers.rows("ticks", minutes)}
    return gather(counts, ticks, [str(name).removeprefix(LIMITS) for name, *_ in readers.rows("properties", LIMITS)], minutes)


class Bell:
    """Listens on its own connection, and makes a new one when it is lost."""

    def __init__(self, address: Address, ring: Callable[[], None]) -> None:
        self._address = address
        self._ring = ring
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="everstep-bell", daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._stop.is_set():
            try:
                self._listen()
            except (EverstepError, psycopg.Error):
                self._stop.wait(_PAUSE)  # the server is not reachable: the next use of the store meets the same error and reports it

    def _listen(self) -> None:
        with self._address.connect() as connection:
            connection.execute(f'LISTEN "{self._address.channel}"'.encode())
            self._ring()  # something may have happened before
            while not self._stop.is_set():
                for _ in connection.notifies(timeout=_LISTEN_SECONDS, stop_after=1):
                    self._ring()

    def stop(self) -> None:
        self._stop.set()
        if self._thread is not threading.current_thread():
            self._thread.join(_LISTEN_SECONDS / 10)  # it may be waiting for the server; it then ends by itself

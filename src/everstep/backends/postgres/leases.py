"""Leases on PostgreSQL: which worker holds a run, and how its death is noticed.

A worker's lease expires by the server's clock; only its duration comes from the worker. On the holder's machine, its death is known sooner:
its process is identified by pid namespace, pid and start time, and either exists or has died. If the system does not report this,
and from other machines, a holder counts as alive until its lease expires. An unregistered worker counts as dead.
"""

from __future__ import annotations

import os
from typing import Any

from everstep import clock as clocks
from everstep.backends.postgres.connections.connect import Connection, execute
from everstep.backends.postgres.rows import Values, items_or_none, newest_run
from everstep.errors import Conflict, DamagedRun, LeaseHeld, NotFound, StoreBusy
from everstep.records import RunRow, Tombstone, Worker
from everstep.system import process_name

_TRIES = 50
_RUN_COLUMNS = 23  # with the seq of the newest record


class Leases:
    """The lease operations; the writer executes each in its turn."""

    def __init__(self, read: dict[str, bytes], write: dict[str, bytes], bucket: int) -> None:
        self._read = read
        self._write = write
        self._bucket = bucket
        self._own: set[str] = set()

    def acquire(self, connection: Connection, run: str, worker: Worker, again: bool) -> RunRow:
        for _ in range(_TRIES):
            pk, row, now, holder = self._look(connection, run)
            if again and row.worker == worker.id and holder is not None:
                return row  # the answer to the first attempt was lost
            self._refuse_if_held(row, holder)
            self.introduce(connection, worker)
            after = row.sealed(epoch=row.epoch + 1, worker=worker.id, since=now)
            if self._lease(connection, pk, row, after):
                return after
        raise StoreBusy(f"run {run!r} kept changing while its lease was requested")

    def release(self, connection: Connection, row: RunRow) -> None:
        for _ in range(_TRIES):
            try:
                pk, stored, _, _ = self._look(connection, row.id)
            except NotFound:
                return
            if stored.epoch != row.epoch or stored.worker is None or self._lease(connection, pk, stored, stored.sealed(worker=None)):
                return
        raise StoreBusy(f"run {row.id!r} kept changing while its lease was released")

    def renew(self, connection: Connection, worker: Worker) -> None:
        left = _left(worker)
        execute(connection, self._write["renew"], (worker.expires_boot, left, left, worker.id))

    def delete(self, connection: Connection, row: RunRow, again: bool) -> None:
        try:
            pk, stored, now, holder = self._look(connection, row.id)
        except NotFound:
            if again:
                return
            raise
        self._refuse_if_held(stored, holder)
        tombstone = Tombstone.of(pk, stored, now)
        values = (self._bucket, pk, row.check, now, tombstone.check, list(stored.tags), items_or_none(stored.meta))
        if stored.check == row.check and execute(connection, self._write["remove"], values) == [(True,)]:
            return
        if not (again and stored.key != row.key):
            raise Conflict(f"run {row.id!r} has changed since it was read; it was not deleted")

    def own(self, worker: Worker) -> None:
        """Note a worker of this store, to remove it when the store is closed."""
        self._own.add(worker.id)

    def forget(self, connection: Connection) -> None:
        """Remove the workers of this store, and with them their leases."""
        if self._own:
            execute(connection, self._write["drop_workers"], (sorted(self._own),))

    def _look(self, connection: Connection, run: str) -> tuple[int, RunRow, int, Worker | None]:
        """Read a run, verified by its digest (damage must not be sealed again), its position, the server's time and the live holder."""
        found = execute(connection, self._read["leased"], (run,))
        if not found:
            raise NotFound(f"there is no run {run!r}")
        values = found[0]
        row = newest_run(values[:_RUN_COLUMNS])
        if row.digest() != row.check:
            raise DamagedRun(f"the row of run {run!r} does not match its digest")
        rest = values[_RUN_COLUMNS + 1 :]
        return values[0], row, values[_RUN_COLUMNS], living(rest) if rest[0] is not None else None

    def _refuse_if_held(self, row: RunRow, holder: Worker | None) -> None:
        if holder is not None:
            raise LeaseHeld(row.id, holder.host, holder.pid, clocks.iso(row.since), clocks.iso(holder.expires_at))

    def introduce(self, connection: Connection, worker: Worker) -> None:
        if worker.id not in self._own:
            execute(connection, self._write["drop_ended_workers"])
            self._own.add(worker.id)
        execute(connection, self._write["set_worker"], known_as(worker))

    def _lease(self, connection: Connection, pk: int, before: RunRow, after: RunRow) -> bool:
        delta = int.from_bytes(after.check) - int.from_bytes(before.check)
        values = (self._bucket, pk, before.check, after.epoch, after.worker, after.since, after.check, delta)
        return bool(execute(connection, self._write["lease"], values)[0][0])


def known_as(worker: Worker) -> Values:
    """Return the columns that the server keeps about a worker."""
    name = process_name(worker.pid) if (worker.host, worker.boot) == _here() else ""
    return worker.id, worker.host, worker.pid, worker.boot, worker.started_at, worker.expires_boot, _left(worker), name


def living(values: Values) -> Worker | None:
    """Return a worker if it is alive as far as is known; else None."""
    *about, process, lasts = values
    worker = Worker(*about)
    if not lasts:
        return None
    if (worker.host, worker.boot) != _here():
        return worker
    if clocks.clock.boot_us() >= worker.expires_boot:
        return None
    same_space = process and process.partition(" ")[0] == process_name(os.getpid()).partition(" ")[0]
    return None if same_space and process_name(worker.pid) != process else worker


def _here() -> tuple[Any, str]:
    return os.uname().nodename, clocks.clock.boot_id()


def _left(worker: Worker) -> int:
    """Return how long the worker's leases last from now: a duration, so that only the server's clock decides when they expire."""
    return worker.expires_boot - clocks.clock.boot_us()

"""Leases on a store in SQLite: which worker holds a run, and how its death is noticed at once.

Each worker holds an OS lock on its own file, `<store>-locks/<worker id>`, as long as its store is open. The system drops it
when the process dies, however it dies, and a forked child does not inherit it. Such locks do not conflict
within one process, so a registry lists the workers that live in this one. This process never opens one of its own lock files a
second time, since closing it would drop the lock. A worker of another boot is dead; one of another host is alive until its lease
expires. Opening the store removes the files of dead workers.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from everstep import clock as clocks
from everstep import system
from everstep.backends.sqlite.files.paths import Location, location_of
from everstep.backends.sqlite.rows import worker_from, worker_values
from everstep.backends.sqlite.transaction import Transaction
from everstep.errors import Conflict, DamagedRun, LeaseHeld, NotFound
from everstep.fields import Shape, field
from everstep.records import RunRow, Worker

_SAFE = re.compile(r"[A-Za-z0-9_-]{1,100}")
_living: set[tuple[Location, str]] = set()
os.register_at_fork(after_in_child=_living.clear)


class WorkerLocks(Shape):
    """The locks of the workers of one store that live in this process, and checks of the locks of others."""

    folder: str
    _held: dict[str, int] = field(default_factory=dict)
    _known: Location | None = None

    @property
    def _location(self) -> Location:
        """The folder, independent of the path: with a bind mount, a store must not take over its own lease."""
        if self._known is None:
            self._known = location_of(self.folder)
        return self._known

    def hold(self, worker: str) -> bool:
        """Lock the worker's file; False if it is already locked."""
        if worker in self._held:
            return False
        Path(self.folder).mkdir(mode=0o700, exist_ok=True)
        _living.add((self._location, worker))  # first: another handle of this process would drop the lock by checking it
        try:
            while (descriptor := self._locked(self._path(worker))) is None:
                continue  # a process that is opening the store took the file for that of a dead worker and removed it
        except BaseException:
            _living.discard((self._location, worker))
            raise
        self._held[worker] = descriptor
        return True

    @staticmethod
    def _locked(path: str) -> int | None:
        """Create and lock the file; return None if it was removed meanwhile."""
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            system.lock(descriptor)
            if os.fstat(descriptor).st_nlink:
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
        return None

    def clean(self) -> None:
        """Remove the files of dead workers. Best effort: a leftover file means nothing, because no process locks it."""
        ours = {self._path(worker) for location, worker in _living.copy() if location == self._location}
        with suppress(OSError):
            for path in Path(self.folder).glob("*"):
                if str(path) not in ours:
                    self._remove_unlocked(path)

    @staticmethod
    def _remove_unlocked(path: Path) -> None:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            if system.try_lock(descriptor):
                path.unlink(missing_ok=True)  # while it is locked, so that a process which is about to lock it sees that it was removed
        finally:
            os.close(descriptor)

    def alive(self, holder: Worker, host: str) -> bool:
        clock = clocks.clock
        if holder.host != host:
            return clock.now_us() < holder.expires_at
        if holder.boot != clock.boot_id() or clock.boot_us() >= holder.expires_boot:
            return False
        return (self._location, holder.id) in _living or self._is_locked(holder.id)

    def _is_locked(self, worker: str) -> bool:
        try:
            descriptor = os.open(self._path(worker), os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            return False
        try:
            return not system.try_lock(descriptor)
        finally:
            os.close(descriptor)

    def forget(self, worker: str) -> None:
        """Remove the lock file of a dead worker. Ids are never reused, so no process can be about to lock it."""
        if (self._location, worker) not in _living:
            with suppress(OSError):  # the next process that opens the store removes it
                Path(self._path(worker)).unlink(missing_ok=True)

    def _path(self, worker: str) -> str:
        """Return the path of a worker's lock file. Ids are read from the store: an id must not lead out of the folder."""
        name = worker if _SAFE.fullmatch(worker) else sha256(worker.encode("utf-8", "surrogatepass")).hexdigest()
        return f"{self.folder}/{name}"

    def abandon(self) -> None:
        """Forget the locks in a forked child: they are the parent's."""
        for descriptor in self._held.values():
            os.close(descriptor)
        self._held.clear()

    def close(self) -> None:
        for worker, descriptor in self._held.items():
            with suppress(OSError):  # the next process that opens the store removes it
                Path(self._path(worker)).unlink(missing_ok=True)
            os.close(descriptor)
            _living.discard((self._location, worker))
        self._held.clear()


class Leases(Shape):
    """The lease operations; each runs inside a write transaction."""

    locks: WorkerLocks

    def acquire(self, transaction: Transaction, asked: tuple[str, Worker]) -> RunRow:
        run, worker = asked
        pk, row = transaction.existing(run)
        self._refuse_if_held(transaction, row, worker.host)
        self.introduce(transaction, worker)
        after = row.sealed(transaction.seal, epoch=row.epoch + 1, worker=worker.id, since=clocks.clock.now_us())
        transaction.lease(pk, row, after)
        return after

    def introduce(self, transaction: Transaction, worker: Worker) -> None:
        if self.locks.hold(worker.id):
            self._sweep(transaction, worker)
        transaction.statement("set_worker", worker_values(worker))

    def release(self, transaction: Transaction, row: RunRow) -> None:
        try:
            pk, stored = transaction.existing(row.id)
        except NotFound:
            return
        if stored.epoch == row.epoch and stored.worker is not None:
            transaction.lease(pk, stored, stored.sealed(transaction.seal, worker=None))

    def renew(self, transaction: Transaction, worker: Worker) -> None:
        transaction.statement("renew", (worker.expires_boot, worker.expires_at, worker.id))

    def delete(self, transaction: Transaction, row: RunRow) -> None:
        pk, stored = transaction.existing(row.id)
        self._refuse_if_held(transaction, stored, os.uname().nodename)
        if stored.check != row.check:
            raise Conflict(f"run {row.id!r} has changed since it was read; it was not deleted")
        transaction.remove(pk, stored)

    def delete_many(self, transaction: Transaction, rows: Sequence[RunRow]) -> set[bytes]:
        """Delete runs; those that have changed or are held stay. All refusals are found before anything is written."""
        gone: set[bytes] = set()
        for row in rows:
            try:
                self.delete(transaction, row)
            except (Conflict, LeaseHeld, NotFound, DamagedRun):
                continue
            gone.add(row.key)
        return gone

    def _refuse_if_held(self, transaction: Transaction, row: RunRow, host: str) -> None:
        if row.worker is None:
            return
        for values in transaction.rows("worker", (row.worker,)):
            holder = worker_from(values)
            if self.locks.alive(holder, host):
                raise LeaseHeld(row.id, holder.host, holder.pid, clocks.iso(row.since), clocks.iso(holder.expires_at))

    def _sweep(self, transaction: Transaction, worker: Worker) -> None:
        """Remove dead workers of this host, once for each open store. An unknown worker counts as dead, so leases stay correct."""
        for values in transaction.rows("workers"):
            other = worker_from(values)
            if other.id != worker.id and other.host == worker.host and not self.locks.alive(other, worker.host):
                transaction.statement("drop_worker", (other.id,))
                self.locks.forget(other.id)

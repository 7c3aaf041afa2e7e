"""Keeps the leases of one open store alive: one worker, one thread, one small write every few seconds while any run is open.

The backend checks the lease itself at each commit (the epoch). This only keeps other processes from taking over a live owner.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from everstep.backends.contract.core import Backend, Commit
from everstep.backends.contract.queues import Claim, Claimed
from everstep.clock import clock
from everstep.errors import EverstepError, StoreError
from everstep.ids import new_id
from everstep.records import RunRow, Worker
from everstep.threads.background import BackgroundThread
from everstep.threads.guard import LEASES, Guard

T = TypeVar("T")
TTL_SECONDS = 12.0  # a machine that vanished is detected in less than 15 seconds
_MOST_TAKEN = 10_000


class HasBackend(Protocol):
    """The part of a store that leases need."""

    backend: Backend


class LeaseKeeper:
    """The worker of one store, and the thread that renews its leases."""

    def __init__(self, store: HasBackend, ttl: float = TTL_SECONDS):
        self._store = store
        self.ttl = ttl
        self._ttl_us = int(ttl * 1_000_000)
        self._lock = Guard(LEASES)
        self._held = 0
        self._known_until = 0  # by the boot clock: the expiry that the backend has for this worker
        self._taken: dict[str, int] = {}  # the newest runs that were taken here, and their epochs
        self._taking = 0  # leases that are being taken
        self._owed: dict[str, Callable[[], None]] = {}  # functions that release leases which could not be released yet
        self._thread = BackgroundThread(self._renew, every=ttl / 3)
        self.worker = Worker(f"w-{new_id()}", os.uname().nodename, os.getpid(), clock.boot_id(), clock.now_us(), 0, 0)

    @property
    def _backend(self) -> Backend:
        """The store's current backend: it may have been wrapped since."""
        return self._store.backend

    def acquire(self, run: str) -> RunRow:
        self._lock.check()
        with self._lock:
            self._begin(run)
        row = self._counted(run, lambda: self._backend.acquire(run, self.worker))
        with self._lock:
            self._remember(row)
            self._taking -= 1
        return row

    def attend(self, again: bool = False) -> None:
        """Keep this worker alive until `released`, also while it holds no run. `again`: it was counted before, and may have been removed."""
        with self._lock:
            self._extend()
            self._thread.start()
            self._backend.introduce(self.worker)
            self._held += not again

    def create(self, commit: Commit) -> None:
        """Create a run that this worker holds from the start."""
        self._lock.check()
        with self._lock:
            self._begin(commit.run.id)
            if clock.boot_us() > self._known_until - self._ttl_us // 2:
                self._backend.introduce(self.worker)
                self._known_until = self.worker.expires_boot
        self._counted(commit.run.id, lambda: self._backend.commit(commit))
        with self._lock:
            self._remember(commit.run)
            self._taking -= 1

    def _begin(self, run: str) -> None:
        """Prepare to take a lease: a lease that is not renewed is worse than none."""
        self._extend()
        self._settle(run)
        self._thread.start()

    def _counted(self, run: str, take: Callable[[], T]) -> T:
        """Take a lease without blocking threads that take another. One that may have been taken is released later, because this process is alive."""
        with self._lock:
            self._held += 1
            self._taking += 1
        try:
            return take()
        except BaseException as error:
            with self._lock:
                self._taking -= 1
            self.released()
            if isinstance(error, StoreError) and error.written != "no":
                self.owe(run, lambda: self._release_unknown(run))
            raise

    def claim(self, queues: Sequence[str], workflows: Sequence[str], most: int, without: Sequence[str]) -> list[Claimed]:
        """Claim queued runs, each with its lease."""
        self._lock.check()
        with self._lock:
            self._extend()
            self._thread.start()
            taken = self._backend.claim(Claim(self.worker, queues, workflows, most, without))
            for one in taken:
                if one.row is not None:
                    self._held += 1
                    self._remember(one.row)
        return taken

    def _remember(self, row: RunRow) -> None:
        self._taken[row.id] = row.epoch
        if len(self._taken) > _MOST_TAKEN:
            del self._taken[next(iter(self._taken))]

    def unknown(self) -> list[RunRow]:
        """Return queued runs that this worker holds without knowing: the answer to their claim was lost."""
        self._lock.check()
        with self._lock:
            if self._taking:
                return []  # it may be among these; the next check decides
            held = {run: self._backend.run(run) for run in self._backend.held_by(self.worker.id)}
            self._taken = {run: epoch for run, epoch in self._taken.items() if run in held}
            ours = [row for row in held.values() if row is not None and row.worker == self.worker.id]
            return [row for row in ours if self._taken.get(row.id) != row.epoch]

    def release(self, row: RunRow) -> None:
        """Release a lease. If that cannot be written now (a full disk), it is done later: no process could take over from a live one."""
        try:
            self._backend.release(row)
        except EverstepError:
            self.owe(row.id, lambda: self._backend.release(row))
            raise

    def owe(self, run: str, settle: Callable[[], None]) -> None:
        """Release a lease as soon as the store can be written; before that, this process cannot open the run again."""
        with self._lock:
            self._owed[run] = settle

    def _release_unknown(self, run: str) -> None:
        row = self._backend.run(run)
        if row is not None and row.worker == self.worker.id and self._taken.get(run) != row.epoch:
            self._backend.release(row)

    @property
    def owes(self) -> bool:
        """Whether leases are still to be released."""
        return bool(self._owed)

    def settle(self, run: str) -> None:
        """Release the lease of a run now, after those that were owed earlier: a child run before its caller."""
        with self._lock:
            for earlier in list(self._owed)[: list(self._owed).index(run) + 1] if run in self._owed else ():
                self._settle(earlier)

    def _settle(self, run: str) -> None:
        if run in self._owed:
            self._owed[run]()
            del self._owed[run]

    def released(self) -> None:
        """Count one open run less; the thread ends with the store, and sleeps while there is nothing to renew."""
        with self._lock:
            self._held -= 1

    def close(self) -> None:
        self._thread.end()

    def _extend(self) -> None:
        self.worker.expires_boot = clock.boot_us() + self._ttl_us
        self.worker.expires_at = clock.now_us() + self._ttl_us

    def _renew(self) -> None:
        self._lock.check()
        with self._lock:
            if not self._held and not self._owed:
                return
            self._extend()
            try:
                if self._held:
                    self._backend.renew(self.worker)
                for run in list(self._owed):
                    self._settle(run)
            except EverstepError:
                # Best effort: the next commit gets the same error and reports it. Without renewal others may take over, which the epoch makes safe.
                return

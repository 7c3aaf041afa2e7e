"""Writes a store in SQLite: one transaction and one fsync for all requests that wait at the same time.

Relies on `group_commit` to choose the thread that writes, and on Transaction to apply a request. Never lets the refusal or failure of one
request fail another one, and never writes again after the disk failed at COMMIT: it is then unknown what is on disk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import apsw

from everstep.backends.contract.core import Done
from everstep.backends.group_commit import GroupCommit, Request
from everstep.backends.owned_lock import Guest
from everstep.backends.sqlite.errors import is_full, write_error
from everstep.backends.sqlite.transaction import Transaction
from everstep.errors import EverstepError, StoreBusy, StoreClosed, StoreError, StoreFailed, StoreFull
from everstep.records import Seal, unkeyed
from everstep.threads.guard import interrupts
from everstep.threads.wakeup import Wakeup

Operation = Callable[[Transaction, Any], Any]
_BATCH = 1000


class Writer(GroupCommit):
    """The only writer of one store in this process."""

    def __init__(
        self,
        connect: Callable[[], apsw.Connection],
        path: str,
        seen: Callable[[int], None],
        seal: Seal = unkeyed,
        check_files: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(path, _BATCH)
        self._seal = seal
        self._connect = connect
        self._seen = seen
        self._check_files = check_files
        self._transaction: Transaction | None = None
        self._committing: Sequence[Request] | None = None
        self._resting: Guest | None = None

    def set_seal(self, seal: Seal) -> None:
        """Seal what is written from now on with another seal."""
        self._seal = seal
        if self._transaction is not None:
            self._transaction.seal = seal

    def call(self, operation: Operation, argument: Any = None) -> Any:
        """Execute one operation and return its result when it is durable."""
        return self.perform(Request(operation, argument))

    def submit(self, operation: Operation, argument: Any, done: Done) -> None:
        """Execute one operation soon; `done` is called when it is settled."""
        self.enqueue(Request(operation, argument, done))

    def _write(self, requests: list[Request]) -> None:
        """Write the batch in one transaction; if it fails before COMMIT, one for each request, so that only the faulty one fails."""
        if not requests:
            return
        batch = self._batch
        try:
            transaction = self._ready()
            transaction.begin()
            self._check_files()  # after BEGIN, which may have waited long for another process
            for request in requests:
                if request.abandoned:
                    continue
                try:
                    request.result = request.operation(transaction, request.argument)
                except EverstepError as error:
                    if interrupts(error):
                        raise  # half of the operation may be done
                    request.error = error
                if batch.waiting and requests is batch.requests:
                    batch.fill()  # requests that came meanwhile need not wait for the next fsync
            transaction.flush()
        except Exception as error:
            if interrupts(error):
                raise
            self._failed_before_commit(requests, error)
            return
        self._committing = requests
        try:
            transaction.commit()
        except Exception as error:
            if interrupts(error):
                raise
            self._committing = None
            self._failed_at_commit(requests, transaction, error)
        else:
            if transaction.touched:
                self._seen(transaction.writes)
        for request in requests:
            request.settled = True
        self._committing = None

    def _ready(self) -> Transaction:
        self._check_usable()
        if self._transaction is None:
            self._transaction = Transaction(self._connect(), self._seal)
        return self._transaction

    def _recover(self) -> list[Wakeup]:
        """Clean up after an interrupted leader: settle its transaction if that was committed, else roll back and leave its requests to the
        next leader."""
        requests, transaction = self._committing, self._transaction
        if requests is not None and transaction is not None and not transaction.connection.in_transaction:
            for request in requests:
                request.settled = True
            self._committing = None
        else:
            self._committing = None  # before the rollback: after it, no transaction is open either
            self._take_back()
        self._batch.put_back()
        return self._batch.notify()

    def _failed_before_commit(self, requests: list[Request], error: Exception) -> None:
        number = 0
        if self._transaction is not None:
            number = self._transaction.connection.system_errno
            self._take_back()
        if len(requests) > 1 and not isinstance(error, (StoreClosed, StoreFailed, StoreBusy, apsw.BusyError)):
            for request in requests:
                request.error = None
                self._write([request])
            return
        for request in requests:
            request.error = write_error(error, self._shown_address, number)
            request.settled = True

    def _failed_at_commit(self, requests: list[Request], transaction: Transaction, error: Exception) -> None:
        """Settle requests after an error at COMMIT. If the disk is full, nothing was written. After any other error, above all of an fsync,
        that is unknown."""
        failure: StoreError
        if is_full(error, transaction.connection.system_errno):
            failure = StoreFull(f"no space is left for {self._shown_address}: nothing of this save was written")
        else:
            what = "memory ran out" if isinstance(error, MemoryError) else "the disk reported an error"
            self.poison(reason := f"{what} at COMMIT ({error})")
            failure = self._poisoned(reason, "unknown")
        failure.of(self._shown_address).__cause__ = error
        self._take_back()
        for request in requests:
            if request.error is None:
                request.error = failure

    def _take_back(self) -> None:
        """End the transaction by any means: an open one blocks every other writer."""
        transaction = self._transaction
        if transaction is None:
            return
        try:
            transaction.rollback()
        except Exception:  # noqa: BLE001 - closing its connection undoes the transaction
            self._transaction = None
            transaction.connection.close(True)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Block all writers of all processes for a moment. Waiting callers are served afterwards."""
        guest = self._lock.wait_turn()
        try:
            self._ready().begin()
            self._check_files()
            yield
        finally:
            try:
                self._take_back()
            finally:
                self._release(guest)

    def rest(self) -> None:
        """Wait until no thread writes, and block new writes."""
        self._resting = self._lock.wait_turn()

    def resume(self) -> None:
        if self._resting is not None:
            self._release(self._resting)
            self._resting = None

    def abandon(self) -> None:
        """Drop queued requests in a forked child, where no thread waits for them, and close the connection."""
        self._closed = True
        self._batch.clear()
        self._committing = None
        self._thread.end()
        if self._transaction is not None:
            self._transaction.connection.close(True)
            self._transaction = None

    def _disconnect(self) -> None:
        if self._transaction is not None:
            self._transaction.connection.close()
            self._transaction = None

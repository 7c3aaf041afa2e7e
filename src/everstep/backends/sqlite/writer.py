"""Group commit: one transaction and one fsync for all writes that wait at the same time.

Relies on `group_commit` for who writes when, and on Transaction for what the work does. Never lets the refusal or failure of one work fail another one, and never
writes again after the disk failed at COMMIT: what is on disk is unknown then.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import apsw

from everstep.backends import group_commit
from everstep.backends.contract.core import Done
from everstep.backends.sqlite.errors import is_full, write_error
from everstep.backends.sqlite.transaction import Transaction
from everstep.errors import EverstepError, StoreBusy, StoreClosed, StoreError, StoreFailed, StoreFull
from everstep.records import Seal, unkeyed
from everstep.threads.guard import enter, interrupts
from everstep.threads.wakeup import Nudge

Operation = Callable[[Transaction, Any], Any]
_BATCH = 1000


class Work(group_commit.Work):
    """One operation in the queue."""

    __slots__ = ("argument", "operation")

    def __init__(self, operation: Operation, argument: Any, done: Done | None) -> None:
        super().__init__(done)
        self.operation = operation
        self.argument = argument


def _lasting(failure: StoreFailed) -> StoreFailed:
    failure.lasting = True
    return failure


class Writer(group_commit.Leaders[Work]):
    """The one way to write in this process, for one store."""

    def __init__(self, connect: Callable[[], apsw.Connection], path: str, seen: Callable[[int], None], seal: Seal = unkeyed) -> None:
        super().__init__()
        self._seal = seal
        self._connect = connect
        self._path = path
        self._seen = seen
        self._transaction: Transaction | None = None
        self._failure: str | None = None
        self._committing: Sequence[Work] | None = None
        self._closed = False
        self._guests: deque[group_commit.Guest] = deque()
        self._handing: list[group_commit.Guest] = []  # the guest that gets the lock next
        self._resting: group_commit.Guest | None = None

    def call(self, operation: Operation, argument: Any) -> Any:
        """Do one operation and return its result when it is durable."""
        return self._do(Work(operation, argument, None))

    def submit(self, operation: Operation, argument: Any, done: Done) -> None:
        """Do one operation soon; `done` is called when it is settled."""
        self._hand_in(Work(operation, argument, done))

    def _lead(self) -> Sequence[Nudge]:
        """Write what is in line, a batch of it at most; return who sleeps for it."""
        line = self._line
        if line.batch:
            self._go_over()
        line.take(_BATCH)
        if not line.batch:
            return ()
        self._write(line.batch, late=True)
        return line.tell()

    def _go_over(self) -> Sequence[Nudge]:
        """After a leader that was interrupted: what it did not commit is taken back and left to the next one, the rest is settled."""
        works, transaction = self._committing, self._transaction
        if works is not None and transaction is not None and not transaction.connection.in_transaction:
            for work in works:
                work.settled = True
            self._committing = None
        else:
            self._committing = None  # before it is taken back: no transaction is open then either
            self._take_back()
        self._line.put_back()
        return self._line.tell()

    def _unlock(self, who: group_commit.Holder) -> None:
        """Hand the lock to the guest that waits for it, or let it go and see that somebody leads what has come meanwhile."""
        while True:
            if (self._guests or self._handing) and (guest := self._next_guest(who)) is not None:
                self._hold.pass_to(guest)
                self._handing.clear()
                guest.give()
                return
            self._hold.let_go()
            if not self._guests or not self._hold.take(who):
                break  # otherwise a guest came between the look and the release, and sleeps
        if self._line.waiting:
            self._nudge()

    def _next_guest(self, who: object) -> group_commit.Guest | None:
        """Taken out of the queue and noted in one operation: whoever is interrupted after it hands over to the same one."""
        if self._handing and self._handing[0] is who:
            self._handing.clear()  # that was told to it, and not to the list
        if not self._handing:
            with suppress(IndexError):  # it was interrupted, and has gone
                self._handing.extend(map(deque.popleft, (self._guests,)))
        return self._handing[0] if self._handing else None

    def _write(self, batch: Sequence[Work], late: bool = False) -> None:
        """One transaction for the batch; if it breaks before COMMIT, one for each, so that only the culprit fails."""
        line = self._line
        try:
            transaction = self._ready()
            transaction.begin()
            for work in batch:
                if work.gone:
                    continue
                try:
                    work.result = work.operation(transaction, work.argument)
                except EverstepError as error:
                    if interrupts(error):
                        raise  # half of the operation may be done
                    work.error = error
                if late and line.waiting and len(batch) < _BATCH:
                    line.take(len(batch) + 1)  # what came meanwhile need not wait for the next fsync
            transaction.flush()
        except Exception as error:
            if interrupts(error):
                raise
            self._failed_before_commit(batch, error)
            return
        self._committing = batch
        try:
            transaction.commit()
        except Exception as error:
            if interrupts(error):
                raise
            self._committing = None
            self._failed_at_commit(batch, transaction, error)
        else:
            if transaction.touched:
                self._seen(transaction.writes)
        for work in batch:
            work.settled = True
        self._committing = None

    def _ready(self) -> Transaction:
        if self._closed:
            raise StoreClosed(f"the store {self._path} is closed")
        if self._failure is not None:
            raise _lasting(StoreFailed(f"{self._path} is not written any more: {self._failure}", written="no"))
        if self._transaction is None:
            self._transaction = Transaction(self._connect(), self._seal)
        return self._transaction

    def _failed_before_commit(self, batch: Sequence[Work], error: Exception) -> None:
        number = 0
        if self._transaction is not None:
            number = self._transaction.connection.system_errno
            self._take_back()
        if len(batch) > 1 and not isinstance(error, (StoreClosed, StoreFailed, StoreBusy, apsw.BusyError)):
            for work in batch:
                work.error = None
                self._write([work])
            return
        for work in batch:
            work.error = write_error(error, self._path, number)
            work.settled = True

    def _failed_at_commit(self, batch: Sequence[Work], transaction: Transaction, error: Exception) -> None:
        """A full disk is known to have written nothing. Anything else at COMMIT, above all an fsync, leaves it open."""
        failure: StoreError
        if is_full(error, transaction.connection.system_errno):
            failure = StoreFull(f"no space is left for {self._path}: nothing of this save was written")
        else:
            self.poison(f"the disk reported an error at COMMIT ({error})")
            failure = _lasting(StoreFailed(f"{self._path}: {self._failure}; whether the save is there is unknown", written="unknown"))
        failure.of(self._path).__cause__ = error
        self._take_back()
        for work in batch:
            if work.error is None:
                work.error = failure

    def _take_back(self) -> None:
        """End the transaction, whatever it takes: one that stays open keeps every other writer out."""
        transaction = self._transaction
        if transaction is None:
            return
        try:
            transaction.rollback()
        except Exception:  # noqa: BLE001 - without its connection, it is undone
            self._transaction = None
            transaction.connection.close(True)

    def poison(self, reason: str) -> None:
        """Write no more through this handle."""
        if self._failure is None:
            self._failure = reason

    def _take(self) -> group_commit.Guest:
        """Take the lock in turn; give what it is let go with. Its holder hands it over: a loop of commits would have it again before a sleeper wakes up."""
        enter(self._hold)
        mine = group_commit.Guest()
        try:
            self._guests.append(mine)
            if self._hold.take(mine):
                self._guests.remove(mine)
            else:
                self._await_turn(mine)
        except BaseException:
            self._turn_away(mine)
            raise
        return mine

    def _await_turn(self, guest: group_commit.Guest) -> None:
        while not self._hold.held_by(guest):
            guest.wait(group_commit.PATIENCE)  # not for long: Ctrl-C in the holder may have cost us the call

    def _turn_away(self, guest: group_commit.Guest) -> None:
        """Ctrl-C in a guest. If the lock is being handed to it, it takes it; if it has it, it lets it go."""
        try:
            self._guests.remove(guest)
        except ValueError:
            self._await_turn(guest)
        if self._hold.held_by(guest):
            self._unlock(guest)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep every writer out, of all processes, for a moment. Callers that wait are served afterwards."""
        guest = self._take()
        try:
            self._ready().begin()
            yield
        finally:
            try:
                self._take_back()
            finally:
                self._unlock(guest)

    def rest(self) -> None:
        """Wait until nobody writes, and let nobody begin."""
        self._resting = self._take()

    def go_on(self) -> None:
        if self._resting is not None:
            self._unlock(self._resting)
            self._resting = None

    def abandon(self) -> None:
        """In a forked child: nobody is here to wait for what was queued, and the connection must go."""
        self._closed = True
        self._line.clear()
        self._committing = None
        self._leading.end()
        if self._transaction is not None:
            self._transaction.connection.close(True)
            self._transaction = None

    def close(self) -> None:
        """Write what is queued, then refuse everything."""
        sleepers: list[Nudge] = []
        guest = self._take()
        try:
            while self._line:
                sleepers += self._lead()
        finally:
            self._closed = True
            try:
                while self._line:  # it was interrupted: the rest is refused
                    sleepers += self._lead()
            finally:
                self._disconnect()
                self._unlock(guest)
                for sleeper in sleepers:
                    sleeper.give()
                self._leading.end()

    def _disconnect(self) -> None:
        if self._transaction is not None:
            self._transaction.connection.close()
            self._transaction = None

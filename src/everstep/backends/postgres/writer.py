"""Group commit on PostgreSQL: one transaction, one round trip and one fsync of the server for all commits that wait at the same time.

Relies on `group_commit` for who sends when. Commits that follow each other go as one pipeline; other work goes alone.

A connection that is lost on the way leaves it open whether the commit happened. It is then asked for once more, with the same fence: what
happened is found by its digests and not done again, what did not happen is done now. So it ends in yes or no, or, if the server stays
away, in an error that says `written="unknown"`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import psycopg
from psycopg.errors import DeadlockDetected, DuplicatePreparedStatement, InvalidSqlStatementName, SerializationFailure

from everstep.backends import group_commit
from everstep.backends.contract.core import Commit, Committed, Done
from everstep.backends.postgres.commit import ADVANCE, NAMES, arguments, outcome
from everstep.backends.postgres.connections.connect import Address, Connection, execute, hear_out, is_direct
from everstep.backends.postgres.connections.diagnosis import explained
from everstep.backends.postgres.connections.errors import said, translated
from everstep.backends.postgres.fast_commit import Quick, usable
from everstep.backends.postgres.rows import Values
from everstep.errors import EverstepError, InvalidArgument, StoreBusy, StoreClosed, StoreUnreachable
from everstep.threads.guard import enter, interrupts
from everstep.threads.wakeup import Nudge

Operation = Callable[[Connection, bool], Any]
"""Something to do on a connection; told whether it may have been done before."""

_BATCH = 500
_PAUSE = 0.1
_TRY_AGAIN = (DeadlockDetected, SerializationFailure)
_UNPREPARED = (InvalidSqlStatementName, DuplicatePreparedStatement)


class Work(group_commit.Work):
    """One commit or operation in the queue. `again`: it was sent before, and nobody knows what became of it."""

    __slots__ = ("again", "commit", "operation")

    def __init__(self, commit: Commit | None, operation: Operation | None, done: Done | None) -> None:
        super().__init__(done)
        self.commit = commit
        self.operation = operation
        self.again = False


class Writer(group_commit.Leaders[Work]):
    """The one way to write in this process, for one store."""

    def __init__(self, address: Address, bucket: int, patience: float) -> None:
        super().__init__()
        self.bucket = bucket
        self.sql = address.load("write")
        self._address = address
        self._patience = patience
        self._connection: Connection | None = None
        self._quick: Quick | None = None
        self._prepares = True
        self._closed = False

    def commit(self, commit: Commit) -> Committed:
        """Make one commit durable."""
        done: Committed = self._do(Work(commit, None, None))
        return done

    def call(self, operation: Operation) -> Any:
        """Do something else, in turn with the commits."""
        return self._do(Work(None, operation, None))

    def submit(self, commit: Commit, done: Done) -> None:
        """Make a commit durable soon; `done` is called when it is settled."""
        self._hand_in(Work(commit, None, done))

    def _lead(self) -> Sequence[Nudge]:
        """Send what is in line, a batch of it at most; return who sleeps for it."""
        line = self._line
        if line.batch:
            self._go_over()
        line.take(_BATCH)
        for group in _groups(line.batch):
            self._serve(group)
        return line.tell()

    def _go_over(self) -> Sequence[Nudge]:
        """After a leader that was interrupted: what it did not see settled is left to the next one; nobody knows whether it was done."""
        if self._connection is not None:
            hear_out(self._connection)
        self._drop()
        for work in self._line.batch:
            work.again = work.again or not work.settled
        self._line.put_back()
        return self._line.tell()

    def _serve(self, group: list[Work]) -> None:
        """Do one operation or some commits, again until it is known what became of them or the server stayed away too long."""
        limit = time.monotonic() + self._patience
        while True:
            try:
                self._attempt(self._ready(), group)
            except Exception as error:
                if interrupts(error):
                    raise
                if self._is_over(group, error, time.monotonic() > limit):
                    return
            else:
                break
        for work in group:
            work.settled = True

    def _is_over(self, group: list[Work], error: Exception, late: bool) -> bool:
        """What an error means for those whose work it met; False if it is to be tried once more."""
        if isinstance(error, _TRY_AGAIN) and len(group) == 1 and not late:
            return False
        if isinstance(error, _UNPREPARED) and self._prepares:  # something stands between that gives another session: nothing was done
            self._prepares = False
            self._drop()
            return False
        if not self._is_lost(error):
            self._failed(group, error)
            return True
        for work in group:
            work.again = work.again or self._sent(error)
        self._drop()
        if late:
            self._give_up(group, error)
            return True
        time.sleep(_PAUSE)
        return False

    def _attempt(self, connection: Connection, group: list[Work]) -> None:
        first = group[0]
        if first.operation is not None:
            first.result = first.operation(connection, first.again)
            return
        ready: list[tuple[Work, Values]] = []
        for work in group:
            work.error = None
            try:
                ready.append((work, arguments(_commit(work), self.bucket, work.again)))
            except EverstepError as error:
                if interrupts(error):
                    raise
                work.error = error
        # Who creates runs takes a lock that all who create runs share: first, so that no two batches wait for each other in a circle.
        ready.sort(key=lambda pair: _commit(pair[0]).was is not None)
        answers = self._send(connection, [values for _, values in ready])
        for (work, _), answer in zip(ready, answers, strict=True):
            found = outcome(_commit(work), answer, work.again)
            work.result, work.error = (found, None) if isinstance(found, Committed) else (None, found)
        _settle_chains([work for work, _ in ready])

    def _send(self, connection: Connection, calls: list[Values]) -> list[Values]:
        """One round trip and one transaction, however many they are."""
        if len(calls) == 1 and len(calls[0]) == ADVANCE and self._quick is not None:
            return [self._quick.ask(calls[0])]
        if len(calls) <= 1:
            return [execute(connection, self._call(values), values)[0] for values in calls]
        cursors = [connection.cursor(binary=True) for _ in calls]
        with connection.pipeline():  # between two syncs, and there is one at its end, the server makes one transaction of it
            try:
                for cursor, values in zip(cursors, calls, strict=True):
                    cursor.execute(self._call(values), values)
            except BaseException:
                connection.close()  # leaving would commit what was sent before the value that cannot be; without its end, it is undone
                raise
        return [cursor.fetchone() or () for cursor in cursors]

    def _call(self, values: Values) -> bytes:
        return self.sql[NAMES[len(values)]]

    def _ready(self) -> Connection:
        if self._closed:
            raise StoreClosed(f"the store {self._address.url} is closed")
        if self._connection is None:
            connection = self._address.connect(writing=True)
            try:
                self._prepares = self._prepares and is_direct(connection)
                self._quick = Quick(connection, self.sql["advance"]) if self._prepares and usable(connection) else None
            except BaseException:
                connection.close()
                raise
            self._connection = connection
        return self._connection

    def _is_lost(self, error: Exception) -> bool:
        """Whether the session has ended. The server may say so before the driver sees that the connection is closed."""
        meaning = translated(error, self._address.url)
        if isinstance(meaning, InvalidArgument):
            return False
        closed = self._connection is not None and self._connection.closed
        return isinstance(meaning, StoreUnreachable) or (closed and isinstance(error, psycopg.Error))

    def _sent(self, error: Exception) -> bool:
        """Whether anything may have reached the server: not if there was no connection."""
        return not isinstance(error, StoreUnreachable)

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = self._quick = None

    def _failed(self, group: list[Work], error: Exception) -> None:
        """The server refused the transaction and undid it. Of several, each is tried alone, so that only the culprit fails."""
        connection = self._connection
        meaning = explained(error, self._address, connection)
        if connection is not None and (connection.closed or connection.info.transaction_status != psycopg.pq.TransactionStatus.IDLE):
            self._drop()
        if len(group) > 1 and not isinstance(error, (StoreClosed, StoreBusy)):
            for work in group:
                self._serve([work])
            return
        for work in group:
            work.error = meaning
            said_by_operation = work.operation is not None and isinstance(error, EverstepError)
            if work.again and isinstance(work.error, EverstepError) and not said_by_operation:
                work.error.written = "unknown"  # this try was undone; what became of the one before is not known
            work.settled = True

    def _give_up(self, group: list[Work], error: Exception) -> None:
        for work in group:
            what = f"{self._address.url}: {error.message if isinstance(error, EverstepError) else said(error)}"
            failure = StoreUnreachable(what, written="unknown" if work.again else "no")
            failure.__cause__ = error
            work.error = failure.of(self._address.url)
            work.settled = True

    def close(self, last: Operation) -> None:
        """Write what is queued, do one last thing if the server can be reached, then refuse everything."""
        enter(self._hold)
        sleepers: list[Nudge] = []
        mine = Work(None, None, None)
        while not self._hold.take(mine):
            mine.nap()
        try:
            while self._line:
                sleepers += self._lead()
            self._end(last)
        finally:
            self._closed = True
            try:
                while self._line:  # it was interrupted: the rest is refused
                    sleepers += self._lead()
            finally:
                self._drop()
                self._hold.let_go()
                for sleeper in sleepers:
                    sleeper.give()
                self._leading.end()

    def _end(self, last: Operation) -> None:
        try:
            if self._connection is not None:
                last(self._connection, False)
        except psycopg.Error:
            return  # leases that were not given back end by themselves


def _commit(work: Work) -> Commit:
    assert work.commit is not None
    return work.commit


def _groups(batch: Sequence[Work]) -> list[list[Work]]:
    """Commits that follow each other together, everything else alone. What was sent before stays apart from what was not; who has left, out."""
    groups: list[list[Work]] = []
    for work in batch:
        if work.gone:
            continue
        last = groups[-1][-1] if groups else None
        if last is not None and last.commit is not None and work.commit is not None and last.again == work.again:
            groups[-1].append(work)
        else:
            groups.append([work])
    return groups


def _settle_chains(group: list[Work]) -> None:
    """A commit without records that was asked for twice is known to have happened if one that followed it has."""
    followed = {_commit(work).was.check for work in group if work.error is None and _commit(work).was is not None}  # type: ignore[union-attr]
    for work in reversed(group):
        commit = _commit(work)
        if isinstance(work.error, EverstepError) and work.error.written == "unknown" and commit.run.check in followed:
            work.result, work.error = Committed(0), None
            if commit.was is not None:
                followed.add(commit.was.check)

"""Writes a store in PostgreSQL: one transaction, one round trip and one fsync of the server for all commits that wait at the same time.

Relies on `group_commit` to choose the thread that sends. Consecutive commits are sent as one pipeline; every other request is sent alone.

If the connection is lost, it is unknown whether the commit happened. The writer then sends it once more, with the same fence: a commit
that happened is found by its digests and not repeated, one that did not happen is made now. So the result is yes or no, or, if the server
remains unreachable, an error with `written="unknown"`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import psycopg
from psycopg.errors import DeadlockDetected, DuplicatePreparedStatement, InvalidSqlStatementName, SerializationFailure

from everstep.backends.contract.core import Commit, Committed, Done
from everstep.backends.group_commit import GroupCommit, Request
from everstep.backends.postgres.commit import ADVANCE, NAMES, arguments, outcome
from everstep.backends.postgres.connections.connect import Address, Connection, execute, hear_out, is_direct
from everstep.backends.postgres.connections.diagnosis import explained
from everstep.backends.postgres.connections.errors import said, translated
from everstep.backends.postgres.fast_commit import Quick, usable
from everstep.backends.postgres.rows import Values
from everstep.errors import EverstepError, InvalidArgument, StoreBusy, StoreClosed, StoreFailed, StoreUnreachable
from everstep.threads.guard import interrupts
from everstep.threads.wakeup import Wakeup

Operation = Callable[[Connection, bool], Any]
"""An operation on a connection; its second argument says whether it may have been executed before."""

_BATCH = 500
_PAUSE = 0.1
_TRY_AGAIN = (DeadlockDetected, SerializationFailure)
_UNPREPARED = (InvalidSqlStatementName, DuplicatePreparedStatement)


class Writer(GroupCommit):
    """The only writer of one store in this process. A request without an operation is a commit, its argument."""

    def __init__(self, address: Address, bucket: int, patience: float) -> None:
        super().__init__(address.url, _BATCH)
        self.bucket = bucket
        self.sql = address.load("write")
        self._address = address
        self._patience = patience
        self._connection: Connection | None = None
        self._quick: Quick | None = None
        self._prepares = True

    def call(self, operation: Operation) -> Any:
        """Execute something other than a commit, in order with the commits."""
        return self.perform(Request(operation))

    def submit(self, commit: Commit, done: Done) -> None:
        """Make a commit durable soon; `done` is called when it is settled."""
        self.enqueue(Request(None, commit, done))

    def _write(self, requests: list[Request]) -> None:
        """Execute each operation and each group of commits; retry until the outcome is known or the patience is exhausted."""
        for group in _groups(requests):
            limit, settled = time.monotonic() + self._patience, False
            while not settled:
                try:
                    self._attempt(self._ready(), group)
                except MemoryError:
                    raise  # the answer may have been lost with it: see `GroupCommit`
                except Exception as error:
                    if interrupts(error):
                        raise
                    settled = self._is_over(group, error, time.monotonic() > limit)
                else:
                    for request in group:
                        request.settled = settled = True

    def _recover(self) -> list[Wakeup]:
        """Leave unsettled requests of an interrupted leader to the next one. They are marked as sent before: they may have been executed."""
        if self._connection is not None:
            hear_out(self._connection)
        self._drop()
        for request in self._batch.requests:
            request.again = request.again or not request.settled
        self._batch.put_back()
        return self._batch.notify()

    def _is_over(self, group: list[Request], error: Exception, late: bool) -> bool:
        """Settle the requests that an error affects; return False if they should be tried again."""
        if isinstance(error, _TRY_AGAIN) and len(group) == 1 and not late:
            return False
        if isinstance(error, _UNPREPARED) and self._prepares:  # a pooler has switched the session: nothing was executed
            self._prepares = False
            self._drop()
            return False
        if not self._is_lost(error):
            self._undone(group, error)
            return True
        for request in group:
            request.again = request.again or self._sent(error)
        self._drop()
        if late:
            self._give_up(group, error)
            return True
        time.sleep(_PAUSE)
        return False

    def _attempt(self, connection: Connection, group: list[Request]) -> None:
        first = group[0]
        if first.operation is not None:
            first.result = first.operation(connection, first.again)
            return
        ready: list[tuple[Request, Values]] = []
        for request in group:
            request.error = None
            try:
                ready.append((request, arguments(request.argument, self.bucket, request.again)))
            except EverstepError as error:
                if interrupts(error):
                    raise
                request.error = error
        # Create runs first, which takes a lock that all creators of runs share: otherwise two batches could deadlock.
        ready.sort(key=lambda pair: pair[0].argument.was is not None)
        answers = self._send(connection, [values for _, values in ready])
        for (request, _), answer in zip(ready, answers, strict=True):
            found = outcome(request.argument, answer, request.again)
            request.result, request.error = (found, None) if isinstance(found, Committed) else (None, found)
        _settle_chains([request for request, _ in ready])

    def _send(self, connection: Connection, calls: list[Values]) -> list[Values]:
        """Send all calls in one round trip and one transaction."""
        if len(calls) == 1 and len(calls[0]) == ADVANCE and self._quick is not None:
            return [self._quick.ask(calls[0])]
        if len(calls) <= 1:
            return [execute(connection, self._call(values), values)[0] for values in calls]
        cursors = [connection.cursor(binary=True) for _ in calls]
        with connection.pipeline():  # it ends with one sync: the server makes one transaction of it
            try:
                for cursor, values in zip(cursors, calls, strict=True):
                    cursor.execute(self._call(values), values)
            except BaseException:
                connection.close()  # leaving the block would commit the statements before the bad value; closing undoes them
                raise
        return [cursor.fetchone() or () for cursor in cursors]

    def _call(self, values: Values) -> bytes:
        return self.sql[NAMES[len(values)]]

    def _ready(self) -> Connection:
        self._check_usable()
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
        """Return whether the session has ended. The server may report it before the driver sees that the connection is closed."""
        meaning = translated(error, self._address.url)
        if isinstance(meaning, InvalidArgument):
            return False
        closed = self._connection is not None and self._connection.closed
        return isinstance(meaning, StoreUnreachable) or (closed and isinstance(error, psycopg.Error))

    def _sent(self, error: Exception) -> bool:
        """Return whether anything may have reached the server: not if there was no connection."""
        return not isinstance(error, StoreUnreachable)

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = self._quick = None

    def _undone(self, group: list[Request], error: Exception) -> None:
        """Handle a transaction that the server refused and undid. Of several requests, each is retried alone, so that only the faulty one
        fails."""
        connection = self._connection
        meaning = explained(error, self._address, connection)
        if connection is not None and (connection.closed or connection.info.transaction_status != psycopg.pq.TransactionStatus.IDLE):
            self._drop()
        if len(group) > 1 and not isinstance(error, (StoreClosed, StoreFailed, StoreBusy)):
            for request in group:
                self._write([request])
            return
        for request in group:
            request.error = meaning
            said_by_operation = request.operation is not None and isinstance(error, EverstepError)
            if request.again and isinstance(request.error, EverstepError) and not said_by_operation:
                request.error.written = "unknown"  # this attempt was undone; the outcome of the one before is not known
            request.settled = True

    def _give_up(self, group: list[Request], error: Exception) -> None:
        for request in group:
            what = f"{self._address.url}: {error.message if isinstance(error, EverstepError) else said(error)}"
            failure = StoreUnreachable(what, written="unknown" if request.again else "no")
            failure.__cause__ = error
            request.error = failure.of(self._address.url)
            request.settled = True

    def close_after(self, last: Operation) -> None:
        """Write all queued requests, execute `last` if the server can be reached, then refuse everything."""
        self.close(lambda: self._try_last(last))

    def _try_last(self, last: Operation) -> None:
        try:
            if self._connection is not None:
                last(self._connection, False)
        except psycopg.Error:
            return  # leases that were not released expire by themselves

    def _disconnect(self) -> None:
        self._drop()


def _groups(batch: Sequence[Request]) -> list[list[Request]]:
    """Group consecutive commits; every operation is alone. Retries are grouped apart from first attempts; abandoned requests are skipped."""
    groups: list[list[Request]] = []
    for request in batch:
        if request.abandoned:
            continue
        last = groups[-1][-1] if groups else None
        if last is not None and last.operation is None and request.operation is None and last.again == request.again:
            groups[-1].append(request)
        else:
            groups.append([request])
    return groups


def _settle_chains(group: list[Request]) -> None:
    """Settle commits without records that were sent twice: such a commit has happened if one that followed it has."""
    followed = {request.argument.was.check for request in group if request.error is None and request.argument.was is not None}
    for request in reversed(group):
        commit = request.argument
        if isinstance(request.error, EverstepError) and request.error.written == "unknown" and commit.run.check in followed:
            request.result, request.error = Committed(0), None
            if commit.was is not None:
                followed.add(commit.was.check)

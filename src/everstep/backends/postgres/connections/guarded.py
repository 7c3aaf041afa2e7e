"""Connections to PostgreSQL for users' functions, inside a transaction that the functions cannot end. Relies on psycopg.

Later steps reuse a connection. Each transaction sets a mark that ends with it, which reveals a function that got a COMMIT past the
guard. Everstep's own statements go through `own`, which has no guard.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from queue import Empty, SimpleQueue
from secrets import token_hex
from typing import Any

import psycopg
from psycopg import sql
from psycopg.rows import tuple_row

from everstep.backends.contract.transactions import ended, over, refuse_ends, refused
from everstep.backends.postgres.connections.connect import Address
from everstep.backends.postgres.connections.errors import translated

_SECONDS = 600
_IDLE = 8
_MOST = 16  # of one process: a server has a hundred for all processes
_CANCEL_SECONDS = 5.0
MARK = "everstep.step"


class GuardedCursor(psycopg.Cursor[Any]):
    """A cursor that cannot end the transaction."""

    def execute(self, query: Any, *args: Any, **kwargs: Any) -> Any:
        _admit(self.connection, query)
        return super().execute(query, *args, **kwargs)

    def executemany(self, query: Any, *args: Any, **kwargs: Any) -> None:
        _admit(self.connection, query)
        super().executemany(query, *args, **kwargs)

    def stream(self, query: Any, *args: Any, **kwargs: Any) -> Iterator[Any]:
        _admit(self.connection, query)
        return super().stream(query, *args, **kwargs)

    def copy(self, statement: Any, *args: Any, **kwargs: Any) -> Any:
        _admit(self.connection, statement)
        return super().copy(statement, *args, **kwargs)


class GuardedConnection(psycopg.Connection[Any]):
    """The connection that the function of a transactional step gets."""

    mark = ""
    over = True
    lent = False

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.cursor_factory = GuardedCursor

    def commit(self) -> None:
        raise refused("commit()")

    def rollback(self) -> None:
        raise refused("rollback()")

    def close(self) -> None:
        raise refused("close()")

    def transaction(self, *args: Any, **kwargs: Any) -> Any:
        if self.over:
            raise over()
        return super().transaction(*args, **kwargs)  # a savepoint

    def set_autocommit(self, value: bool) -> None:
        raise refused("autocommit")

    def __enter__(self) -> Any:
        raise refused("a with block around the connection")

    def end(self) -> None:
        """Really close it. Waits for a thread that has sent a statement through it: freeing it meanwhile would crash the process."""
        self.over = True
        if not self.lock.acquire(blocking=False):
            with suppress(psycopg.Error):
                self.cancel_safe(timeout=_CANCEL_SECONDS)
            if not self.lock.acquire(timeout=_CANCEL_SECONDS):
                return  # without a COMMIT nothing takes effect; the connection ends with the thread that uses it
        try:
            super().close()
        finally:
            self.lock.release()


def _admit(connection: Any, query: Any) -> None:
    if connection.over:
        raise over()
    if connection.pgconn.transaction_status == psycopg.pq.TransactionStatus.IDLE:
        raise ended()  # further statements would be committed separately
    refuse_ends(query.as_string(connection) if isinstance(query, sql.Composable) else query)


def own(connection: psycopg.Connection[Any], query: bytes, values: Any = None) -> psycopg.Cursor[tuple[Any, ...]]:
    """Execute one of Everstep's own statements."""
    cursor = psycopg.Cursor(connection, row_factory=tuple_row)
    cursor.format = psycopg.pq.Format.BINARY if values is not None else psycopg.pq.Format.TEXT
    return cursor.execute(query, values)


class Lender:
    """Lends connections for one transaction each."""

    def __init__(self, address: Address):
        self.address = address
        self._idle: list[GuardedConnection] = []
        self._lock = threading.RLock()  # reentrant: a finalizer may need it while it is held
        self._room: SimpleQueue[None] = SimpleQueue()  # one item per free slot; a Semaphore holds a lock that a finalizer could wait for
        for _ in range(_MOST):
            self._room.put(None)
        self._pid = os.getpid()

    def begin(self) -> GuardedConnection:
        """Return a connection with an open transaction and no state from earlier ones. Waits while too many are lent."""
        self._await_room()
        try:
            connection = self._begin()
        except BaseException as error:
            self._room.put(None)
            if isinstance(error, psycopg.Error):
                raise translated(error, self.address.url) from error
            raise
        connection.lent = True
        return connection

    def _await_room(self) -> None:
        while True:
            with suppress(Empty):
                self._room.get(timeout=0.5)  # a signal that arrives just before the wait is handled after it
                return

    def _begin(self) -> GuardedConnection:
        """Begin a transaction; replace a connection that was lost while idle."""
        while (idle := self._take()) is not None:
            try:
                return _begun(idle)
            except psycopg.OperationalError:
                idle.end()
        return _begun(self.connect())

    def connect(self) -> GuardedConnection:
        connection = self.address.connect(seconds=_SECONDS, kind=GuardedConnection)
        assert isinstance(connection, GuardedConnection)
        return connection

    def _take(self) -> GuardedConnection | None:
        with self._lock:
            if self._pid != os.getpid():  # after a fork: the connections are the parent's
                self._idle, self._pid = [], os.getpid()
            return self._idle.pop() if self._idle else None

    def give(self, connection: GuardedConnection) -> None:
        """Take back a connection whose transaction has ended."""
        connection.over = True
        self._returned(connection)
        connection.row_factory = tuple_row
        idle = not connection.closed and connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
        with self._lock:
            if idle and len(self._idle) < _IDLE and self._pid == os.getpid():
                self._idle.append(connection)
                return
        connection.end()

    def undo(self, connection: GuardedConnection, abandoned: bool) -> None:
        """Roll back. If the statement cannot be sent, closing the connection rolls back."""
        connection.over = True
        if not abandoned and not connection.closed:
            with suppress(psycopg.Error):
                own(connection, b"ROLLBACK")
                self.give(connection)
                return
        self.drop(connection)

    def drop(self, connection: GuardedConnection) -> None:
        """Take back a connection that cannot be used again."""
        try:
            connection.end()
        finally:
            self._returned(connection)

    def _returned(self, connection: GuardedConnection) -> None:
        if connection.lent:
            connection.lent = False
            self._room.put(None)

    def close(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        if self._pid == os.getpid():
            for connection in idle:
                connection.end()


def _begun(connection: GuardedConnection) -> GuardedConnection:
    """Reset the settings of earlier functions and begin a transaction with its mark, in one round trip. No query yet: the
    function may still choose the isolation level."""
    mark = token_hex(8)
    try:
        own(connection, f"RESET SESSION AUTHORIZATION; RESET ALL; BEGIN; SET LOCAL {MARK} = '{mark}'".encode())
    except BaseException:
        connection.end()
        raise
    connection.mark, connection.over = mark, False
    return connection

"""Connections to PostgreSQL that functions of users write through, inside a transaction that they cannot end. Relies on psycopg.

A connection is used again by later steps. Each transaction sets a mark that ends with it: a function that got a COMMIT past the guard is
found out by it. Statements of Everstep's own go through `own`, which knows no guard.
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
_MOST = 16  # of one process: a server has a hundred for all
_CANCEL_SECONDS = 5.0
MARK = "everstep.step"


class GuardedCursor(psycopg.Cursor[Any]):
    """A cursor that ends no transaction."""

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
    """What the function of a transactional step gets."""

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
        """Close it, in truth. Whoever has sent a statement through it is waited for: freeing what it waits on would be no error but a crash."""
        self.over = True
        if not self.lock.acquire(blocking=False):
            with suppress(psycopg.Error):
                self.cancel_safe(timeout=_CANCEL_SECONDS)
            if not self.lock.acquire(timeout=_CANCEL_SECONDS):
                return  # without a COMMIT nothing of it holds; it ends with the thread that uses it
        try:
            super().close()
        finally:
            self.lock.release()


def _admit(connection: Any, query: Any) -> None:
    if connection.over:
        raise over()
    if connection.pgconn.transaction_status == psycopg.pq.TransactionStatus.IDLE:
        raise ended()  # what follows would hold by itself
    refuse_ends(query.as_string(connection) if isinstance(query, sql.Composable) else query)


def own(connection: psycopg.Connection[Any], query: bytes, values: Any = None) -> psycopg.Cursor[tuple[Any, ...]]:
    """A statement of Everstep's own."""
    cursor = psycopg.Cursor(connection, row_factory=tuple_row)
    cursor.format = psycopg.pq.Format.BINARY if values is not None else psycopg.pq.Format.TEXT
    return cursor.execute(query, values)


class Lender:
    """Lends connections for one transaction each."""

    def __init__(self, address: Address):
        self.address = address
        self._idle: list[GuardedConnection] = []
        self._lock = threading.RLock()  # a finalizer may use it in the middle of a use
        self._room: SimpleQueue[None] = SimpleQueue()  # a place for each; a Semaphore holds a lock that a finalizer would wait for
        for _ in range(_MOST):
            self._room.put(None)
        self._pid = os.getpid()

    def begin(self) -> GuardedConnection:
        """A connection with a transaction open, nothing of former ones left. Waits while too many are lent."""
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
                self._room.get(timeout=0.5)  # a signal that comes just before a wait is heard after it
                return

    def _begin(self) -> GuardedConnection:
        """One that was lost while it lay idle is replaced."""
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
            if self._pid != os.getpid():  # after a fork: they are the parent's
                self._idle, self._pid = [], os.getpid()
            return self._idle.pop() if self._idle else None

    def give(self, connection: GuardedConnection) -> None:
        """Take a connection back whose transaction has ended."""
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
        """Roll back. Where that cannot be said, the end of the connection says it."""
        connection.over = True
        if not abandoned and not connection.closed:
            with suppress(psycopg.Error):
                own(connection, b"ROLLBACK")
                self.give(connection)
                return
        self.drop(connection)

    def drop(self, connection: GuardedConnection) -> None:
        """Take a connection back that nothing is to be done with any more."""
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
    """One round trip: what a former function SET goes, and a transaction begins that is known by its mark. No query yet: the
    function may still choose the isolation of its transaction."""
    mark = token_hex(8)
    try:
        own(connection, f"RESET SESSION AUTHORIZATION; RESET ALL; BEGIN; SET LOCAL {MARK} = '{mark}'".encode())
    except BaseException:
        connection.end()
        raise
    connection.mark, connection.over = mark, False
    return connection

"""The connections that reads of a store in PostgreSQL share. Relies on psycopg."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import psycopg

from everstep.backends.postgres.connections.connect import Address, Connection, Rows, execute
from everstep.backends.postgres.connections.diagnosis import explained
from everstep.errors import StoreClosed, StoreUnreachable

T = TypeVar("T")
_IDLE = 8
_PAUSE = 0.1


class Readers:
    """The connections that all reads share. Each read is one statement, so one snapshot."""

    def __init__(self, address: Address, patience: float, first: Connection):
        self._address = address
        self._patience = patience
        self._idle: list[Connection] = [first]
        self._closed = False
        self.sql = address.load("read")

    def rows(self, name: str, *values: Any) -> Rows:
        return self.ask(self.sql[name], values)

    def together(self, *asked: tuple[str, Sequence[Any]]) -> list[Rows]:
        """Return the rows of several statements in one round trip."""
        return self._patiently(lambda fresh: self._ask_together(asked, fresh))

    def ask(self, sql: bytes, values: Sequence[Any]) -> Rows:
        """Return the rows of one statement. A lost connection is replaced, until the patience is exhausted."""
        return self._patiently(lambda fresh: self._ask(sql, values, fresh))

    def _patiently(self, ask: Callable[[bool], T]) -> T:
        limit = time.monotonic() + self._patience
        fresh = False
        while True:
            try:
                return ask(fresh)
            except StoreUnreachable:
                if time.monotonic() > limit:
                    raise
            if fresh:
                time.sleep(_PAUSE)
            fresh = True

    def _ask(self, sql: bytes, values: Sequence[Any], fresh: bool) -> Rows:
        with self.connection(fresh) as connection:
            try:
                return execute(connection, sql, values)
            except (psycopg.Error, UnicodeEncodeError, OverflowError) as error:
                raise explained(error, self._address, connection) from error

    def _ask_together(self, asked: Sequence[tuple[str, Sequence[Any]]], fresh: bool) -> list[Rows]:
        with self.connection(fresh) as connection:
            try:
                cursors = [connection.cursor(binary=True) for _ in asked]
                with connection.pipeline():
                    for cursor, (name, values) in zip(cursors, asked, strict=True):
                        cursor.execute(self.sql[name], values)
                return [cursor.fetchall() for cursor in cursors]
            except (psycopg.Error, UnicodeEncodeError, OverflowError) as error:
                raise explained(error, self._address, connection) from error

    def stream(self, name: str) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of one statement, a few at a time."""
        with self.connection() as connection:
            try:
                yield from connection.cursor(binary=True).stream(self.sql[name])
            except psycopg.Error as error:
                raise explained(error, self._address, connection) from error

    @contextmanager
    def connection(self, fresh: bool = False) -> Iterator[Connection]:
        connection = self._take(fresh)
        try:
            yield connection
        except BaseException:
            if not connection.closed and connection.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
                connection.close()
            raise
        finally:
            self._give(connection)

    def _take(self, fresh: bool) -> Connection:
        if self._closed:
            raise StoreClosed(f"the store {self._address.url} is closed")
        if fresh:  # if one connection was lost, the others are lost as well
            _close_all(self._idle)
        with suppress(IndexError):
            return self._idle.pop()
        return self._address.connect()

    def _give(self, connection: Connection) -> None:
        """Put a connection back. Uses no lock, on which a finalizer could block forever: a list is thread-safe, and the last one to close
        closes all."""
        if connection.closed or len(self._idle) >= _IDLE:
            connection.close()
            return
        self._idle.append(connection)
        if self._closed:
            _close_all(self._idle)

    def close(self) -> None:
        self._closed = True
        _close_all(self._idle)


def _close_all(connections: list[Connection]) -> None:
    with suppress(IndexError):  # another thread may take the last one
        while True:
            connections.pop().close()

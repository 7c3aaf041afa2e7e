"""Connections to PostgreSQL: how they are made, and a few that readers share. Relies on psycopg.

Nothing that matters for what is stored is kept in a session, so that a pooler may give each transaction another one; and no statement is prepared
where there may be a pooler (see `is_direct`). Every wait has an end that is set here: the driver's own defaults let a cut network hang for minutes.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

import psycopg
from psycopg.conninfo import conninfo_to_dict

from everstep.backends import queries
from everstep.backends.postgres_errors import translated
from everstep.errors import InvalidArgument, StoreClosed, StoreUnreachable

Connection = psycopg.Connection[tuple[Any, ...]]
Rows = list[tuple[Any, ...]]

LOCK_SECONDS = 10
_WRITE_SECONDS, _READ_SECONDS = 30, 600
_IDLE = 8
_PAUSE = 0.1
_DEFAULT = "everstep"
_OURS = ("schema", "namespace", "patience")
PATIENCE_SECONDS = 15.0
_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,62}")
_NAMESPACE = re.compile(r"[a-z0-9][a-z0-9_-]{0,49}")
_DEFAULTS = {
    "application_name": "everstep",
    "connect_timeout": "5",
    "keepalives": "1",
    "keepalives_idle": "10",
    "keepalives_interval": "3",
    "keepalives_count": "3",
    "tcp_user_timeout": "15000",
}


_ON_SERVER = {
    "tcp_user_timeout": "tcp_user_timeout",
    "keepalives_idle": "tcp_keepalives_idle",
    "keepalives_interval": "tcp_keepalives_interval",
    "keepalives_count": "tcp_keepalives_count",
}


class Address:
    """Where a store is: what to connect to, which schema it has, and how it is called without its password."""

    def __init__(self, url: str, schema: str | None = None, namespace: str | None = None, patience: float | None = None):
        parts = urlsplit(url)
        asked = parse_qsl(parts.query, keep_blank_values=True)
        schema, namespace = _agreed("schema", asked, schema), _agreed("namespace", asked, namespace)
        self.schema = _schema(schema, namespace)
        self.patience = _seconds(patience if patience is not None else dict(asked).get("patience", PATIENCE_SECONDS))
        user, at, host = parts.netloc.rpartition("@")
        self._conninfo = _joined(parts.netloc, parts.path, [(name, value) for name, value in asked if name not in _OURS])
        shown = [(name, value) for name, value in asked if name not in ("password", "sslpassword", *_OURS)]
        shown += [("namespace", namespace)] if namespace else [("schema", self.schema)] if self.schema != _DEFAULT else []
        self.url = _joined(user.partition(":")[0] + at + host, parts.path, shown)
        self._takes_options = True
        self.channel = f"everstep_{self.schema}"[:63]  # what those who wait for work listen to
        try:
            self._given = conninfo_to_dict(self._conninfo)
        except psycopg.ProgrammingError as error:
            raise InvalidArgument(f"{self.url!r} is no address of a PostgreSQL database: {error}".strip()) from None

    def connect(self, writing: bool = False, seconds: int | None = None, kind: type[Connection] = psycopg.Connection) -> Connection:
        """A new connection. A pooler may refuse settings at the start of a session; then it goes without."""
        most = seconds if seconds is not None else _WRITE_SECONDS if writing else _READ_SECONDS
        given = self._given.get("options", "")
        chosen: dict[str, Any] = {**_DEFAULTS, **self._given}
        options = f"-c statement_timeout={most * 1000} -c lock_timeout={LOCK_SECONDS * 1000} {_same_there(chosen)}"
        try:
            if self._takes_options:
                return _connect(chosen | {"options": f"{options} {given}".strip()}, kind)
        except psycopg.OperationalError as error:
            if "startup parameter" not in str(error):
                raise translated(error, self.url) from error
            self._takes_options = False
        try:
            return _connect(chosen, kind)
        except psycopg.OperationalError as error:
            raise translated(error, self.url) from error

    def load(self, name: str) -> dict[str, bytes]:
        """The named statements of a file, for this schema."""
        return {title: self.fill(text).encode() for title, text in queries.load(f"pg/{name}").items()}

    def fill(self, text: str) -> str:
        filled = text.replace("{schema}", f'"{self.schema}"').replace("{lock_timeout}", f"{LOCK_SECONDS}s")
        return filled.replace("{channel}", f"'{self.channel}'")


def _seconds(patience: Any) -> float:
    try:
        seconds = float(patience)
    except (TypeError, ValueError):
        seconds = -1.0
    if not 0 <= seconds <= 86_400:
        raise InvalidArgument(f"patience must be a number of seconds from 0 to 86,400, got {patience!r:.60}")
    return seconds


def _agreed(name: str, asked: list[tuple[str, str]], given: str | None) -> str | None:
    """An option that may stand in the URL and in the call."""
    named = dict(asked).get(name)
    if given is not None and named is not None and given != named:
        raise InvalidArgument(f"the URL says {name}={named!r}, and the call says {given!r}")
    return given if given is not None else named


def _schema(schema: str | None, namespace: str | None) -> str:
    """The schema of a store. A namespace is a schema whose name begins with ours: what PostgreSQL keeps apart best."""
    if schema is not None and namespace is not None:
        raise InvalidArgument("a namespace is a schema, so that only one of both can be named", remedy="Leave out schema or namespace.")
    if namespace is not None:
        if not _NAMESPACE.fullmatch(namespace):
            raise InvalidArgument(
                f"{namespace!r:.80} is no name for a namespace", remedy="Use up to 50 small letters, digits, hyphens and underscores."
            )
        return f"{_DEFAULT}_{namespace}"
    schema = _DEFAULT if schema is None else schema
    if not _SCHEMA.fullmatch(schema) or schema.startswith("pg_"):
        raise InvalidArgument(f"{schema!r:.80} is no name for a schema", remedy="Use small letters, digits and underscores.")
    return schema


def _same_there(chosen: dict[str, Any]) -> str:
    """What ends a dead connection here ends it on the server, too: it lets go of locks, and a reply that cannot get through is not waited for."""
    return " ".join(f"-c {theirs}={int(chosen[ours])}" for ours, theirs in _ON_SERVER.items() if str(chosen[ours]).isdecimal())


def _joined(place: str, path: str, asked: list[tuple[str, str]]) -> str:
    return f"postgresql://{place}{path}" + (f"?{urlencode(asked, quote_via=quote)}" if asked else "")


def _connect(chosen: dict[str, Any], kind: type[Connection]) -> Connection:
    return kind.connect("", autocommit=True, prepare_threshold=None, **chosen)


def is_direct(connection: Connection) -> bool:
    """Whether the session is the server's own, in which statements stay prepared. A pooler shows its clients a number that is no session's."""
    ((pid,),) = execute(connection, b"SELECT pg_backend_pid()")
    return bool(pid == connection.info.backend_pid)


class Readers:
    """The connections that reads go through. Each read is one statement, so one snapshot."""

    def __init__(self, address: Address, patience: float, first: Connection):
        self._address = address
        self._patience = patience
        self._idle: list[Connection] = [first]
        self._lock = threading.Lock()
        self._closed = False
        self.sql = address.load("read")

    def rows(self, name: str, *values: Any) -> Rows:
        return self.ask(self.sql[name], values)

    def ask(self, sql: bytes, values: Sequence[Any]) -> Rows:
        """The rows of one statement. A lost connection is replaced, until the patience is over."""
        limit = time.monotonic() + self._patience
        fresh = False
        while True:
            try:
                return self._ask(sql, values, fresh)
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
                raise translated(error, self._address.url) from error

    def stream(self, name: str) -> Iterator[tuple[Any, ...]]:
        """The rows of one statement, a few at a time."""
        with self.connection() as connection:
            try:
                yield from connection.cursor(binary=True).stream(self.sql[name])
            except psycopg.Error as error:
                raise translated(error, self._address.url) from error

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
        with self._lock, suppress(IndexError):
            if fresh:  # where one was lost, the others are lost as well
                _close_all(self._idle)
            return self._idle.pop()
        return self._address.connect()

    def _give(self, connection: Connection) -> None:
        with self._lock:
            if not connection.closed and not self._closed and len(self._idle) < _IDLE:
                self._idle.append(connection)
                return
        connection.close()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            _close_all(self._idle)


def _close_all(connections: list[Connection]) -> None:
    while connections:
        connections.pop().close()


def execute(connection: Connection, sql: bytes, values: Sequence[Any] = ()) -> Rows:
    """The rows of one statement, on a connection that the caller has."""
    cursor = connection.cursor(binary=True)
    cursor.execute(sql, values)
    result = cursor.pgresult
    return cursor.fetchall() if result is not None and result.nfields else []

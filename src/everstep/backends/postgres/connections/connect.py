"""Creates connections to PostgreSQL. Relies on psycopg.

Sessions keep no state that affects stored data, so a pooler may give each transaction another session; and no statement is prepared
if there may be a pooler (see `is_direct`). Every wait has a limit that is set here: with the driver's own defaults, a cut network blocks for
minutes.
"""

from __future__ import annotations

import re
import select
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

import psycopg
from psycopg.conninfo import conninfo_to_dict

from everstep.backends import sql_files
from everstep.backends.postgres.connections.errors import translated
from everstep.errors import InvalidArgument, UnsuitableEncoding

Connection = psycopg.Connection[tuple[Any, ...]]
Rows = list[tuple[Any, ...]]

LOCK_SECONDS = 10
_WRITE_SECONDS, _READ_SECONDS = 30, 600
_DEFAULT = "everstep"
_OURS = ("schema", "namespace", "patience")
PATIENCE_SECONDS = 15.0
_HEAR_SECONDS = 5.0
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


# Set last, so that PGCLIENTENCODING, a role's settings or the address cannot choose another: text would be read as other text or as bytes.
_FIXED = {"client_encoding": "UTF8"}
_ON_SERVER = {
    "tcp_user_timeout": "tcp_user_timeout",
    "keepalives_idle": "tcp_keepalives_idle",
    "keepalives_interval": "tcp_keepalives_interval",
    "keepalives_count": "tcp_keepalives_count",
}


class Address:
    """The address of a store: its connection settings, its schema, and its URL without the password."""

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
        self.channel = f"everstep_{self.schema}"[:63]  # the notification channel for workers
        try:
            self._given = conninfo_to_dict(self._conninfo)
        except psycopg.ProgrammingError as error:
            raise InvalidArgument(f"{self.url!r} is not a valid address of a PostgreSQL database: {error}".strip()) from None

    def connect(self, writing: bool = False, seconds: int | None = None, kind: type[Connection] = psycopg.Connection) -> Connection:
        """Return a new connection. If a pooler refuses settings at the start of a session, connect without them."""
        most = seconds if seconds is not None else _WRITE_SECONDS if writing else _READ_SECONDS
        given = self._given.get("options", "")
        chosen: dict[str, Any] = {**_DEFAULTS, **self._given, **_FIXED}
        if kind is psycopg.Connection:  # connections for users' functions keep the path that users expect
            given = f"-c search_path=pg_catalog,pg_temp {given}"
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
        """Return the named statements of a file, for this schema."""
        return {title: self.fill(text).encode() for title, text in sql_files.load("postgres", name).items()}

    def fill(self, text: str) -> str:
        filled = text.replace("{schema}", f'"{self.schema}"').replace("{lock_timeout}", f"{LOCK_SECONDS}s")
        return filled.replace("{channel}", f"'{self.channel}'")


def _seconds(patience: Any) -> float:
    try:
        seconds = float(patience)
    except (TypeError, ValueError, OverflowError):
        seconds = -1.0
    if not 0 <= seconds <= 86_400:
        raise InvalidArgument(f"patience must be a number of seconds from 0 to 86,400, got {patience!r:.60}")
    return seconds


def _agreed(name: str, asked: list[tuple[str, str]], given: str | None) -> str | None:
    """Return an option that may be in the URL or in the call."""
    named = dict(asked).get(name)
    if given is not None and named is not None and given != named:
        raise InvalidArgument(f"{name} must be the same in the URL and in the call, got {named!r} and {given!r}")
    return given if given is not None else named


def _schema(schema: str | None, namespace: str | None) -> str:
    """Return the schema of a store. A namespace is a schema whose name begins with ours: PostgreSQL separates schemas best."""
    if schema is not None and namespace is not None:
        raise InvalidArgument("schema and namespace cannot be combined: a namespace is a schema", remedy="Leave out schema or namespace.")
    if namespace is not None:
        if not _NAMESPACE.fullmatch(namespace):
            raise InvalidArgument(
                f"{namespace!r:.80} is not a valid namespace", remedy="Use up to 50 lowercase letters, digits, hyphens and underscores."
            )
        return f"{_DEFAULT}_{namespace}"
    schema = _DEFAULT if schema is None else schema
    if not _SCHEMA.fullmatch(schema) or schema.startswith("pg_"):
        raise InvalidArgument(f"{schema!r:.80} is not a valid schema name", remedy="Use lowercase letters, digits and underscores.")
    return schema


def _same_there(chosen: dict[str, Any]) -> str:
    """Return settings by which the server, too, ends a dead connection: it releases its locks and does not wait to deliver a reply."""
    return " ".join(f"-c {theirs}={int(chosen[ours])}" for ours, theirs in _ON_SERVER.items() if str(chosen[ours]).isdecimal())


def _joined(host: str, path: str, asked: list[tuple[str, str]]) -> str:
    return f"postgresql://{host}{path}" + (f"?{urlencode(asked, quote_via=quote)}" if asked else "")


def _connect(chosen: dict[str, Any], kind: type[Connection]) -> Connection:
    return kind.connect("", autocommit=True, prepare_threshold=None, **chosen)


def refuse_encoding(connection: Connection, url: str) -> None:
    """Refuse a database that cannot hold every text. The server reports its encoding at the start of a session: no round trip needed."""
    encoding = connection.info.parameter_status("server_encoding") or "UTF8"
    if encoding != "UTF8":
        name = connection.info.dbname
        raise UnsuitableEncoding(
            f"the database {name!r} at {url} has the encoding {encoding}, but a store needs UTF8; nothing was written",
            remedy=f"Create a database in UTF8 and use it instead: createdb -E UTF8 -T template0 {name}_utf8",
        )


def speak_utf8(connection: psycopg.Connection[Any]) -> None:
    """Undo a user's SET client_encoding for this transaction, so that names and notes in any script can be sent."""
    if connection.info.encoding != "utf-8":
        psycopg.Cursor(connection).execute(b"SET LOCAL client_encoding = 'UTF8'")


def is_direct(connection: Connection) -> bool:
    """Return whether the session is the server's own, in which statements stay prepared. A pooler reports a pid that no session has."""
    ((pid,),) = execute(connection, b"SELECT pg_backend_pid()")
    return bool(pid == connection.info.backend_pid)


def execute(connection: Connection, sql: bytes, values: Sequence[Any] = ()) -> Rows:
    """Return the rows of one statement on the caller's connection."""
    cursor = connection.cursor(binary=True)
    cursor.execute(sql, values)
    result = cursor.pgresult
    return cursor.fetchall() if result is not None and result.nfields else []


def hear_out(connection: Connection) -> None:
    """Cancel the running statement, and wait for its end: otherwise it could still commit after the caller has checked and found nothing.

    psycopg does this itself on Ctrl-C, but not for an error that a signal handler raised.
    """
    wire = connection.pgconn
    if connection.closed or wire.transaction_status != psycopg.pq.TransactionStatus.ACTIVE:
        return
    limit = time.monotonic() + _HEAR_SECONDS
    with suppress(psycopg.Error, OSError, ValueError):
        connection.cancel_safe(timeout=_HEAR_SECONDS)
        while time.monotonic() < limit:
            wire.consume_input()
            if wire.is_busy():
                select.select([wire.socket], [], [], 0.5)
            elif wire.get_result() is None:
                return

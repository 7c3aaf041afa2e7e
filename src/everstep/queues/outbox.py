"""Runs that are enqueued inside a transaction of the caller: they are created if it commits, and only then.

The transaction only inserts an order, so it holds no lock that others wait for. A worker makes a run from the order. The order contains the
run's id, so processing it twice makes one run. In the database of a PostgreSQL store, orders are in a table of the store. A SQLite file of
the caller gets a small table for them, and the file is named when a worker starts.
"""

from __future__ import annotations

import inspect
import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Any

from everstep.backends.contract.capability import has
from everstep.backends.contract.outbox import Outbox
from everstep.backends.contract.queues import Task
from everstep.clock import clock
from everstep.codec.values import decode, encode
from everstep.errors import Damaged, EverstepError, InvalidArgument, RunExists, StoreBusy, Unstorable
from everstep.fields import Shape
from everstep.queues.enqueue import Order, enqueue_order
from everstep.runtime.engine_store import EngineStore

_TABLE = (
    "CREATE TABLE IF NOT EXISTS everstep_orders (number INTEGER PRIMARY KEY, run TEXT NOT NULL, body BLOB NOT NULL, digest BLOB NOT NULL)"
)
_LEAVE = "INSERT INTO everstep_orders (run, body, digest) VALUES (?, ?, ?)"
_READ = "SELECT number, run, body, digest FROM everstep_orders ORDER BY number LIMIT ?"
_HAS = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'everstep_orders'"
_DROP = "DELETE FROM everstep_orders WHERE number = ?"
_AT_ONCE = 100
_BUSY_SECONDS = 1.0

Left = tuple[int, str, bytes, bytes]


class Carried(Shape, frozen=True):
    """The result of an order: the created run, or the error that prevented it."""

    run: str
    error: EverstepError | None = None


def leave(store: EngineStore, order: Order, run: str, connection: Any) -> None:
    """Insert an order in the open transaction of a connection; begins one if none is open."""
    said = {
        "name": order.name, "about": order.about, "chunks": order.chunks, "delay": order.delay, "at": clock.now_us(),
        "task": list(order.task),
    }  # fmt: skip
    body = store.framer.store().wrap(encode(said, "order"), ("order", run))
    digest = sha256(body).digest()
    if isinstance(connection, sqlite3.Connection):
        _leave_in_file(connection, (run, body, digest))
        return
    backend: Any = store.backend
    sql = backend.order_sql() if has(backend, Outbox) else None
    if sql is None or not callable(getattr(connection, "cursor", None)):
        raise InvalidArgument(
            f"connection must be a database connection for {store.url}, got a {type(connection).__module__}.{type(connection).__qualname__}",
            remedy="Pass a psycopg connection to the database of the store, or an sqlite3 connection to your own file.",
        )
    cursor = connection.cursor()
    if inspect.isawaitable(cursor) or inspect.iscoroutinefunction(cursor.execute):
        raise InvalidArgument("connection must not be async", remedy="Pass a connection of psycopg.connect().")
    cursor.execute(sql, (run.encode(), body, digest))
    cursor.close()


def _leave_in_file(connection: sqlite3.Connection, values: Sequence[Any]) -> None:
    if not connection.in_transaction:
        connection.execute("BEGIN")
    connection.execute(_TABLE)
    connection.execute(_LEAVE, values)


def carry_out(store: EngineStore, files: Sequence[str | os.PathLike[str]] = ()) -> Iterator[Carried]:
    """Make runs from the committed orders."""
    outbox: Any = store.backend if has(store.backend, Outbox) else None
    while outbox is not None and (found := outbox.orders(_AT_ONCE)):
        yield from (_carry(store, one) for one in found)
        outbox.drop_orders([number for number, *_ in found])
    for file in files:
        yield from _from_file(store, file)


def _from_file(store: EngineStore, file: str | os.PathLike[str]) -> Iterator[Carried]:
    if not Path(file).exists():
        return
    try:
        with closing(sqlite3.connect(file, timeout=_BUSY_SECONDS, isolation_level=None)) as connection:
            connection.execute("PRAGMA synchronous = FULL")
            if connection.execute(_HAS).fetchone() is None:
                return
            while found := connection.execute(_READ, (_AT_ONCE,)).fetchall():
                yield from (_carry(store, one) for one in found)
                connection.executemany(_DROP, [(number,) for number, *_ in found])
    except sqlite3.Error as error:
        raise StoreBusy(f"the orders in {os.fspath(file)!r} cannot be read: {error}") from error


def _carry(store: EngineStore, left: Left) -> Carried:
    """Make the run of one order. Drops only orders that can never succeed; a store error is raised, and the order stays."""
    _, run, body, digest = left
    if not isinstance(body, bytes) or sha256(body).digest() != digest:
        return Carried(str(run), Damaged(f"the order of run {run!r} does not match its digest", remedy="Enqueue the run again."))
    try:
        order = _read(store, run, body)
    except (Damaged, ValueError, TypeError, KeyError) as error:
        return Carried(run, Damaged(f"the order of run {run!r} cannot be read: {error}", remedy="Enqueue the run again."))
    try:
        return Carried(enqueue_order(store, order, run).id)
    except (RunExists, Unstorable, InvalidArgument) as error:
        return Carried(run, error)


def _read(store: EngineStore, run: str, body: bytes) -> Order:
    said = decode(store.framer.store().unwrap(body, ("order", run)))
    late = max(0, said["delay"] - (clock.now_us() - said["at"]))
    return Order(said["name"], said["about"], said["chunks"], Task(*said["task"]), late)

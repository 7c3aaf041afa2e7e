"""Finds out what is wrong with the tables of a store in PostgreSQL, after a statement failed. Relies on psycopg.

The server reports the first error that it meets, such as a null in another table. This module looks for the cause, so that the message names
the table that was emptied, dropped or renamed.
"""

from __future__ import annotations

import psycopg
from psycopg import errors as pg

from everstep.backends.postgres.connections.connect import Address, Connection, execute
from everstep.backends.postgres.connections.errors import said, translated
from everstep.errors import Damaged, EverstepError, NotAStore, ReadOnly

TABLES = (
    "format", "counters", "feed_end", "manifest", "runs", "run_tags", "run_meta", "records", "chunks", "tags", "messages", "pruned", "bases",
    "tombstones", "properties", "workers", "tasks", "orders", "starts", "ticks", "feed_new", "feed",
)  # fmt: skip
_NEVER_EMPTY = ("format", "counters", "feed_end", "manifest")
_PRESENT = b"""
SELECT c.relname::pg_catalog.text FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %s AND c.relname = ANY (%s::pg_catalog.text[])
"""
_NOT_WRITABLE = (pg.ReadOnlySqlTransaction, pg.ObjectNotInPrerequisiteState)
_REMEDY = "Restore the schema from a backup, or undo the change. `everstep repair SOURCE TARGET` saves the rest to a new store."


def explained(error: BaseException, address: Address, connection: Connection | None = None) -> BaseException:
    """Return the error to raise for an error of the driver, with the real cause if a table or a standby is to blame."""
    meaning = translated(error, address.url)
    if isinstance(error, _NOT_WRITABLE):
        return _read_only(error, address, connection)
    if not isinstance(error, psycopg.Error) or not isinstance(meaning, (NotAStore, Damaged)):
        return meaning
    try:
        with address.connect(seconds=5) as connection:
            cause = fault(connection, address)
    except (psycopg.Error, EverstepError):
        return meaning
    if cause is None:
        return meaning
    made = type(meaning)(f"{address.url}: {cause} ({said(error)})", remedy=_REMEDY)
    made.__cause__ = error
    return made


def _read_only(error: psycopg.Error, address: Address, connection: Connection | None) -> ReadOnly:
    """Return the error for a read-only server or session. A standby accepts no writes at all; a session setting can be changed.

    Servers before 14 do not report which it is.
    """
    standby = connection.info.parameter_status("in_hot_standby") if connection is not None and not connection.closed else None
    why = {"on": "the server is a standby", "off": "this session is read-only"}.get(
        standby or "", "the server or this session is read-only"
    )
    remedy = "" if standby == "on" else "Look for default_transaction_read_only in the settings of the role, the database and the server. "
    remedy += (
        "" if standby == "off" else "Connect to the primary server: name all hosts in the URL and add target_session_attrs=read-write."
    )
    made = ReadOnly(f"{address.url}: {why}, so nothing can be written ({said(error)})", remedy=remedy.strip())
    made.__cause__ = error
    return made


def fault(connection: Connection, address: Address) -> str | None:
    """Return the first fault: a table that is missing or empty. None if there is none, or if there is no table at all."""
    present = {name for (name,) in execute(connection, _PRESENT, (address.schema, list(TABLES)))}
    missing = [name for name in TABLES if name not in present]
    if missing and present:
        return f"the table {missing[0]} of the schema {address.schema!r} is missing: it was dropped or renamed"
    for name in _NEVER_EMPTY if present else ():
        if not execute(connection, f'SELECT 1 FROM "{address.schema}".{name} LIMIT 1'.encode()):  # noqa: S608 - fixed names
            return f"the table {name} of the schema {address.schema!r} is empty: it was truncated or its rows were deleted"
    return None


def refuse_broken(connection: Connection, address: Address) -> None:
    """Refuse a schema that holds some of a store's tables, but not those that identify it."""
    try:
        cause = fault(connection, address)
    except pg.UndefinedColumn:
        cause = None  # the next statement reports the error
    if cause is not None:
        raise NotAStore(f"{address.url} is not a complete Everstep store: {cause}", remedy=_REMEDY)

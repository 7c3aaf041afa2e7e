"""Translates PostgreSQL's errors into ours, for a save or a read. Relies on psycopg; does not decide whether to continue.

An error that the server reports on a connection that stays open has undone its transaction: nothing was written. If the connection
itself is lost, the writer finds out whether the write happened; this module only translates the error.
"""

from __future__ import annotations

import psycopg
from psycopg import errors as pg

from everstep.errors import (
    Damaged,
    EverstepError,
    InvalidArgument,
    NotAStore,
    ReadOnly,
    StoreBusy,
    StoreError,
    StoreFull,
    StoreUnreachable,
)  # fmt: skip

_BUSY = (pg.LockNotAvailable, pg.QueryCanceled, pg.DeadlockDetected, pg.SerializationFailure, pg.TooManyConnections)
_AWAY = (pg.AdminShutdown, pg.CrashShutdown, pg.CannotConnectNow, pg.ConnectionException, pg.IdleInTransactionSessionTimeout)
_REFUSED = (pg.InvalidPassword, pg.InvalidAuthorizationSpecification, pg.InvalidCatalogName)
_UNKNOWN = (pg.UndefinedTable, pg.UndefinedFunction, pg.UndefinedColumn, pg.InvalidSchemaName)
_BAD_VALUE = (pg.NumericValueOutOfRange, pg.UntranslatableCharacter, pg.CharacterNotInRepertoire, pg.ProgramLimitExceeded)
_BROKEN = (pg.DataCorrupted, pg.IndexCorrupted, pg.UniqueViolation, pg.NotNullViolation)
GRANTS = "Ask its owner for the rights that docs/postgres.md lists."


def said(error: BaseException) -> str:
    """Return the first line of an error of the server or the driver."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def translated(error: BaseException, url: str) -> BaseException:
    """Return the error to raise for an error of the driver."""
    if isinstance(error, EverstepError) or not isinstance(error, Exception):
        return error
    if isinstance(error, (UnicodeEncodeError, OverflowError)) or (isinstance(error, psycopg.DataError) and error.sqlstate is None):
        return InvalidArgument(f"a value cannot be stored in PostgreSQL: {said(error)}")
    if not isinstance(error, psycopg.Error):
        return error
    made = _of_server(error, url)
    made.__cause__ = error
    return made.of(url) if isinstance(made, StoreError) else made


def _of_server(error: psycopg.Error, url: str) -> EverstepError:
    what = f"{url}: {said(error)}"
    if "statement pooling mode" in what:
        return StoreError(
            what, remedy="Set pool_mode = transaction (or session) for this database in PgBouncer: a store needs transactions."
        )
    if isinstance(error, _BUSY):
        return StoreBusy(what, remedy="Try again. If it persists, look in pg_stat_activity for sessions that hold locks or connections.")
    if isinstance(error, (pg.DiskFull, pg.OutOfMemory)):
        return StoreFull(what)
    if isinstance(error, _BAD_VALUE) or (isinstance(error, pg.DataException) and not isinstance(error, pg.DataCorrupted)):
        return InvalidArgument(f"a value cannot be stored in PostgreSQL: {said(error)}")
    if isinstance(error, (pg.InsufficientPrivilege, pg.ReadOnlySqlTransaction)):
        return ReadOnly(what, remedy=GRANTS)
    if isinstance(error, _UNKNOWN):
        return NotAStore(f"{url} is not a complete Everstep store: {said(error)}")
    if isinstance(error, _BROKEN):
        return Damaged(what)
    if isinstance(error, _REFUSED):
        return StoreError(what, remedy="Check the user, the password and the name of the database in the URL.")
    if isinstance(error, (*_AWAY, psycopg.OperationalError, psycopg.InterfaceError)):
        return StoreUnreachable(what)
    return StoreError(what)

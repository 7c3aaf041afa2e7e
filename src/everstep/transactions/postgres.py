"""Step results in a user's PostgreSQL database: one that is not the store's, or whose store is elsewhere. Relies on psycopg.

A step's transaction share-locks the fence of its run from its last statement on; a process that raises the fence waits for that lock. So once
the fence is raised, the row of an older attempt is either committed or never will be. The tables are in the first schema of the search path.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

from everstep.backends.contract.transactions import Rows, Undone, ended
from everstep.backends.postgres.connections.connect import Address, speak_utf8
from everstep.backends.postgres.connections.errors import said
from everstep.backends.postgres.connections.guarded import GuardedConnection, Lender, own
from everstep.backends.postgres.user_transaction import lost
from everstep.clock import clock
from everstep.errors import EverstepError, LostLease, StoreUnreachable, TransactionUnknown

_PATIENCE_SECONDS = 15.0
_PAUSE = 0.1
_LOCK = 0x65766572  # held while the tables are created
_TABLES = b"""
CREATE TABLE IF NOT EXISTS everstep_runs (run bytea PRIMARY KEY, epoch bigint NOT NULL, at bigint NOT NULL);
CREATE TABLE IF NOT EXISTS everstep_steps (run bytea, address text, epoch bigint NOT NULL, at bigint NOT NULL, content bytea NOT NULL,
    digest bytea NOT NULL, PRIMARY KEY (run, address))
"""
_HOME = b"""
SELECT pg_catalog.quote_ident(n.nspname) || '.' FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
WHERE c.relname = 'everstep_runs' AND n.nspname = ANY (pg_catalog.current_schemas(false))
ORDER BY pg_catalog.array_position(pg_catalog.current_schemas(false), n.nspname) LIMIT 1
"""
_ENTER = b"""
INSERT INTO {home}everstep_runs AS old VALUES (%s, %s, %s) ON CONFLICT (run) DO UPDATE SET epoch = excluded.epoch, at = excluded.at
WHERE old.epoch <= excluded.epoch RETURNING epoch
"""
_DELETE = b"""
DELETE FROM {home}everstep_steps AS old USING unnest(%s::bytea[], %s::text[]) AS done (run, address)
WHERE old.run = done.run AND old.address = done.address
"""
_DURABLY = b"SELECT pg_catalog.set_config('synchronous_commit', 'on', true) WHERE pg_catalog.current_setting('synchronous_commit') = 'off'"
_FENCE = b"SELECT epoch, pg_catalog.current_setting('everstep.step', true) FROM {home}everstep_runs WHERE run = %s FOR SHARE"
_FIND = b"SELECT content, digest FROM {home}everstep_steps WHERE run = %s AND address = %s"
_LOCK_FENCE = b"SELECT 1 FROM {home}everstep_runs WHERE run = %s FOR UPDATE"
_ADDRESSES = b"SELECT address FROM {home}everstep_steps WHERE run = %s"
_INSERT = b"INSERT INTO {home}everstep_steps VALUES (%s, %s, %s, %s, %s, %s)"


class PostgresResults:
    """The step results of one database. `home` is the schema of its tables: a user's function may change the search path."""

    def __init__(self, url: str):
        address = Address(url)
        self.url = address.url
        self.done: deque[tuple[bytes, str]] = deque()
        self.lender = Lender(address)
        self.home = b""

    def ask(self, connection: GuardedConnection, query: bytes, values: tuple[Any, ...]) -> psycopg.Cursor[tuple[Any, ...]]:
        return own(connection, query.replace(b"{home}", self.home), values)

    def delete(self, connection: GuardedConnection, rows: Rows) -> None:
        if rows:
            self.ask(connection, _DELETE, ([run for run, _ in rows], [address for _, address in rows]))

    def rest(self) -> None:
        self.lender.close()

    @contextmanager
    def bare(self) -> Iterator[GuardedConnection]:
        connection = self.lender.begin()
        try:
            yield connection
            own(connection, b"COMMIT")
        except BaseException:
            self.lender.undo(connection, abandoned=False)
            raise
        self.lender.give(connection)

    def enter(self, run: bytes, name: str, epoch: int, recorded: Callable[[str], bool]) -> None:
        with self.bare() as connection:
            self.home = _made_tables(connection)
            own(connection, _DURABLY)
            if self.ask(connection, _ENTER, (run, epoch, clock.now_us())).fetchone() is None:
                raise overtaken(name, epoch)
            rows = self.ask(connection, _ADDRESSES, (run,)).fetchall()
            self.delete(connection, [(run, address) for (address,) in rows if recorded(address)])

    def begin(self, run: bytes, name: str, epoch: int, address: str) -> PostgresSession:
        connection = self.lender.begin()
        try:
            found = self.ask(connection, _FIND, (run, address)).fetchone()
        except BaseException:
            self.lender.undo(connection, abandoned=False)
            raise
        return PostgresSession(self, connection, (run, name, epoch, address), found)

    def clear(self, done: Rows) -> None:
        with self.bare() as connection:
            self.delete(connection, done)


class PostgresSession:
    """The transaction of one step."""

    def __init__(self, results: PostgresResults, connection: GuardedConnection, about: tuple[bytes, str, int, str], kept: Any):
        self._results = results
        self._lender = results.lender
        self._about = about
        self.connection = connection
        self.kept: tuple[bytes, bytes] | None = kept

    def commit(self, content: bytes, digest: bytes, done: Rows) -> None:
        connection = self.connection
        try:
            self._write(content, digest, done)
        except BaseException:
            self.rollback()
            raise
        connection.over = True
        try:
            own(connection, b"COMMIT")
        except psycopg.Error as error:
            if not lost(connection, error):
                self.rollback()
                raise Undone(error) from error
            self._lender.drop(connection)
            if not self._settle(error):
                raise Undone(error) from error
        except BaseException:
            self._lender.drop(connection)  # the next attempt at the run finds out
            raise
        else:
            self._lender.give(connection)

    def _write(self, content: bytes, digest: bytes, done: Rows) -> None:
        run, name, epoch, address = self._about
        connection = self.connection
        if connection.closed or connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE:
            raise Undone(ended() if not connection.closed else psycopg.OperationalError("the connection was lost in the step"))
        try:
            speak_utf8(connection)
            own(connection, _DURABLY)
            fence = self._results.ask(connection, _FENCE, (run,)).fetchone()
            if fence is not None and fence[1] != connection.mark:
                raise Undone(ended())
            if fence is None or fence[0] != epoch:
                raise overtaken(name, epoch)
            self._results.delete(connection, done)
            self._results.ask(connection, _INSERT, (run, address, epoch, clock.now_us(), content, digest))
        except psycopg.Error as error:
            raise Undone(error) from error

    def _settle(self, cause: Exception) -> bool:
        """Whether a COMMIT succeeded whose connection was lost. The lost transaction holds the fence until the server has ended it."""
        limit = time.monotonic() + _PATIENCE_SECONDS
        while True:
            try:
                return self._happened()
            except (psycopg.Error, StoreUnreachable) as error:
                if time.monotonic() > limit:
                    what = error.message if isinstance(error, EverstepError) else said(error)
                    about = f"step {self._about[3]} of run {self._about[1]!r}"
                    raise TransactionUnknown(f"the connection was lost while {about} was being committed: {what}") from cause
            time.sleep(_PAUSE)

    def _happened(self) -> bool:
        run, _, _, address = self._about
        connection = self._lender.begin()
        try:
            self._results.ask(connection, _LOCK_FENCE, (run,))
            return self._results.ask(connection, _FIND, (run, address)).fetchone() is not None
        finally:
            self._lender.undo(connection, abandoned=False)

    def rollback(self, abandoned: bool = False) -> None:
        self._lender.undo(self.connection, abandoned)


def overtaken(name: str, epoch: int) -> LostLease:
    return LostLease(f"run {name!r} was taken over: epoch {epoch} may no longer write to this database")


def _made_tables(connection: GuardedConnection) -> bytes:
    """Return the schema of the tables, which the first caller creates while others wait. If they exist, no right to create tables is needed."""
    found = own(connection, _HOME).fetchone()
    if found is None:
        own(connection, b"SELECT pg_catalog.pg_advisory_xact_lock(%s)", (_LOCK,))
        own(connection, _TABLES)
        found = own(connection, _HOME).fetchone()
    assert found is not None
    return str(found[0]).encode()

"""A user's transaction in the store's own database, whose last statement is the commit of the step. Relies on psycopg.

COMMIT is sent after the answer to that statement is known, never with it: a refused commit must undo the user's statements. So
if the connection is lost before COMMIT was sent, nothing was written. If it is lost afterwards, the server keeps a lock on the run's row
until it has committed or rolled back; a process that gets that lock can read the outcome.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import psycopg

from everstep.backends.contract.core import Commit, Committed
from everstep.backends.contract.transactions import Undone, ended
from everstep.backends.postgres.commit import NAMES, arguments, outcome
from everstep.backends.postgres.connections.connect import speak_utf8
from everstep.backends.postgres.connections.errors import said
from everstep.backends.postgres.connections.guarded import MARK, Lender, own
from everstep.backends.postgres.format import BUCKETS
from everstep.errors import EverstepError, StoreUnreachable, TransactionUnknown

_PAUSE = 0.1
_SETTLE = b"SELECT pk FROM {schema}.runs WHERE id = %s AND key = %s FOR NO KEY UPDATE"
_LOOK = b"SELECT 1 FROM {schema}.records WHERE run = %s AND seq = %s AND digest = %s"


class PostgresTransaction:
    """One transaction. `barrier` returns when all commits that were submitted before are settled."""

    def __init__(self, lender: Lender, sql: dict[str, bytes], barrier: Callable[[], object], patience: float):
        self._lender = lender
        self._sql = sql
        self._barrier = barrier
        self._patience = patience
        self.connection = lender.begin()

    def commit(self, commit: Commit) -> Committed:
        try:
            self._barrier()
            found = self._last_statement(commit)
        except BaseException:
            self.rollback()
            raise
        self._end(commit)
        return found

    def _last_statement(self, commit: Commit) -> Committed:
        """Send the commit, in a randomly chosen bucket: with that of the store's writer, the two would wait for each other."""
        connection = self.connection
        if connection.closed or connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE:
            raise Undone(ended()) if not connection.closed else self._lost("in the step")
        values = arguments(commit, os.urandom(1)[0] % BUCKETS, again=False)
        call = self._sql[NAMES[len(values)]].replace(b"SELECT code", f"SELECT pg_catalog.current_setting('{MARK}', true), code".encode(), 1)
        try:
            speak_utf8(connection)
            mark, *answer = own(connection, call, values).fetchone() or ("",)
        except psycopg.Error as error:
            raise (self._lost(said(error)) if lost(connection, error) else Undone(error)) from error
        if mark != connection.mark:
            raise Undone(ended())
        found = outcome(commit, tuple(answer), again=False)
        if not isinstance(found, Committed):
            raise found
        return found

    def _lost(self, how: str) -> StoreUnreachable:
        """Return the error for a lost server if nothing was written: the step is not at fault."""
        url = self._lender.address.url
        failure = StoreUnreachable(f"{url}: the connection was lost before the step was committed: {how}", written="no")
        failure.address = url
        return failure

    def _end(self, commit: Commit) -> None:
        connection = self.connection
        connection.over = True
        try:
            own(connection, b"COMMIT")
        except psycopg.Error as error:
            if not lost(connection, error):  # a constraint or a conflict that the server detected at the end
                self.rollback()
                raise Undone(error) from error
            self._lender.drop(connection)
            if not self._settle(commit, error):
                raise self._lost(said(error)) from error
        except BaseException as error:  # Ctrl-C: find out the outcome before the caller can ask
            self._lender.drop(connection)
            self._settle(commit, error)
            raise
        else:
            self._lender.give(connection)

    def _settle(self, commit: Commit, cause: BaseException) -> bool:
        """Find out whether a commit happened whose connection was lost at its end."""
        limit = time.monotonic() + self._patience
        while True:
            try:
                return self._happened(commit)
            except (psycopg.Error, StoreUnreachable) as error:
                if time.monotonic() > limit:
                    what = error.message if isinstance(error, EverstepError) else said(error)
                    raise TransactionUnknown(
                        f"the connection was lost when the step of run {commit.run.id!r} was committed: {what}"
                    ) from cause
            time.sleep(_PAUSE)

    def _happened(self, commit: Commit) -> bool:
        fill = self._lender.address.fill
        connection = self._lender.begin()
        try:
            row = own(connection, fill(_SETTLE.decode()).encode(), (commit.run.id, commit.run.key)).fetchone()
            wanted = commit.run.head_seq, commit.run.head_digest
            return row is not None and own(connection, fill(_LOOK.decode()).encode(), (row[0], *wanted)).fetchone() is not None
        finally:
            self._lender.undo(connection, abandoned=False)

    def rollback(self, abandoned: bool = False) -> None:
        self._lender.undo(self.connection, abandoned)


def lost(connection: psycopg.Connection[object], error: psycopg.Error) -> bool:
    """Return whether an error leaves open what the server did. Not if the server itself reported it and the connection is still usable."""
    return connection.closed or error.sqlstate is None or error.sqlstate.startswith(("57P", "08"))

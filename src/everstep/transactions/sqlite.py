"""Step results in a user's SQLite file, and the connection that functions write through. Relies on sqlite3, which users know.

Every transaction begins IMMEDIATE: one at a time writes the file, so its reads stay true until it ends. COMMIT waits for the
disk (synchronous=EXTRA) in whatever journal mode the file has. Never changes that mode, nor a table of the user.
"""

from __future__ import annotations

import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from everstep.backends.contract.transactions import Rows, Undone, ended, over, refuse_ends, refused
from everstep.clock import clock
from everstep.errors import LostLease, TransactionEnded, TransactionUnknown
from everstep.system import needs_full_sync

BUSY_SECONDS = 30.0
_IDLE = 4
_TABLES = (
    "CREATE TABLE IF NOT EXISTS everstep_runs (run BLOB PRIMARY KEY, epoch INTEGER NOT NULL, at INTEGER NOT NULL) WITHOUT ROWID",
    """CREATE TABLE IF NOT EXISTS everstep_steps (
        run BLOB, address TEXT, epoch INTEGER NOT NULL, at INTEGER NOT NULL, content BLOB NOT NULL, digest BLOB NOT NULL,
        PRIMARY KEY (run, address)
    ) WITHOUT ROWID""",
)
# The comment separates these, in the cache of prepared statements, from those that a function could send past the authorizer.
_BEGIN, _COMMIT, _ROLLBACK = "BEGIN IMMEDIATE /* everstep */", "COMMIT /* everstep */", "ROLLBACK /* everstep */"
_ENTER = (
    "INSERT INTO everstep_runs VALUES (?1, ?2, ?3) ON CONFLICT (run) DO UPDATE SET epoch = ?2, at = ?3 WHERE epoch <= ?2 RETURNING epoch"
)


class GuardedCursor(sqlite3.Cursor):
    """A cursor that cannot end the transaction."""

    connection: GuardedConnection

    def execute(self, sql: str, *args: Any) -> Any:
        with self.connection.admitting(sql):
            return super().execute(sql, *args)

    def executemany(self, sql: str, *args: Any) -> Any:
        with self.connection.admitting(sql):
            return super().executemany(sql, *args)

    def executescript(self, sql_script: str) -> Any:
        raise TransactionEnded("executescript() commits before it begins", remedy="Pass each statement of the script to execute().")


class GuardedConnection(sqlite3.Connection):
    """The connection that the function of a transactional step gets."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.over = True
        self.using = threading.RLock()  # held for one statement at a time: a thread that abandons a step waits for it
        self._ours = self._denied = False
        super().set_authorizer(self._authorize)

    def _authorize(self, action: int, *about: Any) -> int:
        if action == sqlite3.SQLITE_TRANSACTION and not self._ours:
            self._denied = True
            return sqlite3.SQLITE_DENY
        return sqlite3.SQLITE_OK

    @contextmanager
    def admitting(self, sql: str) -> Iterator[None]:
        """Guard a statement of the function."""
        with self.using:
            if self.over:
                raise over()
            refuse_ends(sql)
            if not self.in_transaction:
                raise ended()  # an ON CONFLICT ROLLBACK or a full disk ended it: the next statements would be committed on their own
            self._denied = False
            try:
                yield
            except sqlite3.DatabaseError as error:
                if self._denied:
                    raise refused("ending the transaction") from error
                raise

    def own(self, sql: str, values: tuple[Any, ...] = ()) -> list[Any]:
        """Execute a statement of Everstep itself."""
        with self.using:
            self._ours = True
            try:
                cursor = sqlite3.Cursor(self)
                cursor.row_factory = None
                return cursor.execute(sql, values).fetchall()
            finally:
                self._ours = False

    def cursor(self, factory: Any = GuardedCursor) -> Any:
        if not issubclass(factory, GuardedCursor):
            raise TransactionEnded("a cursor of another class could end the transaction", remedy="Use execute() or cursor().")
        return super().cursor(factory)

    def execute(self, sql: str, *args: Any) -> Any:
        return self.cursor().execute(sql, *args)

    def executemany(self, sql: str, *args: Any) -> Any:
        return self.cursor().executemany(sql, *args)

    def executescript(self, sql_script: str) -> Any:
        return self.cursor().executescript(sql_script)

    def commit(self) -> None:
        raise refused("commit()")

    def rollback(self) -> None:
        raise refused("rollback()")

    def close(self) -> None:
        raise refused("close()")

    def set_authorizer(self, *args: Any, **kwargs: Any) -> None:
        raise refused("set_authorizer()")

    def __enter__(self) -> Any:
        raise refused("a with block around the connection")

    def end(self) -> None:
        """Really close the connection and roll back. Interrupts a statement that another thread is executing."""
        self.over = True
        self.interrupt()
        while not self.using.acquire(timeout=0.05):
            self.interrupt()  # a statement that had not begun at the first interrupt
        try:
            self._ours = True
            super().rollback()  # closing alone leaves the transaction open while a cursor of it is referenced
            super().close()
        finally:
            self.using.release()


class SqliteResults:
    """The step results in one file."""

    def __init__(self, path: str):
        self.url = path
        self.done: deque[tuple[bytes, str]] = deque()
        self._idle: list[GuardedConnection] = []
        self._lock = threading.RLock()
        self._turn = threading.Lock()  # threads of one process take turns here, instead of polling SQLite

    def _connect(self) -> GuardedConnection:
        connection = sqlite3.connect(
            self.url, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False, factory=GuardedConnection
        )
        assert isinstance(connection, GuardedConnection)
        connection.own("PRAGMA synchronous = EXTRA")
        if needs_full_sync():
            connection.own("PRAGMA fullfsync = ON")
            connection.own("PRAGMA checkpoint_fullfsync = ON")
        return connection

    def _take(self) -> GuardedConnection:
        with self._lock:
            idle = self._idle.pop() if self._idle else None
        return idle or self._connect()

    def give(self, connection: GuardedConnection) -> None:
        connection.over = True
        connection.row_factory, connection.text_factory = None, str
        with self._lock:
            if len(self._idle) < _IDLE and not connection.in_transaction:
                self._idle.append(connection)
                return
        connection.end()

    def start(self) -> GuardedConnection:
        """Return the only connection that may write. Waits for threads of this process without limit, for other processes 30 seconds."""
        while not self._turn.acquire(timeout=0.5):
            pass  # short waits: a signal that arrives just before a wait is handled after it
        try:
            connection = self._take()
            try:
                connection.own(_BEGIN)
            except BaseException:
                connection.end()
                raise
        except BaseException:
            self._turn.release()
            raise
        connection.over = False
        return connection

    def finish(self, connection: GuardedConnection) -> None:
        """Commit. If that fails, leave no transaction open."""
        try:
            connection.own(_COMMIT)
        except BaseException:
            self.undo(connection, abandoned=True)
            raise
        self.give(connection)
        self._turn.release()

    def undo(self, connection: GuardedConnection, abandoned: bool) -> None:
        """Roll back. If ROLLBACK fails, closing the connection rolls back."""
        try:
            connection.over = True
            with suppress(sqlite3.Error):
                if not abandoned:
                    if connection.in_transaction:
                        connection.own(_ROLLBACK)
                    self.give(connection)
                    return
            connection.end()
        finally:
            self._turn.release()

    def rest(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.end()

    @contextmanager
    def bare(self) -> Iterator[GuardedConnection]:
        connection = self.start()
        try:
            yield connection
        except BaseException:
            self.undo(connection, abandoned=False)
            raise
        self.finish(connection)

    def enter(self, run: bytes, name: str, epoch: int, recorded: Callable[[str], bool]) -> None:
        with self.bare() as connection:
            for table in _TABLES:
                connection.own(table)
            if not connection.own(_ENTER, (run, epoch, clock.now_us())):
                raise overtaken(name, epoch)
            rows = connection.own("SELECT address FROM everstep_steps WHERE run = ?", (run,))
            _delete(connection, [(run, address) for (address,) in rows if recorded(address)])

    def begin(self, run: bytes, name: str, epoch: int, address: str) -> SqliteSession:
        connection = self.start()
        try:
            found = connection.own("SELECT content, digest FROM everstep_steps WHERE run = ? AND address = ?", (run, address))
        except BaseException:
            self.undo(connection, abandoned=False)
            raise
        return SqliteSession(self, connection, (run, name, epoch, address), found[0] if found else None)

    def clear(self, done: Rows) -> None:
        with self.bare() as connection:
            _delete(connection, done)


class SqliteSession:
    """The transaction of one step."""

    def __init__(self, results: SqliteResults, connection: GuardedConnection, about: tuple[bytes, str, int, str], kept: Any):
        self._results = results
        self._about = about
        self.connection = connection
        self.kept: tuple[bytes, bytes] | None = kept

    def commit(self, content: bytes, digest: bytes, done: Rows) -> None:
        results, connection = self._results, self.connection
        try:
            connection.over = True
            self._write(content, digest, done)
        except BaseException:
            self.rollback()
            raise
        try:
            results.finish(connection)
        except sqlite3.Error as error:
            if not self._happened(error):
                raise Undone(error) from error

    def _write(self, content: bytes, digest: bytes, done: Rows) -> None:
        run, name, epoch, address = self._about
        connection = self.connection
        if not connection.in_transaction:
            raise Undone(ended())
        if connection.own("SELECT epoch FROM everstep_runs WHERE run = ?", (run,)) != [(epoch,)]:
            raise overtaken(name, epoch)
        try:
            _delete(connection, done)
            connection.own("INSERT INTO everstep_steps VALUES (?, ?, ?, ?, ?, ?)", (run, address, epoch, clock.now_us(), content, digest))
        except sqlite3.Error as error:
            raise Undone(error) from error

    def _happened(self, cause: Exception) -> bool:
        """Whether a COMMIT that reported a failure is in the file."""
        run, name, _, address = self._about
        try:
            connection = self._results._connect()
            found = connection.own("SELECT 1 FROM everstep_steps WHERE run = ? AND address = ?", (run, address))
            connection.end()
        except sqlite3.Error as error:
            raise TransactionUnknown(
                f"{self._results.url} failed while step {address} of run {name!r} was being committed: {error}"
            ) from cause
        return bool(found)

    def rollback(self, abandoned: bool = False) -> None:
        self._results.undo(self.connection, abandoned)


def overtaken(name: str, epoch: int) -> LostLease:
    return LostLease(f"run {name!r} was taken over: epoch {epoch} may no longer write to this database")


def _delete(connection: GuardedConnection, rows: Rows) -> None:
    for row in rows:
        connection.own("DELETE FROM everstep_steps WHERE run = ? AND address = ?", row)

"""The file of a SQLite store: identifies it, creates a new one, connects to it. Relies on `files.format` for its tables.

Files: the store is 0600 (SQLite gives -wal and -shm the same mode), a folder created for it 0700. A new store is built under
another name and linked to its own when it is complete, so that no process ever sees half of one. The file is
opened only through SQLite and by `files.paths`: closing a descriptor of it drops the locks that SQLite holds in this process. Files of a
killed creation are removed by the next creation, or by the next process that opens the store.
A store of an older format is migrated when it is opened; if it cannot be written, it cannot be opened.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from threading import Lock
from typing import Any
from weakref import WeakSet, finalize

import apsw

from everstep.backends import sql_files
from everstep.backends.sqlite.agreement import adds_up
from everstep.backends.sqlite.errors import read_error, write_error
from everstep.backends.sqlite.files import format as sqlite_format
from everstep.backends.sqlite.files.create import discard, folder_error, link, remove_unfinished, unfinished
from everstep.backends.sqlite.files.format import APPLICATION_ID, FORMAT, has_its_tables, is_known
from everstep.backends.sqlite.files.leftovers import foreign_wal, refuse_leftovers
from everstep.backends.sqlite.files.os_fork import refuse_unsafe
from everstep.backends.sqlite.files.parts import attach
from everstep.backends.sqlite.files.paths import hold, refuse_links, refuse_mounted
from everstep.backends.sqlite.files.rollback_guard import RollbackGuard, Seen
from everstep.backends.sqlite.files.watch import FileWatch
from everstep.errors import Damaged, ForeignWal, InvalidArgument, NewerFormat, NotAStore, ReadOnly, RolledBack, StoreError
from everstep.system import needs_full_sync, sync_folder, sync_parents

OWN_FOLDER = ".everstep"
BUSY_MS = 30_000
_SQL = sql_files.load("sqlite", "read")
_LOOKS = 4
_CALLS_END = 500  # times 10 ms: no call of SQLite that another thread makes takes longer


def whole_number(name: str, value: object, most: int) -> int:
    """Return an option that must be an integer from 0 to `most`."""
    if type(value) is not int or not 0 <= value <= most:
        from everstep.codec.explain import shown  # only for the message

        raise InvalidArgument(f"{name} must be an integer from 0 to {most:,}, got {shown(value)}")
    return value


class SqliteFile:
    """One store file, known to be ours. `read_only` is the reason why it cannot be written, or None."""

    def __init__(self, path: str | os.PathLike[str], create: bool = True, busy_ms: int = BUSY_MS, accept_older: bool = False) -> None:
        self._file_path = Path(os.path.realpath(path))
        self.path = str(self._file_path)
        self.wal = self.path + "-wal"
        self.busy_ms = whole_number("busy_ms", busy_ms, 2**31 - 1)  # SQLite takes an int of C
        self.read_only: str | None = None
        self.rollback_guard = RollbackGuard(self.path)
        self._first: apsw.Connection | None = None
        self._connections: WeakSet[apsw.Connection] = WeakSet()
        self._connecting = Lock()  # a WeakSet must not grow while it is listed
        refuse_unsafe(self.path)
        if not self._file_path.exists():
            refuse_leftovers(self._file_path)
            if not create:
                raise NotAStore.nothing_at(self.path)
            _create(self._file_path)
        self._refuse_other_things()
        self._refuse_odd_neighbours()
        self._refuse_foreign_folder()
        refuse_links(self._file_path)
        refuse_mounted(self._file_path)
        held = hold(self._file_path)
        self.watch = FileWatch(self.path)
        try:
            self._look(accept_older)
        except BaseException:
            held.release()
            raise
        self.release = held.release
        finalize(self, held.release).atexit = False  # for a store that was never closed

    def _look(self, accept_older: bool) -> None:
        """Identify the file, and refuse it if it is not the expected one."""
        seen = self.rollback_guard.recall()  # before the store is read: other processes keep writing both
        version = self._identify()
        self._refuse_foreign_wal()
        if version < FORMAT:
            self._compare_old(seen, accept_older)
            self._migrate(version)
            self._identify()
        self._compare(seen, accept_older)

    def _refuse_other_things(self) -> None:
        info = self._file_path.stat()
        if not stat.S_ISREG(info.st_mode):
            raise NotAStore(f"{self.path} is not an Everstep store: it is not a regular file")
        if info.st_size == 0:
            raise NotAStore(
                f"{self.path} is not an Everstep store: it is empty",
                remedy="If this file was a store, restore it from a backup. Otherwise delete it; Everstep will create a new store.",
            )

    def _refuse_odd_neighbours(self) -> None:
        """Refuse odd files beside the store, which are opened by name: a pipe would block us, a link would lead somewhere else."""
        for name, is_right in ((f"-{part}", stat.S_ISREG) for part in ("wal", "shm", "journal", "seen")):
            self._refuse_odd(name, is_right)
        self._refuse_odd("-locks", stat.S_ISDIR)

    def _refuse_odd(self, name: str, is_right: Callable[[int], bool]) -> None:
        try:
            mode = os.lstat(self.path + name).st_mode
        except FileNotFoundError:
            return
        if not is_right(mode):
            raise NotAStore(f"{self.path}{name} is not a {'folder' if name == '-locks' else 'regular file'}", remedy=_odd_remedy(name))

    def _refuse_foreign_folder(self) -> None:
        """Refuse a folder of another user that everyone may write: another user could swap the files."""
        folder, me = self._file_path.parent, os.geteuid()
        info = folder.stat()
        if not info.st_mode & stat.S_IWOTH:
            return
        trusted = (0, me)
        if info.st_uid in trusted and self._file_path.stat().st_uid in trusted:
            return
        reason = f"{folder} or the store in it belongs to another user and can be written by everyone"
        if me != 0:
            raise StoreError(reason, remedy="Use your own folder, or remove the write permission for other users.")
        self.read_only = reason

    def _identify(self) -> int:
        """Return the format, through a read-only connection, which cannot change a file that is not ours."""
        try:
            with closing(self._unmerged(self._open(apsw.SQLITE_OPEN_READONLY))) as connection:
                application, version, right = _what_it_says(connection)
        except (apsw.CantOpenError, apsw.ReadOnlyError) as error:
            if os.access(self._file_path.parent, os.W_OK):
                raise read_error(error, self.path) from error
            with closing(self._open_immutable()) as connection:
                application, version, right = _what_it_says(connection)
        except apsw.Error as error:
            raise read_error(error, self.path) from error
        if application != APPLICATION_ID or not isinstance(version, int) or (version <= FORMAT and not is_known(version)):
            raise NotAStore(f"{self.path} is not an Everstep store: it is empty or a database of another program")
        if version > FORMAT:
            raise NewerFormat(f"{self.path} has format {version}; this version of Everstep knows formats up to {FORMAT}")
        if not right:
            raise Damaged(
                f"the tables and indexes of {self.path} are not those of format {version}: it is damaged, or another program made it",
                remedy="Save the undamaged part to a new store: everstep.repair(path, new_path).",
            )
        return version

    def _refuse_foreign_wal(self) -> None:
        """Refuse a file that the WAL beside it was not made for, before the two are merged."""
        for attempt in range(_LOOKS):
            seen = self.rollback_guard.recall()
            if not self._has_wal() or (seen is not None and seen.file == self.rollback_guard.file()):
                return
            try:
                with closing(self._unmerged(self.reader())) as connection:
                    reason = foreign_wal(connection, self._open_alone(), Path(self.wal))
            except (StoreError, apsw.Error):
                return  # other damage: the next read reports it
            if reason is None:
                return
            time.sleep(0.005 * 2**attempt)  # another process may be merging the WAL right now
        from shlex import quote

        raise ForeignWal(
            f"{self.wal} does not belong to {self.path}: {reason}. Nothing was changed",
            remedy=f"Restore the file that the WAL belongs to: its newest saves are in the WAL. To use {self._file_path.name} without them, "
            f"move the WAL away: mv {quote(self.wal)} {quote(self.wal + '.old')}",
        )

    @staticmethod
    def _unmerged(connection: apsw.Connection) -> apsw.Connection:
        """Return a connection that does not merge the WAL when it is closed, until the file is known to be the right one."""
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        return connection

    def _unmerged_soon(self, connection: apsw.Connection) -> None:
        """Do that with a connection that another thread, such as the one that merges the WAL, may be using: wait until its call has ended."""
        for _ in range(_CALLS_END):
            try:
                self._unmerged(connection)
            except apsw.ThreadingViolationError:
                time.sleep(0.01)
            else:
                return
        self._unmerged(connection)

    def _compare_old(self, seen: Seen | None, accept_older: bool) -> None:
        """Refuse a store of an older format that is older than the rollback guard has seen, before it is migrated."""
        if seen is None or accept_older:
            return
        try:
            connection = self.reader()
        except StoreError:
            return  # the migration meets the same error, with more detail
        with closing(self._unmerged(connection)):
            self._refuse_older(connection, seen)

    def _compare(self, seen: Seen | None, accept_older: bool) -> None:
        """Refuse a store that is older than the rollback guard has seen, or whose file may be."""
        try:
            self._first = self._unmerged(self._bare_reader())
        except StoreError:
            return  # other damage: the next read reports it
        self._connections.add(self._first)
        try:
            if seen is not None:
                self._refuse_older(self._first, seen)
        except RolledBack:
            if not accept_older:
                self._first.close()
                raise
            self.rollback_guard.forget()
        self._first.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0)

    def _refuse_older(self, connection: apsw.Connection, seen: Seen) -> None:
        try:
            identity, writes = connection.execute(_SQL["seen"]).fetchone() or (None, None)
        except (apsw.Error, UnicodeDecodeError):
            return  # other damage, as above
        if identity != seen.identity or type(writes) is not int:
            return
        if writes < seen.writes:
            raise RolledBack(f"{self.path} is an older version than this machine has seen: {seen.writes - writes} writes are missing")
        if self._has_wal() and self.rollback_guard.file() != seen.file and not _adds_up(connection):
            raise RolledBack(f"{self.path} is not the file that its WAL belongs to: its rows do not add up to the manifest in the WAL")

    def _has_wal(self) -> bool:
        """Return whether part of the store is in the WAL."""
        wal = Path(self.wal)
        return wal.exists() and wal.stat().st_size > 0

    def readers(self) -> list[apsw.Connection]:
        """Return the connection that first read the store, for the reader, so that the last process to close the store merges the WAL."""
        first, self._first = self._first, None
        return [] if first is None else [self._attached(first)]

    def _migrate(self, version: int) -> None:
        try:
            with closing(self.writer()) as connection:
                sqlite_format.migrate(connection)
        except (apsw.Error, ReadOnly) as error:
            known = write_error(error, self.path)
            if not isinstance(known, ReadOnly):
                raise known from error
            raise ReadOnly(
                f"{self.path} has format {version} of an older Everstep, and cannot be migrated to format {FORMAT}: {known.message}",
                remedy="Open it once with write access to it and its folder, or read a copy of it.",
            ) from error

    def _open(self, flags: int, name: str | None = None) -> apsw.Connection:
        connection = apsw.Connection(name or self.path, flags=flags)
        connection.set_busy_timeout(self.busy_ms)
        connection.setlk_timeout(self.busy_ms, 0)
        # A store may come from anywhere: nothing in its schema may run its own code.
        connection.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)
        connection.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0)
        connection.config(apsw.SQLITE_DBCONFIG_ENABLE_VIEW, 0)
        connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
        if needs_full_sync():
            sqlite_format.sync_fully(connection)
        return connection

    def _open_immutable(self) -> apsw.Connection:
        """Read a store in a folder that we cannot write and that has no WAL: no process is writing it."""
        wal = Path(self.wal)
        if wal.exists() and wal.stat().st_size:
            raise ReadOnly(
                f"{self.path} has a WAL that was not merged, and its folder cannot be written",
                remedy="Open it once with write access to its folder.",
            )
        return self._open_alone()

    def _open_alone(self) -> apsw.Connection:
        """Read the file without its WAL."""
        return self._open(apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI, f"file:{quoted(self.path)}?immutable=1")

    def reader(self) -> apsw.Connection:
        """Return a read-only connection that finds an empty table for each part that does not exist yet."""
        return self._attached(self._kept(self._bare_reader()))

    def _kept(self, connection: apsw.Connection) -> apsw.Connection:
        """Return a new connection, unless it leads to another file than the store's."""
        with self._connecting:
            self._connections.add(connection)
        try:
            self.watch.check_now()
        except StoreError:
            self._unmerged(connection).close()
            raise
        return connection

    def spare_foreign_wal(self) -> None:
        """Before connections are closed: if the store's files are gone, leave those in their place alone. SQLite deletes the WAL by name."""
        if self.watch.is_complete:
            return
        with self._connecting:
            connections = list(self._connections)
        for connection in connections:
            with suppress(apsw.ConnectionClosedError):
                self._unmerged_soon(connection)

    def _attached(self, connection: apsw.Connection) -> apsw.Connection:
        try:
            attach(connection)
        except apsw.Error as error:
            connection.close()
            raise read_error(error, self.path) from error
        return connection

    def _bare_reader(self) -> apsw.Connection:
        """Return a read-only connection. SQLite opens it for writing if possible, to recover a WAL after a crash."""
        try:
            return self._reader()
        except Damaged:
            return self._reader()  # a disk that failed for a moment gives the same error as a damaged page

    def _reader(self) -> apsw.Connection:
        try:
            connection = self._open(apsw.SQLITE_OPEN_READWRITE)
            connection.execute(
                "PRAGMA query_only = ON; PRAGMA cache_size = -16384; PRAGMA temp_store = MEMORY; PRAGMA schema_version"
            ).fetchall()
        except (apsw.CantOpenError, apsw.ReadOnlyError) as error:
            if os.access(self._file_path.parent, os.W_OK):
                raise read_error(error, self.path) from error
            return self._open_immutable()
        except apsw.Error as error:
            raise read_error(error, self.path) from error
        return connection

    def writer(self) -> apsw.Connection:
        """Return a connection that writes: WAL, synchronous=FULL, no merging of the WAL during a caller's commit."""
        if self.read_only is not None:
            raise ReadOnly(f"{self.path} is read-only: {self.read_only}")
        self.watch.check_now()
        if not os.access(self.path, os.W_OK) or not os.access(self._file_path.parent, os.W_OK):
            raise ReadOnly(f"{self.path} or its folder cannot be written")
        try:
            connection = self._open(apsw.SQLITE_OPEN_READWRITE)
            connection.wal_autocheckpoint(0)
            connection.execute("PRAGMA synchronous = FULL; PRAGMA cache_size = -16384; PRAGMA temp_store = MEMORY").fetchall()
            if connection.pragma("journal_mode") != "wal":
                connection.execute("PRAGMA journal_mode = WAL").fetchall()
        except apsw.Error as error:
            raise write_error(error, self.path) from error
        return self._kept(connection)


def quoted(path: str) -> str:
    """Quote a path for a URL. Importing the standard library's function takes longer than opening a store."""
    return "".join(c if c.isascii() and (c.isalnum() or c in "/._-~") else "".join(f"%{b:02X}" for b in os.fsencode(c)) for c in path)


def format_of(path: Path) -> int:
    """Return the format of the store at a path. Only reads."""
    if not path.exists():
        raise NotAStore.nothing_at(path)
    file = SqliteFile.__new__(SqliteFile)
    file._file_path, file.path, file.wal, file.busy_ms = path, str(path), f"{path}-wal", BUSY_MS
    return file._identify()


def _odd_remedy(name: str) -> str:
    if name in ("-wal", "-journal"):  # a link may lead to the real file: removing it would lose the last commits
        return "If it leads to the real file, replace it with that file: the newest commits may be in it. Otherwise move it away."
    return "Move it away; it contains no runs."


def _what_it_says(connection: apsw.Connection) -> tuple[Any, Any, bool]:
    """Return application, format, and whether the tables match it: an index on an expression could make every write run for hours."""
    connection.execute("BEGIN")  # one snapshot: another process may be migrating the store
    application, version = connection.pragma("application_id"), connection.pragma("user_version")
    return application, version, application == APPLICATION_ID and is_known(version) and has_its_tables(connection, version)


def _adds_up(connection: apsw.Connection) -> bool:
    """Return whether the manifest is the sum of all checks. Rows of an older file are valid in themselves, but do not match a newer
    manifest."""
    try:
        attach(connection)
        with connection:  # one snapshot for both: other processes may be writing
            right = adds_up(connection)
        connection.execute("DETACH absent").fetchall()  # SQLite then prepares the statements again
    except apsw.Error:
        return False
    return right


def _create(path: Path) -> None:
    """Create a new store, complete or not at all. If another process creates it first, that is fine, too."""
    temporary = unfinished(path)
    try:
        _make_folder(path.parent)
        sync_parents(path.parent)  # before the store exists: a power cut must not lose the folder's name, and acknowledged saves with it
        remove_unfinished(path)
        os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        try:
            _build(temporary)
            link(temporary, path)
        finally:
            discard(temporary)
        sync_folder(path.parent)
    except apsw.Error as error:
        raise write_error(error, str(path)) from error
    except OSError as error:
        raise folder_error(error, path) from error


def _make_folder(folder: Path) -> None:
    """Create the folder only if it has our name; any other folder must exist."""
    if folder.name != OWN_FOLDER or folder.exists():
        return
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        return
    descriptor = os.open(folder / ".gitignore", os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    try:
        os.write(descriptor, b"*\n")
    finally:
        os.close(descriptor)


def _build(temporary: Path) -> None:
    with closing(apsw.Connection(str(temporary), flags=apsw.SQLITE_OPEN_READWRITE)) as connection:
        sqlite_format.build(connection)

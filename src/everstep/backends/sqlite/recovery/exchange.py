"""Puts a new store in the place of another one that no process has open. Both are complete files; one rename exchanges them.

The new one is built beside the old one, under a temporary name. Then, while SQLite's exclusive lock keeps every other process out:

    1. the new file and its name are synced
    2. the old file gets a second name, a temporary one
    3. the new file is renamed to the name of the store; the folder is synced
    4. the old file's second name becomes NAME.plain-DATE, and the folder is synced; or the old file is overwritten and removed

A process that is killed before step 3 leaves the old store, after it the new one. Temporary names are never taken for a store: a process
that creates or repairs one here removes those of dead processes. `finish` does what is left of step 4 instead.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing, suppress
from glob import escape
from pathlib import Path
from time import monotonic, sleep

import apsw

from everstep.backends import sql_files
from everstep.backends.sqlite.backend import SqliteBackend
from everstep.backends.sqlite.errors import write_error
from everstep.backends.sqlite.files.create import abandoned, discard, folder_error, link, remove_unfinished, unfinished
from everstep.backends.sqlite.files.format import APPLICATION_ID
from everstep.backends.sqlite.files.paths import refuse_links
from everstep.backends.sqlite.files.store_file import quoted
from everstep.backends.sqlite.recovery.rebuild import SqliteBuilder, sync_file
from everstep.clock import clock, iso
from everstep.errors import Conflict, NotAStore, ReadOnly, StoreBusy, StoreFull
from everstep.records import Seal
from everstep.system import sync, sync_folder

_SQL = sql_files.load("sqlite", "read")
_WAIT_SECONDS = 0.5
_SPARE = 16 << 20
_BLOCK = 1 << 20


class Replacement(SqliteBuilder):
    """A builder whose store does not get the name of its target: that still belongs to the old store."""

    def _refuse_taken(self) -> None:
        return

    def _publish(self) -> None:
        try:
            sync_file(self._new)
        except OSError as error:
            raise folder_error(error, self.path) from error

    @property
    def built(self) -> Path:
        """The file."""
        return self._new


class Exchange:
    """A store in a file that is to be replaced."""

    def __init__(self, path: str | os.PathLike[str]):
        self.path = Path(os.path.realpath(path))
        if not self.path.exists():
            raise NotAStore.nothing_at(self.path)
        self._builder: Replacement | None = None
        self._kept: Path | None = None
        self.source = SqliteBackend(self.path, create=False)
        try:
            self._check_folder()
            self.source.close()
            alone(self.path, lambda connection: None)
            refuse_links(self.path)
            self.source = SqliteBackend(self.path, create=False)
            self._writes = self.source.manifest().writes
        except BaseException:
            self.source.close()
            raise

    def _check_folder(self) -> None:
        """Refuse what would fail at the end, before any work."""
        if (reason := self.source.health().get("read_only")) is not None:
            raise ReadOnly(f"{self.path} cannot be replaced: {reason}")
        if not os.access(self.path, os.W_OK) or not os.access(self.path.parent, os.W_OK):
            raise ReadOnly(f"{self.path} cannot be replaced: it or its folder cannot be written")
        sizes = [Path(name).stat().st_size for name in (self.path, f"{self.path}-wal") if Path(name).exists()]
        needed = sum(sizes) * 5 // 4 + _SPARE
        disk = os.statvfs(self.path.parent)
        free = disk.f_bavail * disk.f_frsize
        if free < needed:
            raise StoreFull(
                f"the new store needs about {needed >> 20:,} MiB beside {self.path}, and {free >> 20:,} MiB are free. Nothing was changed"
            )

    def note(self) -> None:
        """Take the store as it is now: a later write is one that the new store lacks."""
        self._writes = self.source.manifest().writes

    def builder(self, seal: Seal) -> Replacement:
        """Begin the new store."""
        remove_unfinished(self.path)
        self._builder = Replacement(self.path, seal)
        return self._builder

    def swap(self, shredded: bool = False) -> Path | None:
        """Put the built store in the place of the old one; return the name that the old one has then. With `shredded`, remove that."""
        builder = self._builder
        assert builder is not None
        self.source.close()
        self._like_the_old_one(builder.built)
        try:
            sync_file(builder.built)
            sync_folder(self.path.parent)
            alone(self.path, self._exchange)
        except OSError as error:
            raise folder_error(error, self.path) from error
        kept, self._kept = self._kept, None
        assert kept is not None
        if not shredded:
            return _named(kept, self.path)
        shred(kept)
        discard(kept)
        return None

    def _exchange(self, connection: apsw.Connection) -> None:
        assert self._builder is not None
        found = connection.execute(_SQL["seen"]).fetchone()
        if found is None or found[1] != self._writes:
            raise Conflict(
                f"{self.path} was written meanwhile. It was not replaced", remedy="Stop the programs that write it, and repeat the call."
            )
        old = unfinished(self.path)
        if not link(self.path, old):
            raise Conflict(f"{old} already exists", remedy="Try again.")
        self._kept = old
        self._builder.built.rename(self.path)
        sync_folder(self.path.parent)

    def _like_the_old_one(self, new: Path) -> None:
        """Give the new file the permissions and the owner of the old one."""
        info = self.path.stat()
        new.chmod(info.st_mode & 0o777)
        with suppress(OSError):
            os.chown(new, info.st_uid, info.st_gid)

    def abandon(self) -> None:
        """Remove what was built, unless it is in its place."""
        self.source.close()
        if self._builder is not None:
            self._builder.abandon()
        if self._kept is not None:
            discard(self._kept)


def alone(path: Path, work: Callable[[apsw.Connection], None]) -> None:
    """Do something while no other process, and nothing else in this one, has the store open, and the whole of it is in its file.

    The lock is that of SQLite's exclusive mode, which keeps WAL: another journal mode would need a journal that no reader may roll back. On
    closing, SQLite must not remove the WAL by its name: by then it may belong to the new store.
    """
    ends = monotonic() + _WAIT_SECONDS
    while True:
        try:
            with closing(apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)) as connection:
                connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
                connection.execute("PRAGMA locking_mode = EXCLUSIVE; PRAGMA synchronous = FULL").fetchall()
                connection.execute("BEGIN IMMEDIATE; ROLLBACK").fetchall()
                connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
                work(connection)
                return
        except (apsw.BusyError, apsw.LockedError) as error:
            if monotonic() >= ends:
                raise _busy(path) from error
        except apsw.Error as error:
            raise write_error(error, str(path)) from error
        sleep(0.02)


def _busy(path: Path) -> StoreBusy:
    return StoreBusy(
        f"{path} is open, in another process or in this one. It was not replaced",
        remedy="End every program that uses it, and repeat the call.",
    )


def finish(path: str | os.PathLike[str], shredded: bool) -> list[Path]:
    """Do what killed calls have left to do: name the old stores, or shred them. Returns the old stores that are beside this one then."""
    real = Path(os.path.realpath(path))
    for left in abandoned(real):
        if left.name.endswith(".new") and not left.samefile(real):
            if shredded:  # it may be overwritten in part: it is not needed in any case
                shred(left)
            elif _is_plain(left):
                _named(left, real)
    remove_unfinished(real)
    kept = [old for old in sorted(real.parent.glob(f"{escape(real.name)}.plain-*")) if _is_plain(old)]
    for old in kept if shredded else ():
        shred(old)
    return [] if shredded else kept


def _named(kept: Path, path: Path) -> Path:
    """Name an old store after the day, without taking the name of another file."""
    day = iso(clock.now_us())[:10].replace("-", "")
    for number in range(1, 10_000):
        name = path.with_name(f"{path.name}.plain-{day}{'' if number == 1 else f'-{number}'}")
        if not os.path.lexists(name):
            kept.rename(name)
            sync_folder(path.parent)
            discard(kept)
            return name
    return kept


def _is_plain(path: Path) -> bool:
    """Return whether a file is a complete plain store."""
    try:
        with closing(
            apsw.Connection(f"file:{quoted(str(path))}?immutable=1", flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
        ) as connection:
            if connection.pragma("application_id") != APPLICATION_ID:
                return False
            names = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema")}
            return "runs" in names and "keys" not in names
    except apsw.Error:
        return False


def shred(path: Path) -> None:
    """Overwrite a file and remove it. Copies of its blocks elsewhere stay: on an SSD, in snapshots and in backups."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        size = os.fstat(descriptor).st_size
        for at in range(0, size, _BLOCK):
            os.pwrite(descriptor, bytes(min(_BLOCK, size - at)), at)
        sync(descriptor)
    finally:
        os.close(descriptor)
    path.unlink()
    sync_folder(path.parent)

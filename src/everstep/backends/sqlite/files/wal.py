"""Maintains the WAL in the background: merges it into the store before it grows too large, and allocates its size once.

Merging (a checkpoint in SQLite's words) first copies as much as it can while others write, then blocks writers for the short rest, so
that the WAL restarts from its beginning instead of growing. A WAL that every commit extends costs a
change of the file's size at every fsync; one that was filled with zeros up front is overwritten in place. Zeros are not valid
frames: recovery ends at them. They are appended while no process can write, through a descriptor of our own, which is safe
only for this file (closing one of the store or of -shm would drop SQLite's locks).

Relies on a Writer to block writers. Never touches the WAL of a store that it does not write.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress

import apsw

from everstep import system
from everstep.backends.sqlite.errors import NO_SPACE, write_error
from everstep.backends.sqlite.writer import Writer
from everstep.errors import EverstepError, StoreBusy, StoreFull
from everstep.threads.background import BackgroundThread
from everstep.threads.guard import LEASES, Guard

MERGE_FRAMES = 700
RETRY_FRAMES = 350
GROW_AFTER = 8
GROW_BYTES = 4 << 20
_SLICE = bytes(256 << 10)
_SPARE = 64 << 20  # on a nearly full disk, leave the rest to commits


class WalKeeper:
    """A thread that starts when there is work."""

    def __init__(
        self, writer: Writer, connect: Callable[[], apsw.Connection], wal: str, merged: Callable[[], None], grow_bytes: int = GROW_BYTES
    ) -> None:
        self._writer = writer
        self._connect = connect
        self._wal = wal
        self._merged = merged
        self._grow_bytes = grow_bytes
        self._connection: apsw.Connection | None = None
        self._commits = 0
        self._due = MERGE_FRAMES
        self._frames = 0
        self._grown = False
        self._thread = BackgroundThread(self._serve)
        self._stopped = False
        self._working = Guard(LEASES)

    def watch(self, connection: apsw.Connection) -> None:
        """Get notified of every commit on the writer's connection. The hook must be cheap: it runs inside COMMIT."""
        connection.set_wal_hook(self._committed)

    def _committed(self, _connection: apsw.Connection, _name: str, frames: int) -> int:
        self._frames = frames
        self._commits += 1
        if frames >= self._due or (self._commits >= GROW_AFTER and not self._thread.started) or self._commits == GROW_AFTER:
            self._wake()
        elif frames < MERGE_FRAMES:
            self._due = MERGE_FRAMES
        return apsw.SQLITE_OK

    def _wake(self) -> None:
        if self._stopped:
            return
        try:
            self._thread.start()
            self._thread.wake()
        except (StoreBusy, MemoryError):
            return  # the system has no thread: this runs inside COMMIT, which has succeeded; the next commit tries again

    def _serve(self) -> None:
        if self._stopped:
            return
        try:
            self._working.check()
            with self._working:
                self._work()
        except (EverstepError, MemoryError):
            # Nothing is lost: the WAL holds everything and keeps growing; the next commit reports a lasting problem.
            self._due = self._frames + RETRY_FRAMES
        except (apsw.FullError, apsw.BusyError, apsw.LockedError):
            return  # only growing failed; without it, commits are slower
        except (apsw.Error, OSError) as error:
            self._writer.poison(f"the WAL could not be grown ({error})")
            self._stopped = True

    def _work(self) -> None:
        if not self._grown and self._commits >= GROW_AFTER:
            self._grown = True
            self._grow()
        if self._frames >= self._due:
            self._merge()

    def _merge(self) -> None:
        if self._connection is None:
            self._connection = self._connect()
        try:
            self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
            with self._writer.alone():
                frames, merged = self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
                self._merged()
        except apsw.Error as error:
            known = write_error(error, self._wal, self._connection.system_errno)
            if not isinstance(known, (StoreFull, StoreBusy)):
                self._writer.poison(f"the WAL could not be merged into the store ({error})")
            raise known from error
        # A reader with an old snapshot can block the rest: wait for more frames before trying again.
        self._due = MERGE_FRAMES if merged == frames else frames + RETRY_FRAMES

    def merge(self) -> None:
        """Merge now, as far as other processes allow: only then does the file become smaller. Best effort: the next merge does it."""
        self._working.check()
        try:
            with self._working:
                self._merge()
        except (StoreBusy, StoreFull):
            return

    def forget(self) -> None:
        """Merge, and cut the WAL to nothing: it has earlier versions of pages, whose content must not stay. Best effort while others read; the
        next call, or the last process that closes the store, does it."""
        self._working.check()
        with suppress(StoreBusy, StoreFull), self._working:
            self._merge()
            if self._connection is not None:
                with suppress(apsw.BusyError, apsw.LockedError):
                    self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
                self._grown = False

    def _grow(self) -> None:
        """Append zeros in slices: each blocks writers for about as long as one commit takes."""
        while self._grow_bytes and not self._stopped:
            with self._writer.alone():
                if not _append_zeros(self._wal, self._grow_bytes):
                    return

    def rest(self) -> None:
        """Wait until the thread is not inside SQLite, and keep it out."""
        self._working.acquire()

    def resume(self) -> None:
        self._working.release()

    def abandon(self) -> None:
        """Close the connection in a forked child, where the thread does not exist."""
        self._stopped = True
        self._thread.end()
        if self._connection is not None:
            self._connection.close(True)
            self._connection = None

    def close(self) -> None:
        self._stopped = True
        self._thread.end()
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _append_zeros(wal: str, goal: int) -> bool:
    """Append one more slice, unless the file is large enough. Best effort if space or descriptors are short: commits are then slower."""
    try:
        descriptor = os.open(wal, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        missing = goal - os.fstat(descriptor).st_size
        disk = os.fstatvfs(descriptor)
        if missing <= 0 or disk.f_bavail * disk.f_frsize < _SPARE:
            return False
        os.write(descriptor, _SLICE[:missing])
        system.sync(descriptor)
    except OSError as error:
        if error.errno in NO_SPACE:
            return False
        raise
    finally:
        os.close(descriptor)
    return True

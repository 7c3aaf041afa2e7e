"""Notices that files of an open store were deleted, replaced or moved, before saves go to files that no longer have a name.

SQLite keeps its files open. After `rm`, `mv` or a restored backup it writes on into files that no other process finds; they vanish
when this process ends. So a transaction first compares device and inode of the three files with what they were, unless that was done
in the last 50 ms. A save in these 50 ms is lost as if the files had been removed a moment later. Without this limit, the
comparison would be 8 % of the processor time of a checkpoint in a loop.

Once a file was missing, the watch raises at every save, even if the file returns: it may have been written elsewhere meanwhile. Opening the
store again checks that. Does not notice a file that is overwritten in place and keeps its inode.
"""

from __future__ import annotations

import os
from threading import Lock
from time import monotonic

from everstep.errors import StoreGone

EVERY_SECONDS = 0.05
Identity = tuple[int, int]


class FileWatch:
    """The files of one open store, by device and inode."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._files: dict[str, Identity | None] = {path: _identity(path)}
        self._learning = Lock()
        self._due = 0.0
        self._gone: str | None = None

    def learn(self) -> None:
        """Remember the WAL and the shared memory that a new connection uses. They keep their names while any connection is open."""
        found = {file: _identity(file) for file in (self._path + "-wal", self._path + "-shm")}
        with self._learning:  # another dict, not a longer one: another thread may be comparing the files
            self._files = self._files | {file: identity for file, identity in found.items() if identity is not None}

    def check(self) -> None:
        """Raise StoreGone if a file is not where it was. Called in every transaction."""
        now = monotonic()
        if now >= self._due:
            self.check_now()
            self._due = now + EVERY_SECONDS  # not after an error: then every save raises

    def check_now(self) -> None:
        """Raise StoreGone if a file is not where it was, however recently that was checked: a new connection would open another file."""
        if not self.is_complete:
            self._due = 0.0
            error = StoreGone(f"{self._gone} while it was open. Nothing of this save was written, and this handle accepts no more writes")
            error.address = self._path
            raise error

    @property
    def is_complete(self) -> bool:
        """Whether all files are where they were. If not, closing a connection must not delete the WAL, which may belong to another store."""
        if self._gone is None:
            for file, identity in self._files.items():
                found = _identity(file)
                if found != identity:
                    self._gone = f"{file} was {'deleted or moved' if found is None else 'replaced by another file'}"
                    break
        return self._gone is None


def _identity(path: str) -> Identity | None:
    try:
        info = os.stat(path)  # noqa: PTH116 - a Path costs more than the call
    except OSError:
        return None
    return info.st_dev, info.st_ino

"""Makes a private copy of a store that may be damaged: its file and its WAL, at a moment when no process writes. Only reads the source.

The file is read through SQLite's own file layer: closing a descriptor of ours would drop the locks that this process may hold on it. If
the disk reports an error, the copy has zeros there.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import apsw

from everstep.errors import NotAStore, StoreBusy, StoreError

Read = Callable[[int, int], bytes]
_BLOCK = 1 << 20
_SECTOR = 512
_TRIES = 5


def copy_store(source: str, file: Path, wal: Path) -> int:
    """Copy a store's file and WAL; return how many bytes could not be read."""
    for _ in range(_TRIES):
        before = _state(source)
        lost = _copy_file(source, file) + _copy_wal(source + "-wal", wal)
        if _state(source) == before:
            return lost
    raise StoreBusy(f"{source} is being written continuously", remedy="Stop the programs that write it, and try again.")


def _state(source: str) -> list[object]:
    """Return values that change when a process writes. Checked before anything is opened: opening a pipe would block."""
    found: list[object] = []
    for path in (source, source + "-wal"):
        with suppress(FileNotFoundError):
            info = Path(path).stat()
            if not stat.S_ISREG(info.st_mode):
                raise NotAStore(f"{path} is not a regular file")
            found.append((path, info.st_ino, info.st_size, info.st_mtime_ns))
    if not found:
        raise NotAStore.nothing_at(source, "Check the path of the damaged store.")
    return found


def _copy_file(source: str, target: Path) -> int:
    if not Path(source).exists():
        return _copy(target, 0, lambda size, at: b"")
    try:
        file = apsw.VFSFile("", source, [apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_READONLY, 0])
    except apsw.Error as error:
        raise StoreError(f"{source} cannot be read ({error})", remedy="Check that it is a file and that you may read it.") from error
    try:
        return _copy(target, file.xFileSize(), file.xRead)
    finally:
        with suppress(apsw.Error):
            file.xClose()


def _copy_wal(wal: str, target: Path) -> int:
    """Copy the WAL. SQLite holds no locks on this file, so closing our own descriptor drops none."""
    try:
        descriptor = os.open(wal, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return _copy(target, 0, lambda size, at: b"")
    except OSError as error:
        raise StoreError(f"{wal} cannot be read ({error.strerror})", remedy="Check that you may read it.") from error
    try:
        return _copy(target, os.fstat(descriptor).st_size, lambda size, at: os.pread(descriptor, size, at))
    finally:
        os.close(descriptor)


def _copy(target: Path, size: int, read: Read) -> int:
    lost = 0
    target.unlink(missing_ok=True)
    with os.fdopen(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as copy:
        for at in range(0, size, _BLOCK):
            data, missing = _block(read, at, min(_BLOCK, size - at))
            copy.write(data)
            lost += missing
    return lost


def _block(read: Read, at: int, size: int) -> tuple[bytes, int]:
    """Read a part of a file; if the disk reports an error, in ever smaller parts, and zeros for the smallest."""
    try:
        return read(size, at).ljust(size, b"\0"), 0
    except (apsw.Error, OSError):
        if size <= _SECTOR:
            return bytes(size), size
    half = max(_SECTOR, size // 2 // _SECTOR * _SECTOR)
    first, missing = _block(read, at, half)
    second, more = _block(read, at + half, size - half)
    return first + second, missing + more

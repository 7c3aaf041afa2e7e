"""Translates SQLite's errors into ours, for a save or a read. Relies on apsw; does not decide whether to continue.

`written` is decided here for everything except COMMIT: before COMMIT nothing is ever written.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import apsw

from everstep.errors import Damaged, EverstepError, InvalidArgument, NotAStore, ReadOnly, StoreBusy, StoreError, StoreFailed, StoreFull

_PAGE, _PROBES = 4096, 64
NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def is_full(error: BaseException, system_errno: int) -> bool:
    """Return whether space, a quota or a file size limit is exhausted: the write did not happen, and a later retry can succeed."""
    if isinstance(error, apsw.FullError):
        return True
    return isinstance(error, apsw.IOError) and getattr(error, "extendedresult", 0) == apsw.SQLITE_IOERR_WRITE and system_errno in NO_SPACE


class Halfway(Exception):
    """A refusal after a part of its work was written. Not an error of ours: the writer treats those as refusals that wrote nothing."""

    def __init__(self, refusal: EverstepError):
        super().__init__(str(refusal))
        self.refusal = refusal


def write_error(error: BaseException, path: str, system_errno: int = 0) -> BaseException:
    """Return the error to raise for a failure before COMMIT."""
    return _placed(_write_error(error, path, system_errno), path)


def read_error(error: BaseException, path: str) -> BaseException:
    """Return the error to raise for a failed read, or for a write that failed while it read."""
    return _placed(_read_error(error, path), path)


def _placed(meaning: BaseException, path: str) -> BaseException:
    return meaning.of(path) if isinstance(meaning, StoreError) and meaning.address is None else meaning


def _write_error(error: BaseException, path: str, system_errno: int) -> BaseException:
    if isinstance(error, Halfway):
        return error.refusal
    if isinstance(error, EverstepError) or not isinstance(error, Exception):
        return error
    if is_full(error, system_errno):
        return StoreFull(f"no space is left for {path}: nothing of this save was written")
    if isinstance(error, apsw.IOError):
        return StoreFailed(f"{path}: the disk reported an error before the save was complete ({error})", written="no")
    if isinstance(error, OSError):  # from a lock file beside the store
        full = error.errno in NO_SPACE
        return StoreFull(f"no space is left beside {path}") if full else StoreError(f"{path}: the system reported {error}")
    if isinstance(error, (UnicodeEncodeError, OverflowError, TypeError, ValueError)) and not isinstance(error, UnicodeDecodeError):
        return InvalidArgument(f"a value cannot be stored in {path}: {error}")
    return _read_error(error, path)


def _read_error(error: BaseException, path: str) -> BaseException:
    if isinstance(error, (apsw.BusyError, apsw.LockedError)):
        return StoreBusy(f"{path} stayed locked by another process")
    if isinstance(error, apsw.ReadOnlyError):
        return ReadOnly(f"{path} cannot be written ({error})")
    if isinstance(error, apsw.NotADBError):
        return NotAStore(f"{path} is not an Everstep store: it is not a SQLite database")
    if isinstance(error, apsw.CorruptError) and (reported := disk_error(path)) is not None:
        return StoreError(
            f"{path} cannot be read: the disk reported {reported}. It is unknown whether the store is damaged",
            remedy="Check the disk and the system's log, then try again; `everstep verify` checks whether the data is complete.",
        )
    if isinstance(error, (apsw.CorruptError, apsw.ConstraintError, apsw.SQLError, apsw.MismatchError, UnicodeDecodeError)):
        return Damaged(f"{path} is damaged ({error})")
    if isinstance(error, (apsw.CantOpenError, apsw.PermissionsError, apsw.AuthError)):
        return StoreError(f"{path} cannot be opened ({error})", remedy="Check that the folder exists and that you may read and write it.")
    if isinstance(error, apsw.Error):
        return StoreError(f"{path}: SQLite reported {error}")
    return error


def disk_error(path: str) -> Exception | None:
    """Return the error of the disk, if it reports one for any of some pages of the file or its WAL.

    SQLite reports a page that cannot be read (EIO) as a malformed one. The file is read through SQLite's own file layer: closing a
    descriptor of ours would drop the locks that this process holds on it, and two processes could then write at once.
    """
    try:
        file = apsw.VFSFile("", path, [apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_READONLY, 0])
    except apsw.Error:
        return None  # it is missing or may not be read; the caller reports SQLite's own error
    try:
        return _probe(file.xRead, file.xFileSize()) or _wal_error(f"{path}-wal")
    except apsw.IOError as error:
        return error
    finally:
        with suppress(apsw.Error):
            file.xClose()


def _wal_error(wal: str) -> Exception | None:
    """Probe the WAL. SQLite holds no locks on this file, so closing our own descriptor drops none."""
    try:
        with Path(wal).open("rb", buffering=0) as file:
            return _probe(lambda size, at: os.pread(file.fileno(), size, at), os.fstat(file.fileno()).st_size)
    except OSError as error:
        return error if error.errno in (errno.EIO, errno.ENXIO) else None


def _probe(read: Callable[[int, int], bytes], size: int) -> Exception | None:
    for at in range(0, size, max(_PAGE, size // _PROBES)):
        try:
            read(min(_PAGE, size - at), at)
        except apsw.IOError as error:
            return error
        except OSError as error:
            if error.errno in (errno.EIO, errno.ENXIO):
                return error
    return None

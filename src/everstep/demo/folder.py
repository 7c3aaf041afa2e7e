"""The folder that the demo leaves behind: made, or emptied if a demo made it. Never touches what anybody else put there.

A small text marks the folder as the demo's own. It is locked while a demo plays there, also by the processes that it started: should it be
killed itself, nobody takes the store away from under those that are left.
"""

from __future__ import annotations

import errno
import fcntl
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from everstep.errors import InvalidArgument, ReadOnly, StoreBusy
from everstep.fields import Shape

STORE = "store.db"
MARK = "everstep-demo.txt"
_SAID = "everstep demo made this folder. When it is played here again, it removes this store and makes a new one.\n"
_ELSEWHERE = "Choose another place: everstep demo --dir FOLDER."
_UNWRITABLE = (errno.EACCES, errno.EPERM, errno.EROFS)


class Stage(Shape, frozen=True):
    """Where a store is to be made, and the open file whose lock keeps others away."""

    store: Path
    lock: int


@contextmanager
def stage(folder: Path) -> Iterator[Stage]:
    """A place for a new store in this folder, ours until the block is left and all processes that share the lock have ended."""
    refuse_strangers(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        mark = (folder / MARK).open("a+")
    except OSError as error:
        if error.errno in _UNWRITABLE:
            raise ReadOnly(f"the folder {str(folder)!r} cannot be written: {error.strerror}", remedy=_ELSEWHERE) from error
        raise
    with mark:
        _lock(mark.fileno(), folder)
        _remove_stores(folder)
        mark.truncate(0)
        mark.write(_SAID)
        mark.flush()
        yield Stage(folder / STORE, mark.fileno())


def refuse_strangers(folder: Path) -> None:
    """An empty folder will do, and one that a demo has left. All else stays as it is."""
    if not folder.exists() and not folder.is_symlink():
        return
    if folder.is_symlink() or not folder.is_dir():
        raise InvalidArgument(f"{str(folder)!r} is no folder of the demo", remedy=_ELSEWHERE)
    names = sorted(path.name for path in folder.iterdir())
    ours = {name for name in names if name == MARK or name.startswith(STORE)} if MARK in names else set()
    strange = [name for name in names if name not in ours]
    if strange:
        raise InvalidArgument(f"the folder {str(folder)!r} has something in it that is not the demo's: {strange[0]!r}", remedy=_ELSEWHERE)


def _lock(handle: int, folder: Path) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise StoreBusy(f"another demo is playing in {str(folder)!r}", remedy=f"Wait until it ends. {_ELSEWHERE}") from None


def _remove_stores(folder: Path) -> None:
    """The store of the demo before, with all that stands beside it."""
    for path in folder.glob(f"{STORE}*"):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()

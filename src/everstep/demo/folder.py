"""The folder that the demo leaves behind: created, or emptied if a demo created it. Never touches other files there.

A small text file marks the folder as the demo's own. It is locked while a demo runs there, also by the processes that the demo started: if
the demo itself is killed, the store is not deleted while they use it. A .gitignore keeps the folder out of `git status`.
"""

from __future__ import annotations

import errno
import fcntl
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from everstep.errors import InvalidArgument, ReadOnly, StoreBusy
from everstep.fields import Shape

STORE = "store.db"
MARK = "everstep-demo.txt"
IGNORE = ".gitignore"
_SAID = "everstep demo created this folder. The next demo in this folder deletes this store and creates a new one.\n"
_ELSEWHERE = "Choose another folder: everstep demo --dir FOLDER."
_UNWRITABLE = (errno.EACCES, errno.EPERM, errno.EROFS)


class Stage(Shape, frozen=True):
    """The path of the new store, and the open file whose lock keeps other demos away."""

    store: Path
    lock: int


@contextmanager
def stage(folder: Path) -> Iterator[Stage]:
    """Prepare this folder for a new store. It stays locked until the block is left and all processes that share the lock have ended."""
    refuse_strangers(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        mark = (folder / MARK).open("a+")
    except OSError as error:
        if error.errno in _UNWRITABLE:
            raise ReadOnly(f"cannot write to the folder {str(folder)!r}: {error.strerror}", remedy=_ELSEWHERE) from error
        raise
    with mark:
        _lock(mark.fileno(), folder)
        _remove_stores(folder)
        mark.truncate(0)
        mark.write(_SAID)
        mark.flush()
        _ignore(folder)
        yield Stage(folder / STORE, mark.fileno())


def refuse_strangers(folder: Path) -> None:
    """Accept an empty folder, or one that a demo has left. Refuse any other one."""
    if not folder.exists() and not folder.is_symlink():
        return
    if folder.is_symlink() or not folder.is_dir():
        raise InvalidArgument(f"{str(folder)!r} is not a folder of the demo", remedy=_ELSEWHERE)
    names = sorted(path.name for path in folder.iterdir())
    ours = {name for name in names if name in (MARK, IGNORE) or name.startswith(STORE)} if MARK in names else set()
    strange = [name for name in names if name not in ours]
    if strange:
        raise InvalidArgument(f"the folder {str(folder)!r} contains a file that the demo did not create: {strange[0]!r}", remedy=_ELSEWHERE)


def _lock(handle: int, folder: Path) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise StoreBusy(f"another demo is running in {str(folder)!r}", remedy=f"Wait until it ends. {_ELSEWHERE}") from None


def _ignore(folder: Path) -> None:
    """Keep the folder out of version control. Leave an existing file unchanged."""
    with suppress(FileExistsError), (folder / IGNORE).open("x") as file:
        file.write("*\n")


def _remove_stores(folder: Path) -> None:
    """Delete the store of an earlier demo, with all files that belong to it."""
    for path in folder.glob(f"{STORE}*"):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()

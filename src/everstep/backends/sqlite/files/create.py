"""Creates a new store file, complete or not at all. It is built under a temporary name that is never taken for a store.

Files that a killed process left behind are removed by the next process that creates a store at that path or opens the one there.
"""

from __future__ import annotations

import errno
import os
import re
import secrets  # imported now, also for `ids`: a daemon may later lose the right to read it
from contextlib import suppress
from glob import escape as glob_escape
from pathlib import Path

from everstep import clock as clocks
from everstep.errors import ReadOnly, StoreError, StoreFull
from everstep.system import is_alive

_making: set[str] = set()
_DAY = 86_400
_UNFINISHED = re.compile(r"\.(?P<store>.+?)\.(?:(?P<owner>\d{1,10})\.)?[0-9a-f]{3,12}\.new(?:-[a-z]+)?", re.DOTALL)


def unfinished(path: Path) -> Path:
    """Return the temporary name of a store that is being built; it contains the id of the process."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(6)}.new")
    _making.add(temporary.name)
    return temporary


def discard(temporary: Path) -> None:
    """Remove that name and all files beside it. Best effort: the next process that creates a store here removes it, too."""
    _making.discard(temporary.name)
    for left in _itself_last(temporary.parent, f"{glob_escape(temporary.name)}*"):
        with suppress(OSError):
            left.unlink()


def _itself_last(folder: Path, pattern: str) -> list[Path]:
    """Sort the file itself last: until all files beside it are removed, a finished file has two names, which tells an opener to clean up."""
    return sorted(folder.glob(pattern), key=lambda path: len(path.name), reverse=True)


def unfinished_names(path: Path) -> list[Path]:
    """Return the files that creations and repairs of a store are building or left behind: only names that Everstep makes."""
    return [left for left in _itself_last(path.parent, f".{glob_escape(path.name)}.*.new*") if _owner(left, path.name) is not None]


def left_behind(folder: Path) -> list[Path]:
    """Return the files that killed creations and repairs of any store left behind in a folder.

    A file may be in use if its name has no process, or one that exists: in a container, a later process often has the same number. Such a
    file counts if it has not changed for a day.
    """
    return [left for left in _itself_last(folder, ".*.new*") if _was_left(left, _owner(left))]


def _was_left(left: Path, owner: int | None) -> bool:
    if owner and _is_left(left, owner):
        return True
    with suppress(OSError):  # its process has just removed it
        return owner is not None and not _is_made_here(left) and clocks.clock.now_us() / 1e6 - left.stat().st_mtime > _DAY
    return False


def remove_unfinished(path: Path) -> None:
    """Remove the files that killed or failed creations and repairs of one store left behind."""
    for left in abandoned(path):
        left.unlink(missing_ok=True)


def abandoned(path: Path) -> list[Path]:
    """Return these files: those whose process has ended."""
    return [left for left in unfinished_names(path) if _is_left(left, _owner(left, path.name))]


def _owner(left: Path, store: str | None = None) -> int | None:
    """Return the process that makes a file of this name, 0 if it is not known; None if the name is not one of ours."""
    found = _UNFINISHED.fullmatch(left.name)
    if found is None or (store is not None and found["store"] != store):
        return None
    return int(found["owner"] or 0)


def _is_left(left: Path, owner: int | None) -> bool:
    if owner is None:
        return False
    if owner == os.getpid():
        return not _is_made_here(left)
    return not is_alive(owner)


def _is_made_here(left: Path) -> bool:
    return left.name.rpartition(".new")[0] + ".new" in _making


def link(temporary: Path, path: Path) -> bool:
    """Give a finished file its name; False if the name is taken."""
    try:
        os.link(temporary, path)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.EMLINK, errno.ENOSYS):
            raise
        # A file system without hard links: a file created between the check and the rename would be overwritten.
        if path.exists():
            return False
        temporary.rename(path)
    return True


def folder_error(error: OSError, path: Path) -> StoreError:
    """Return the error for a store that cannot be created."""
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return ReadOnly(f"cannot create a store at {path} ({error.strerror})")
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StoreFull(f"no space is left to create a store at {path}")
    return StoreError(
        f"cannot create a store at {path} ({error.strerror})", remedy="Check that the folder exists and that you may write there."
    )

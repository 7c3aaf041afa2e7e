"""How a new store file comes into its place: complete or not at all. It is built under a name that nobody takes for a store.

What a killed process left behind is removed by the next one that makes a store in that place, or by whoever opens the one there.
"""

from __future__ import annotations

import errno
import os
import re
import secrets  # now, also for `ids`: a daemon may give up the right to read it later
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
    """The name to build a store under; the process that builds it stands in it."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(6)}.new")
    _making.add(temporary.name)
    return temporary


def discard(temporary: Path) -> None:
    """Remove that name, and all that was made beside it. Best effort: the next one who makes a store here removes it, too."""
    _making.discard(temporary.name)
    for left in _itself_last(temporary.parent, f"{glob_escape(temporary.name)}*"):
        with suppress(OSError):
            left.unlink()


def _itself_last(folder: Path, pattern: str) -> list[Path]:
    """A finished file has two names until the last of what lay beside it is gone: that tells whoever opens it that something is left."""
    return sorted(folder.glob(pattern), key=lambda path: len(path.name), reverse=True)


def unfinished_names(path: Path) -> list[Path]:
    """What creations and repairs of a store are building, or left behind: only names that Everstep makes."""
    return [left for left in _itself_last(path.parent, f".{glob_escape(path.name)}.*.new*") if _owner(left, path.name) is not None]


def left_behind(folder: Path) -> list[Path]:
    """What killed creations and repairs of any store left behind in a folder.

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
    """Remove what killed or failed creations and repairs of one store left behind."""
    for left in unfinished_names(path):
        if _is_left(left, _owner(left, path.name)):
            left.unlink(missing_ok=True)


def _owner(left: Path, store: str | None = None) -> int | None:
    """The process that makes a file of this name, 0 if that is not known; None if the name is not one of ours."""
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
    """Give a finished file its name; False if that is taken."""
    try:
        os.link(temporary, path)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.EMLINK, errno.ENOSYS):
            raise
        # A file system without hard links: the window between looking and renaming is the price.
        if path.exists():
            return False
        temporary.rename(path)
    return True


def folder_error(error: OSError, path: Path) -> StoreError:
    """What to say when a store cannot be made."""
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return ReadOnly(f"no store can be made at {path} ({error.strerror})")
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StoreFull(f"no space is left to make a store at {path}")
    return StoreError(
        f"no store can be made at {path} ({error.strerror})", remedy="Check that the folder exists and that you may write there."
    )

"""How a new store file comes into its place: complete or not at all. It is built under a name that nobody takes for a store.

What a killed process left behind is removed by the next one that makes a store in that place, or by whoever opens the one there.
"""

from __future__ import annotations

import errno
import os
import secrets  # now, also for `ids`: a daemon may give up the right to read it later
from contextlib import suppress
from glob import escape as glob_escape
from pathlib import Path

from everstep.errors import ReadOnly, StoreError, StoreFull
from everstep.system import is_alive

_making: set[str] = set()


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


def remove_unfinished(path: Path) -> None:
    """What creations left behind that were killed or failed: those whose process is gone, or is this one and makes them no more."""
    for left in _itself_last(path.parent, f".{glob_escape(path.name)}.*.new*"):
        owner = left.name.removeprefix(f".{path.name}.").partition(".")[0]
        failed = owner == str(os.getpid()) and left.name.rpartition(".new")[0] + ".new" not in _making
        if failed or not owner.isdecimal() or not is_alive(int(owner)):
            left.unlink(missing_ok=True)


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

"""One store, one path: detects that a store's file is reached by a second path, before anything is written through it.

SQLite finds the WAL by the path of the file. Through a hard link, a bind mount of the single file, or after the file was moved while a
program has it open, the same file gets a second WAL, and the two overwrite each other's saves. So a store is refused if

    its file has another name (a hard link), except the temporary names of its creation,
    its path is itself a mount point, so that the WAL would not be beside the real file, or
    a process has it open by another path: every open store marks its file with a number that is made from the path (`system.mark`).

A path is identified by device and inode of its folder and by its name, so symbolic links and bind mounts of whole folders count as one
path. The mark needs a file descriptor of our own. Closing it drops all locks that SQLite has on the file in this process, so it is closed
after the last connection of the last handle. If a file cannot be marked, only this check is missing.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path

from everstep import system
from everstep.backends.sqlite.files import mounts
from everstep.backends.sqlite.files.create import remove_unfinished, unfinished_names
from everstep.errors import SecondPath
from everstep.fields import Shape

Location = tuple[int, int, str]
_LOOKS = 4


class _Mark(Shape):
    """The mark of this process on one file."""

    location: Location
    path: str
    descriptor: int | None
    handles: int


_marks: dict[tuple[int, int], _Mark] = {}
_turn = threading.Lock()


def location_of(path: str | os.PathLike[str]) -> Location:
    """Return the identity of a path, which differs for paths that lead elsewhere."""
    path = Path(path)
    info = path.parent.stat()
    return info.st_dev, info.st_ino, path.name


def refuse_links(path: Path) -> None:
    """Refuse a file with another name. Leftovers of a creation are removed; a creation in progress has two names for a moment."""
    for _ in range(_LOOKS):
        if path.stat().st_nlink == 1:
            return
        with suppress(OSError):  # a leftover that cannot be removed now does not prevent opening; the next open tries again
            remove_unfinished(path)
        own = sum(1 for left in unfinished_names(path) if _is_same(left, path))
        links = path.stat().st_nlink - own
        if links <= 1:
            return
    from shlex import quote

    raise SecondPath(
        f"{path} has {links} names (hard links); each would have its own WAL. Nothing was written",
        remedy="Keep one of them and remove the others. This command lists them: find "
        f"{quote(str(path.parent))} -xdev -samefile {quote(str(path))} (or search from the root of the disk). For a copy, use cp, not ln.",
    )


def _is_same(left: Path, path: Path) -> bool:
    with suppress(OSError):
        return left.samefile(path)
    return False


def refuse_mounted(path: Path) -> None:
    """Refuse a file that is mounted by itself: its WAL would be in another folder than the file, and lost with the mount."""
    if mounts.is_mount_point(path):
        raise SecondPath(
            f"{path} is a mount of a single file; its WAL would not be beside the real file. Nothing was written",
            remedy=f"Mount the folder of the store instead of the file (docker run -v /data:{path.parent}).",
        )


class Held:
    """One handle's share in the mark of its process."""

    def __init__(self, file: tuple[int, int]) -> None:
        self._file: tuple[int, int] | None = file

    def release(self) -> None:
        """Give up the share, after the last connection of the handle was closed."""
        with _turn:
            file, self._file = self._file, None
            mark = _marks.get(file) if file is not None else None
            if file is None or mark is None:
                return
            mark.handles -= 1
            if mark.handles == 0:
                del _marks[file]
                if mark.descriptor is not None:
                    os.close(mark.descriptor)


def hold(path: Path) -> Held:
    """Mark the file as open by this path; refused if any process has it open by another one."""
    info, location = path.stat(), location_of(path)
    file = info.st_dev, info.st_ino
    with _turn:
        mark = _marks.get(file)
        if mark is None:
            mark = _marks[file] = _Mark(location, str(path), _marked(path, location), 0)
        elif mark.location != location:
            raise SecondPath(f"this process has {path} open as {mark.path}, which has its own WAL. Nothing was written")
        mark.handles += 1
    return Held(file)


def _marked(path: Path, location: Location) -> int | None:
    """Return a descriptor that marks the file; None if it cannot be marked."""
    if not system.has_marks():
        return None
    number = int.from_bytes(blake2b(repr(location).encode("utf-8", "surrogateescape"), digest_size=5).digest())
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None  # opening it through SQLite gives a more precise error
    try:
        system.mark(descriptor, number)  # first: of two processes at the same time, at least one sees the other
        other = system.other_mark(descriptor, number)
    except OSError:
        os.close(descriptor)
        return None
    if other:
        os.close(descriptor)
        raise SecondPath(
            f"another process has {path} open by another path, where it has its own WAL. Nothing was written",
            remedy="Use the same path in every program. If the file was moved while it was open, end that program first, or move the file back.",
        )
    return descriptor


def _in_child() -> None:
    """Drop the marks in a forked child: they are the parent's."""
    global _turn
    _turn = threading.Lock()
    while _marks:
        mark = _marks.popitem()[1]
        if mark.descriptor is not None:
            os.close(mark.descriptor)


os.register_at_fork(after_in_child=_in_child)

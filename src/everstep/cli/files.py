"""Replaces a file atomically: readers see the old content or the new one, also after a crash, never a part of either."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterable
from pathlib import Path

from everstep.errors import InvalidArgument
from everstep.system import sync, sync_folder


def replace(path: Path, text: str) -> None:
    """Replace the content of a file, which keeps its mode; for a link, replace its target."""
    try:
        _replace(path, text)
    except OSError as error:
        missing = not Path(os.path.realpath(path)).parent.is_dir()
        why = f"the folder {str(path.parent)!r} does not exist" if missing else error.strerror
        raise InvalidArgument(f"{path} cannot be written: {why}", remedy="Give a path that can be written to.") from error


def create(path: Path, text: str) -> bool:
    """Write a new file durably; return False if it already exists."""
    try:
        file = path.open("x", encoding="utf-8")
    except FileExistsError:
        return False
    with file:
        file.write(text)
        file.flush()
        sync(file.fileno())
    sync_folder(path.absolute().parent)
    return True


def create_from(path: Path, lines: Iterable[str]) -> None:
    """Write a new file of lines, which exists complete or not at all. Refuses a path that exists."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}.new")
    try:
        if os.path.lexists(path):
            raise FileExistsError
        with temporary.open("x", encoding="utf-8", newline="") as file:
            file.writelines(lines)
            file.flush()
            sync(file.fileno())
        os.link(temporary, path)  # unlike a rename, it never replaces a file
        sync_folder(path.absolute().parent)
    except FileExistsError as error:
        raise InvalidArgument(f"{path} already exists; it was not overwritten", remedy="Use another path.") from error
    except OSError as error:
        raise InvalidArgument(f"{path} cannot be written: {error.strerror}", remedy="Give a path that can be written to.") from error
    finally:
        temporary.unlink(missing_ok=True)


def _replace(path: Path, text: str) -> None:
    if path.exists() and not path.is_file():  # a pipe or a device is written to, not replaced
        path.write_text(text, encoding="utf-8")
        return
    path = Path(os.path.realpath(path))
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}.new")  # another process may be writing the same file
    try:
        with temporary.open("x", encoding="utf-8") as file:
            if path.exists():
                temporary.chmod(stat.S_IMODE(path.stat().st_mode))  # before it has content: others must not read it
            file.write(text)
            file.flush()
            sync(file.fileno())
        temporary.replace(path)
        sync_folder(path.parent)  # without it a power cut can bring back the old file
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise

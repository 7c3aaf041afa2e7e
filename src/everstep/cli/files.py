"""Replaces a file all at once: whoever reads it finds what was there or what is there now, after a crash, too. Never half of either."""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path

from everstep.errors import InvalidArgument
from everstep.system import sync, sync_folder


def replace(path: Path, text: str) -> None:
    """Write a text in place of a file, which keeps its mode; of a link, in place of what it leads to."""
    try:
        _replace(path, text)
    except OSError as error:
        missing = not Path(os.path.realpath(path)).parent.is_dir()
        why = f"there is no folder {str(path.parent)!r}" if missing else error.strerror
        raise InvalidArgument(f"{path} cannot be written: {why}", remedy="Name a place that can be written.") from error


def create(path: Path, text: str) -> bool:
    """Write a new file, durably; False if there is one already."""
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


def _replace(path: Path, text: str) -> None:
    if path.exists() and not path.is_file():  # a pipe or a device is there to be written to
        path.write_text(text, encoding="utf-8")
        return
    path = Path(os.path.realpath(path))
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}.new")  # another process may be writing the same file
    try:
        with temporary.open("x", encoding="utf-8") as file:
            if path.exists():
                temporary.chmod(stat.S_IMODE(path.stat().st_mode))  # before there is anything in it to read
            file.write(text)
            file.flush()
            sync(file.fileno())
        temporary.replace(path)
        sync_folder(path.parent)  # without it a power cut can bring the former file back
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise

"""Finds a configuration: the file that applies to a folder, and the variables of the environment.

The nearest folder upward wins, as with .git; in one folder, everstep.toml comes before pyproject.toml. Imports no parser: programs without
a configuration only pay for a few stat calls. Never reads a file that another user could have put there.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from pathlib import Path

from everstep.errors import InvalidConfig

FILE = "everstep.toml"
PROJECT = "pyproject.toml"
PREFIX = "EVERSTEP_"
# Variables that are not settings: those of a shell step in a YAML workflow, and those of this project's own tests.
NO_SETTINGS = (
    "EVERSTEP_RUN",
    "EVERSTEP_STEP",
    "EVERSTEP_STEP_KEY",
    "EVERSTEP_STEP_ATTEMPT",
    "EVERSTEP_DEEP",
    "EVERSTEP_HYPOTHESIS",
    "EVERSTEP_REQUIRE_CC",
    "EVERSTEP_ROTATION",
)
_WITH = "EVERSTEP_WITH_"


def variables(names: Iterable[str]) -> list[str]:
    """Select the variables that are meant as settings."""
    return [n for n in names if n.startswith(PREFIX) and n not in NO_SETTINGS and not n.startswith(_WITH)]


def find_file(start: str | os.PathLike[str] | None = None) -> Path | None:
    """Find the configuration that applies to a folder, by default the working one; None if there is none up to the root."""
    here = Path.cwd() if start is None else Path(start).absolute()
    for folder in (here, *here.parents):
        for name in (FILE, PROJECT):
            file = folder / name
            if _holds(file):
                _refuse_foreign(file)
                return file
    return None


def _holds(file: Path) -> bool:
    """Whether a file is our configuration. A project's file is one if it has our table."""
    try:
        if not stat.S_ISREG(file.stat().st_mode):
            return False
    except (OSError, ValueError):
        return False
    if file.name == FILE:
        return True
    try:
        text = file.read_bytes()
    except OSError:
        return False  # unreadable: it may not be meant for us, and most are not
    if b"everstep" not in text:
        return False
    from everstep.config.file import has_table

    return has_table(file, text)


def _refuse_foreign(file: Path) -> None:
    """Refuse another user's file where everyone can write: a configuration names code to import."""
    trusted = (0, os.geteuid())
    info, around = file.stat(), file.parent.stat()
    if info.st_uid not in trusted and (info.st_mode | around.st_mode) & stat.S_IWOTH:
        raise InvalidConfig(
            f"{file} belongs to another user and is in a location where everyone can write",
            remedy="If you trust it, name it: everstep.open(config=path). Otherwise work in another folder.",
        )

"""Finds the files of the key `workflows`: plain paths, and patterns with * and **. Reads folders, never a file."""

from __future__ import annotations

from collections.abc import Iterable
from glob import glob, has_magic
from pathlib import Path

from everstep.errors import InvalidConfig


def expanded(patterns: Iterable[str]) -> list[str]:
    """Return the files that the patterns name, each once, in the order of the patterns. A plain path must exist; a pattern may match nothing."""
    found: list[str] = []
    for pattern in patterns:
        # Path.glob cannot take an absolute pattern
        files = sorted(file for file in glob(pattern, recursive=True) if Path(file).is_file()) if has_magic(pattern) else [pattern]  # noqa: PTH207
        if files == [pattern] and not Path(pattern).is_file():
            raise InvalidConfig(f"workflows names the file {pattern!r:.200}, which does not exist")
        found += files
    return list(dict.fromkeys(found))

"""Finds the line of each key in a TOML text. tomllib reads values without their lines.

Passes one statement at a time to tomllib: a header or a pair, on one or several lines. A key inside a statement of several lines gets no
line, rather than a wrong one. Never raises: a text that is not TOML simply has no lines.
"""

from __future__ import annotations

import re
import tomllib
from typing import Any

Path = tuple[str | int, ...]

_MOST_TRIED = 4 * 1024 * 1024  # characters, with each attempt at a statement of many lines: about a second
_MAY_END = re.compile(r"""]|\"""|'''""")


def lines_of(text: str) -> dict[Path, int]:
    """Map each key to its line, counted from 1; indexes of arrays are numbers in the path."""
    lines: dict[Path, int] = {}
    counts: dict[Path, int] = {}  # the number of tables in each [[array]]
    table: Path = ()
    rows, start, tried = text.replace("\r\n", "\n").split("\n"), 0, 0
    for end, row in enumerate(rows, 1):
        if end - start > 1 and not _MAY_END.search(row):
            continue
        statement = "\n".join(rows[start:end])
        tried += len(statement)
        if tried > _MOST_TRIED:
            break
        try:
            found = tomllib.loads(statement)
        except (ValueError, RecursionError):
            continue  # the statement continues on the next line
        if statement.lstrip().startswith("["):
            table = _note_header(lines, counts, found, start + 1)
        else:
            _note(lines, table, found, start + 1, end - start == 1)
        start = end
    return lines


def _note_header(lines: dict[Path, int], counts: dict[Path, int], found: Any, line: int) -> Path:
    path: Path = ()
    while found:
        ((name, found),) = found.items()
        path = (*path, name)
        lines.setdefault(path, line)
        if isinstance(found, list):
            counts[path], found = counts.get(path, 0) + 1, {}
        if path in counts:
            path = (*path, counts[path] - 1)
            lines.setdefault(path, line)
    return path


def _note(lines: dict[Path, int], path: Path, found: Any, line: int, whole: bool) -> None:
    """Note the keys of a pair. `whole`: all of it is on this line; otherwise only its first key is known to be."""
    inside = list(found.items() if isinstance(found, dict) else enumerate(found) if isinstance(found, list) and whole else ())
    for name, value in inside if whole or len(inside) == 1 else ():
        lines.setdefault((*path, name), line)
        _note(lines, (*path, name), value, line, whole)

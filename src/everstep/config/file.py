"""A configuration file: its table, and the line of each key. Reads everstep.toml and the table tool.everstep of pyproject.toml.

Relies on tomllib to parse the text. Does not validate keys; `settings` does.
"""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path
from typing import Any

from everstep.config.find import PROJECT
from everstep.config.toml_lines import lines_of
from everstep.errors import InvalidConfig
from everstep.fields import Shape, field

_AT = re.compile(r" \(at line (\d+), column \d+\)$")
_LONGEST = 1024 * 1024


class Document(Shape):
    """The content of a file."""

    file: Path
    table: dict[str, Any]
    lines: dict[tuple[str | int, ...], int] = field(default_factory=dict)

    def line(self, *path: str | int) -> int | None:
        """Return the line of a key, or else that of the table around it."""
        prefix = ("tool", "everstep") if self.file.name == PROJECT else ()
        for end in range(len(path), -1, -1):
            found = self.lines.get((*prefix, *path[:end]))
            if found is not None:
                return found
        return None

    def location(self, *path: str | int) -> str:
        """Return file and line, for messages."""
        line = self.line(*path)
        return shown(self.file) if line is None else f"{shown(self.file)}:{line}"


def shown(file: Path) -> str:
    """Shorten a path relative to the working folder, if possible."""
    try:
        return str(file.absolute().relative_to(Path.cwd()))
    except (ValueError, OSError):
        return str(file)


def read(file: str | os.PathLike[str]) -> Document:
    """Read a file; from a project's file, only our table."""
    path = Path(file)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InvalidConfig(
            f"{shown(path)} cannot be read: {error.strerror or error}", remedy="Check the path and its permissions."
        ) from error
    except ValueError as error:
        raise InvalidConfig(f"{str(path)!r:.200} is not a valid path: {error}") from error
    text, whole = _parsed(path, data)
    return Document(path, _own_table(path, whole), lines_of(text))


def has_table(file: Path, data: bytes) -> bool:
    """Whether a project's file has our table."""
    tool = _parsed(file, data)[1].get("tool")
    return isinstance(tool, dict) and "everstep" in tool


def _own_table(file: Path, whole: dict[str, Any]) -> dict[str, Any]:
    if file.name != PROJECT:
        return whole
    tool = whole.get("tool")
    own = tool.get("everstep", {}) if isinstance(tool, dict) else {}
    if not isinstance(own, dict):
        raise InvalidConfig("tool.everstep must be a table", shown(file), key="tool.everstep", value=own, remedy="Write [tool.everstep].")
    return own


def _parsed(file: Path, data: bytes) -> tuple[str, dict[str, Any]]:
    if len(data) > _LONGEST:
        raise InvalidConfig(f"a configuration file must have at most {_LONGEST:,} bytes, got {len(data):,}", shown(file))
    try:
        text = data.decode("utf-8-sig")
        return text, parsed(text)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InvalidConfig("the text is not UTF-8", f"{shown(file)}:{line}", remedy="Save the file as UTF-8.") from error
    except BadText as error:
        raise InvalidConfig(error.reason, f"{shown(file)}:{error.line}", remedy="Correct the TOML at the line given.") from error


class BadText(Exception):
    """Text that is not valid TOML."""

    def __init__(self, reason: str, line: int):
        self.reason, self.line = reason, line
        super().__init__(reason)


def parsed(text: str) -> dict[str, Any]:
    """Parse a TOML text. Raises only `BadText`."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = _AT.search(str(error))
        line = int(found[1]) if found else max(1, text.count("\n") + (not text.endswith("\n")))
        reason = _AT.sub("", str(error)).removesuffix(" (at end of document)")
        raise BadText(f"invalid TOML: {reason}", line) from error
    except (ValueError, RecursionError) as error:  # a number with thousands of digits, or endless brackets
        raise BadText(f"invalid TOML: {error}"[:200], 1) from error

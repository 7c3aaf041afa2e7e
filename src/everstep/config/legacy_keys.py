"""Older, flat keys: read with their current meaning, and rewritten in the text of a file that has them.

    checkpoint_frequency = 10        policy = "every 10 steps"
    checkpoint_interval = 60         policy = "every 60 s"                 joined with the one above
    checkpoint_enabled = false       policy = "manual"
    cleanup_enabled = false          schedule = "manual"
    cleanup_schedule = "daily"       schedule = "daily"
    retention_days = 30              retention.keep_within = "30d"
    max_size_mb = 100                retention.max_bytes = 104857600
    keep_latest = 10                 retention.keep_last = 10
    persistence_enabled = false      enabled = false
    storage_location = "checkpoints" store = "checkpoints/store.db"
    format = "json_gzip"             compression.codec = "gzip"
    compression = true               compression.codec = "zstd"

If a file has both, the current key overrides the older one. No I/O.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from everstep.config.file import BadText, parsed
from everstep.config.toml_lines import lines_of
from everstep.errors import InvalidConfig
from everstep.fields import Shape, field

_SCHEDULES = {"manual": "manual", "on_startup": "on_open", "startup": "on_open", "on_open": "on_open"}
_SCHEDULES |= {name: name for name in ("daily", "weekly", "monthly")}
_FORMATS = {"json": "none", "json_gzip": "gzip", "gzip": "gzip"}
_DROPPED = "only repeats the default"


class Old(Shape, frozen=True):
    """An older key: its current name ("" if it only repeats the default), and a sentence about it."""

    key: str
    new: str
    note: str


class Modern(Shape):
    """A table with current keys."""

    table: dict[str, Any]
    old: list[Old] = field(default_factory=list)
    bad: list[Old] = field(default_factory=list)


def _is_old(name: str, value: Any) -> bool:
    return name in _MEANINGS and (name != "compression" or type(value) is bool)


def modern(table: Mapping[str, Any]) -> Modern:
    """Convert a table to current keys. Values that cannot be understood are left out and named in `bad`."""
    held = {name: value for name, value in table.items() if _is_old(name, value)}
    out = Modern({name: _copied(value) for name, value in table.items() if name not in held})
    for key, value in held.items():
        new, meaning, bad = _meaning(key, value, held)
        if bad:
            out.bad.append(Old(key, "", f"{key} must be {bad}, got {value!r:.60}"))
        elif not new:
            out.old.append(Old(key, "", f"{key} is deprecated and {_DROPPED}; remove it"))
        else:
            out.old.append(_moved(out.table, key, new, meaning))
    return out


def _copied(value: Any) -> Any:
    return dict(value) if isinstance(value, dict) else value


def _moved(table: dict[str, Any], key: str, new: str, value: Any) -> Old:
    group, _, name = new.rpartition(".")
    inside = table.setdefault(group, {}) if group else table
    if not isinstance(inside, dict) or (name in inside and inside[name] != value):
        return Old(key, "", f"{key} is deprecated, and {new} is also set; remove {key}")
    inside[name] = value
    return Old(key, new, f"{key} is deprecated: use {new} = {json.dumps(value)}")


_Meaning = tuple[str, Any, str]  # the current key, its value, and the allowed values if the given one is invalid


def _meaning(key: str, value: Any, held: Mapping[str, Any]) -> _Meaning:
    return _MEANINGS[key](value, held)


def _whole(new: str, make: Callable[[int], Any]) -> Callable[[Any, Mapping[str, Any]], _Meaning]:
    def meaning(value: Any, held: Mapping[str, Any]) -> _Meaning:
        return (new, make(value), "") if type(value) is int and 1 <= value < 10**9 else ("", None, "an integer of at least 1")

    return meaning


def _policy(value: Any, held: Mapping[str, Any]) -> _Meaning:
    """Combine three older keys to one policy."""
    if held.get("checkpoint_enabled") is False:
        return "policy", "manual", ""
    parts = []
    for key, unit in (("checkpoint_frequency", "steps"), ("checkpoint_interval", "s")):
        number = held.get(key)
        if number is None:
            continue
        if type(number) is not int or not 1 <= number < 10**9:
            return "", None, "an integer of at least 1" if number is value else ""
        parts.append("every step" if (number, unit) == (1, "steps") else f"every {number} {unit}")
    return "policy", " | ".join(parts), ""


def _checkpoints_on(value: Any, held: Mapping[str, Any]) -> _Meaning:
    if type(value) is not bool:
        return "", None, "true or false"
    return ("", None, "") if value else ("policy", "manual", "")


def _cleanup_on(value: Any, held: Mapping[str, Any]) -> _Meaning:
    if type(value) is not bool:
        return "", None, "true or false"
    return ("", None, "") if value else ("schedule", "manual", "")


def _schedule(value: Any, held: Mapping[str, Any]) -> _Meaning:
    if type(value) is not str or value not in _SCHEDULES:
        return "", None, f"one of {', '.join(_SCHEDULES)}"
    return "schedule", "manual" if held.get("cleanup_enabled") is False else _SCHEDULES[value], ""


def _enabled(value: Any, held: Mapping[str, Any]) -> _Meaning:
    return ("enabled", value, "") if type(value) is bool else ("", None, "true or false")


def _location(value: Any, held: Mapping[str, Any]) -> _Meaning:
    """Convert a folder to the file in it."""
    if type(value) is not str or not value.strip():
        return "", None, "a string that is not empty"
    return "store", value if "://" in value or value.endswith(".db") else f"{value.rstrip('/')}/store.db", ""


def _format(value: Any, held: Mapping[str, Any]) -> _Meaning:
    if type(value) is not str or value not in _FORMATS:
        return "", None, f"one of {', '.join(_FORMATS)}"
    return "compression.codec", _codec(held), ""


def _compression(value: Any, held: Mapping[str, Any]) -> _Meaning:
    return "compression.codec", _codec(held), ""


def _codec(held: Mapping[str, Any]) -> str:
    by_format, wanted = held.get("format"), held.get("compression")
    if wanted is False:
        return "none"
    named = _FORMATS.get(by_format, "none") if isinstance(by_format, str) else "none"
    return "zstd" if wanted and named == "none" else named


_MEANINGS: dict[str, Callable[[Any, Mapping[str, Any]], _Meaning]] = {
    "checkpoint_frequency": _policy,
    "checkpoint_interval": _policy,
    "checkpoint_enabled": _checkpoints_on,
    "cleanup_enabled": _cleanup_on,
    "cleanup_schedule": _schedule,
    "retention_days": _whole("retention.keep_within", lambda days: f"{days}d"),
    "max_size_mb": _whole("retention.max_bytes", lambda size: size * 1024 * 1024),
    "keep_latest": _whole("retention.keep_last", int),
    "persistence_enabled": _enabled,
    "storage_location": _location,
    "format": _format,
    "compression": _compression,
}


def rewritten(text: str) -> tuple[str, list[str]]:
    """Rewrite the text of a file with current keys, and list the changes. All other lines, and comments, are kept."""
    table, prefix = _own(text)
    result = modern(table)
    if result.bad:
        raise InvalidConfig(result.bad[0].note, key=result.bad[0].key, others=len(result.bad) - 1)
    if not result.old:
        return text, []
    new_text = _Rewriting(text, prefix, table).apply(result)
    try:
        same = _own(new_text)[0] == result.table
    except InvalidConfig:
        same = False
    if not same:  # an inline table, or a layout that does not allow to replace lines
        raise InvalidConfig(
            "the deprecated keys of this file cannot be replaced line by line",
            remedy="Replace them by hand: " + "; ".join(old.note for old in result.old) + ".",
        )
    return new_text, [old.note for old in result.old]


def _own(text: str) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return our table of a text, and its path."""
    try:
        whole = parsed(text)
    except BadText as error:
        raise InvalidConfig(error.reason, f"line {error.line}", remedy="Correct the TOML at the line given.") from error
    tool = whole.get("tool")
    own = tool.get("everstep") if isinstance(tool, dict) else None
    return (own, ("tool", "everstep")) if isinstance(own, dict) else (whole, ())


class _Rewriting:
    """Replaces lines of one text."""

    def __init__(self, text: str, prefix: tuple[str, ...], table: Mapping[str, Any]):
        self._lines = text.splitlines(keepends=True)
        self._prefix = prefix
        self._table = table
        self._line_numbers = lines_of(text)
        self._done: set[str] = set()
        self._below: dict[int, list[str]] = {}  # lines to insert after a line, by its index

    def apply(self, result: Modern) -> str:
        for old in result.old:
            line = self._line_numbers.get((*self._prefix, old.key))
            if line is not None:
                self._lines[line - 1] = self._instead(old, self._lines[line - 1], result.table)
        return "".join(line + "".join(self._below.get(at, ())) for at, line in enumerate(self._lines))

    def _instead(self, old: Old, line: str, table: Mapping[str, Any]) -> str:
        """Return the replacement of an older key: the current key, or only the comment."""
        found = _LINE.match(line)
        if found is None:
            return line  # detected by the comparison at the end
        indent, comment, end = found["indent"], found["comment"] or "", found["end"]
        if not old.new or old.new in self._done or self._is_set(old.new):
            return f"{indent}{comment.strip()}{end}" if comment else ""
        self._done.add(old.new)
        group, _, name = old.new.rpartition(".")
        value = json.dumps((table[group] if group else table)[name], ensure_ascii=False)
        header = self._header(group)
        if header is None:
            return f"{indent}{found['before']}{old.new} = {value}{comment}{end}"
        line_end = end or "\n"
        if not self._lines[header].endswith("\n"):
            self._lines[header] += line_end
        self._below.setdefault(header, []).append(f"{name} = {value}{comment}{line_end}")
        return ""

    def _is_set(self, new: str) -> bool:
        """Whether the current key is already set."""
        group, _, name = new.rpartition(".")
        inside = self._table.get(group) if group else self._table
        return isinstance(inside, dict) and name in inside

    def _header(self, group: str) -> int | None:
        """Return the line of a table's own header, if it has one: the table's keys belong below it."""
        if not group or not isinstance(self._table.get(group), dict):
            return None
        line = self._line_numbers.get((*self._prefix, group))
        if line is None or not self._lines[line - 1].lstrip().startswith("["):
            return None
        return line - 1


_LINE = re.compile(
    r"""(?P<indent>[ \t]*)(?P<before>(?:[\w"']+[ \t]*\.[ \t]*)*)["']?\w+["']?[ \t]*=[ \t]*
    (?:"(?:\\.|[^"\\\n])*"|'[^'\n]*'|[^\s#"']+)(?P<comment>[ \t]*\#[^\n]*?)?[ \t]*(?P<end>\r?\n|\Z)""",
    re.VERBOSE,
)

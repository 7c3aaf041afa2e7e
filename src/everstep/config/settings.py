"""The effective settings, each with its origin: defaults, then a preset, the file, the environment, and arguments; the later one wins.

Relies on `keys` for the allowed values. Strict: an unknown key or an invalid value is an `InvalidConfig`, which names the location and the
allowed values. Never imports a module that a configuration names.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from everstep.codec.explain import shown
from everstep.codec.frame import Framer
from everstep.config import legacy_keys
from everstep.config.file import Document, read
from everstep.config.find import find_file, variables
from everstep.config.keys import GROUPS, HIDDEN, KEYS, LISTS, VARIABLES, Bad, nearest, seconds_of
from everstep.config.presets import PRESETS
from everstep.errors import InvalidArgument, InvalidConfig
from everstep.fields import Shape, field
from everstep.redact import Redactor
from everstep.runtime.limits.budget import Budget
from everstep.store.retention.retention import Retention

_LIMITS = ("seconds", "steps", "tokens", "cost")


class Value(NamedTuple):
    """A value and its origin: "default", "preset production", "everstep.toml:12", "environment EVERSTEP_STORE" or "argument"."""

    value: Any
    origin: str


class Settings(Shape):
    """The effective settings. `file` is the file that was read; `asked` are the environment and the arguments, so that everything can be
    read again.
    """

    values: dict[str, Value]
    file: Path | None = None
    asked: tuple[Mapping[str, str] | None, Mapping[str, Any]] = (None, {})
    notes: list[str] = field(default_factory=list)

    def __repr__(self) -> str:
        """Leave out the environment, which may contain keys."""
        return f"Settings(values={self.values!r}, file={self.file!r}, notes={self.notes!r})"

    def __getitem__(self, name: str) -> Any:
        return self.values[name].value

    def given(self, name: str) -> bool:
        """Whether the value is set explicitly or by a preset."""
        return self.values[name].origin != "default"

    def group(self, name: str) -> dict[str, Any]:
        """Return the values of a table that were set."""
        return {key.partition(".")[2]: self[key] for key in KEYS if key.startswith(f"{name}.") and self.given(key)}

    def retention(self) -> Retention | None:
        """Return the retention, if any part of it is set."""
        chosen = self.group("retention")
        if "keep_within" in chosen:
            chosen["keep_within"] = seconds_of(chosen["keep_within"])
        return Retention(**chosen) if chosen else None

    def level(self) -> int | None:
        """Return the compression level, if content is compressed."""
        level: int | None = self["compression.level"]
        return None if self["compression.codec"] == "none" else level

    def budget(self) -> Budget | None:
        """Return the budget of a run, if any part of it is set."""
        chosen = {name: self[f"limits.{name}"] for name in _LIMITS if self[f"limits.{name}"] is not None}
        return Budget(**chosen) if chosen else None

    def redactor(self) -> Redactor:
        """Return the redactor for output: built-in rules plus configured ones."""
        return Redactor.default(self["redaction.keys"], self["redaction.patterns"])

    def keys(self) -> dict[str, Any]:
        """Return the keys of the store, if any are set. A path in a file is relative to it."""
        names = {"key": "encryption.key", "old_keys": "encryption.old_keys"}
        return {option: self._key_texts(name) for option, name in names.items() if self[name]}

    def _key_texts(self, name: str) -> Any:
        origin, found = self.values[name].origin, self[name]
        beside = None if self.file is None or origin.startswith(("environment", "argument")) else self.file.absolute().parent
        return [one.text(beside) for one in found] if isinstance(found, list) else found.text(beside)

    def options(self) -> dict[str, Any]:
        """Return the arguments of `everstep.open` for these settings."""
        return {
            "url": self["store"], "enabled": self["enabled"], "policy": self["policy"], "durability": self["durability"],
            "compression": self["compression.codec"], "level": self.level(), "threshold": self["compression.threshold"],
            "retention": self.retention(), "schedule": self["schedule"], "protect": tuple(self["protect"]),
            "lease_seconds": self["lease_seconds"], "budget": self.budget(), "timeout": self["limits.timeout"],
            "redaction": self.redactor() if self["redaction.store"] else None, **self.keys(),
        }  # fmt: skip


def load(
    start: str | os.PathLike[str] | None = None,
    file: str | os.PathLike[str] | None = None,
    environ: Mapping[str, str] | None = None,
    arguments: Mapping[str, Any] | None = None,
) -> Settings:
    """Load the settings for a folder (by default the working one), or from a named file. Raises `InvalidConfig`.

    `environ` replaces the environment; `arguments` are values by key, such as {"compression.codec": "none"}.
    """
    settings = _loaded(Path(file) if file is not None else find_file(start), environ, arguments or {})
    for note in settings.notes:
        # Python shows this category only for code of the main program; the file belongs to the same person.
        warnings.warn_explicit(note, DeprecationWarning, str(settings.file), 0, module="__main__", registry={})
    return settings


def again(settings: Settings) -> Settings:
    """Read the same settings again."""
    return _loaded(settings.file, *settings.asked)


def _loaded(path: Path | None, environ: Mapping[str, str] | None, arguments: Mapping[str, Any]) -> Settings:
    path = None if path is None else path.absolute()  # the program may change its working folder before it is read again
    reading = _Reading(None if path is None else read(path))
    reading.file()
    reading.environment(os.environ if environ is None else environ)
    reading.arguments(arguments)
    settings = Settings(reading.settled(), path, (environ, arguments), reading.notes)
    reading.together(settings)
    reading.refuse()
    return settings


def faults(file: str | os.PathLike[str]) -> list[str]:
    """List everything wrong with a file, each with its location; empty if the file is valid."""
    try:
        reading = _Reading(read(file))
    except InvalidConfig as error:
        return [error.fault]
    reading.file()
    reading.together(Settings(reading.settled(), Path(file)))
    return [fault.fault for fault in reading.faults]


class _Reading:
    """Collects values from the weakest source to the strongest, and everything wrong with them."""

    def __init__(self, document: Document | None):
        self._document = document
        self._found: dict[str, Value] = {}
        self._locations: dict[str, str] = {}
        self.faults: list[InvalidConfig] = []
        self.notes: list[str] = []

    def file(self) -> None:
        document = self._document
        if document is None:
            return
        modern = legacy_keys.modern(document.table)
        self.notes = [f"{document.location(old.key)}: {old.note}" for old in modern.old]
        for old in modern.bad:
            self._fault(old.note, document.location(old.key), old.key, document.table.get(old.key))
        lines = {old.new: old.key for old in modern.old if old.new}
        for name, value in self._leaves(modern.table):
            where = (lines[name],) if name in lines else tuple(name.split("."))
            self._take(name, value, where)

    def _leaves(self, table: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
        """Yield the keys of a file that exist, each with its value."""
        for name, value in table.items():
            if name in GROUPS and isinstance(value, dict):
                yield from self._members(name, value)
            elif name in GROUPS:
                members = ", ".join(key for key in KEYS if key.startswith(f"{name}."))
                self._unknown(name, value, f"{name} must be a table; allowed: {members}")
            elif name in KEYS:
                yield name, value
            else:
                top = [key for key in KEYS if "." not in key] + list(GROUPS)
                self._unknown(name, value, f"there is no key {shown(name)}; {nearest(name, top)}")

    def _members(self, group: str, table: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
        known = {key.partition(".")[2]: key for key in KEYS if key.startswith(f"{group}.")}
        for name, value in table.items():
            if name in known:
                yield known[name], value
            else:
                self._unknown(f"{group}.{name}", value, f"{group} has no key {shown(name)}; {nearest(name, known)}", (group, name))

    def _unknown(self, key: str, value: Any, message: str, path: tuple[str, ...] = ()) -> None:
        assert self._document is not None
        self._fault(message, self._document.location(*(path or (key,))), key, value)

    def _take(self, name: str, value: Any, where: tuple[str | int, ...]) -> None:
        assert self._document is not None
        document = self._document
        try:
            value = KEYS[name].check(value)
        except Bad as bad:
            self._fault(f"{name} = {_said(name, value)} {bad.reason}", document.location(*where, *bad.path), name, value)
            return
        if name == "store":
            value = _beside(document.file, value)
        if name == "workflows":
            value = [str(document.file.absolute().parent / path) for path in value]
        line = document.line(*where)
        self._put(name, value, document.file.name if line is None else f"{document.file.name}:{line}", document.location(*where))

    def environment(self, environ: Mapping[str, str]) -> None:
        for variable in sorted(variables(environ)):
            key, text = VARIABLES.get(variable), environ[variable]
            location = f"environment {variable}"
            if key is None:
                self._fault(f"there is no such setting; {nearest(variable, VARIABLES)}", location, variable, text)
            elif text.strip() or key.kind in LISTS:  # an empty variable counts as unset
                try:
                    self._put(key.name, key.parse(text), location, location)
                except Bad as bad:
                    self._fault(f"{key.name} = {_said(key.name, text)} {bad.reason}", location, key.name, text)

    def arguments(self, arguments: Mapping[str, Any]) -> None:
        for name, value in arguments.items():
            if name not in KEYS:
                self._fault(f"there is no key {shown(name)}; {nearest(str(name), KEYS)}", "argument", str(name), value)
                continue
            try:
                self._put(name, KEYS[name].check(value), "argument", f"argument {name}")
            except Bad as bad:
                self._fault(f"{name} = {_said(name, value)} {bad.reason}", "argument", name, value)

    def _put(self, name: str, value: Any, origin: str, location: str) -> None:
        self._found[name] = Value(value, origin)
        self._locations[name] = location

    def settled(self) -> dict[str, Value]:
        """Return a value for each key."""
        preset: str = self._found["preset"].value if "preset" in self._found else ""
        below = {name: Value(value, f"preset {preset}") for name, value in PRESETS.get(preset, {}).items()}
        if "compression.codec" in self._found:
            below.pop("compression.level", None)  # it is meant for the codec of the preset
        return {name: self._found.get(name) or below.get(name) or Value(_plain(key.default), "default") for name, key in KEYS.items()}

    def together(self, settings: Settings) -> None:
        """Check the values that are only invalid in combination."""
        tries = (
            ("compression.level", lambda: Framer(settings["compression.codec"], settings.level(), settings["compression.threshold"])),
            ("retention.completed", settings.retention),
        )
        for name, attempt in tries:
            try:
                attempt()
            except InvalidArgument as error:
                self._fault(f"{error.message}; {error.remedy}", self._locations.get(name), name, settings[name])

    def _fault(self, message: str, location: str | None, key: str, value: Any) -> None:
        value = None if key in KEYS and KEYS[key].kind in HIDDEN else value
        self.faults.append(InvalidConfig(message, location, key=key, value=value))

    def refuse(self) -> None:
        if self.faults:
            first = self.faults[0]
            raise InvalidConfig(
                first.fault.removeprefix(f"{first.location}: "),
                first.location,
                key=first.key,
                value=first.value,
                others=len(self.faults) - 1,
            )


def _said(name: str, value: Any) -> str:
    """Return a wrong value for a message, unless it may be a key."""
    return "(hidden)" if KEYS[name].kind in HIDDEN else shown(value)


def _plain(default: Any) -> Any:
    return list(default) if isinstance(default, tuple) else default


def _beside(file: Path, store: str) -> str:
    """Resolve a path in a file relative to the file."""
    scheme, separator, rest = store.partition("://")
    if not separator:
        return str(file.absolute().parent / store)
    if scheme == "sqlite" and rest.startswith("/") and not rest.startswith("//") and len(rest) > 1:
        from urllib.parse import quote

        return f"sqlite:///{quote(str(file.absolute().parent))}/{rest[1:]}"
    return store

"""Every key of a configuration: its type, its default, its allowed values, and a description. Everything else is derived from `KEYS`.

Relies on the classes that use the values for validation (`Policy`, `Retention`, `Hooks`, `Redactor`). No I/O; never imports a module that a
value names.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from difflib import get_close_matches
from math import isfinite
from threading import TIMEOUT_MAX
from typing import Any

from everstep.errors import InvalidArgument
from everstep.fields import Shape
from everstep.ids import check_tag
from everstep.redact import BUILT_IN, check_pattern
from everstep.runtime.engine.leases import TTL_SECONDS
from everstep.runtime.hooks import EVENTS as HOOK_EVENTS
from everstep.runtime.hooks import TIMEOUT
from everstep.runtime.limits.policy import Policy, is_custom
from everstep.store.encryption.sources import Concealed, check_form
from everstep.store.retention.retention import KINDS

_UNITS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400, "w": 604_800}
_SPAN = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)\s*(s|min|m|h|d|w)")
_CALL = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*:[^\W\d]\w*(?:\.[^\W\d]\w*)*")
_MODULE = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*")
_YES, _NO = ("true", "yes", "on", "1"), ("false", "no", "off", "0")
_MOST = 2**63 - 1
HOOK_KEYS = ("event", "call", "priority", "timeout")


class Bad(Exception):
    """A value that a key cannot have. `path` leads to the wrong part."""

    def __init__(self, reason: str, path: tuple[str | int, ...] = ()):
        self.reason, self.path = reason, path
        super().__init__(reason)


class Key(Shape, frozen=True):
    """One key. `live`: a change takes effect in an open store."""

    name: str
    kind: str
    default: Any
    about: str
    choices: tuple[str, ...] = ()
    least: float = 0
    most: float = _MOST
    live: bool = True
    own_variable: str = ""

    @property
    def variable(self) -> str:
        """The environment variable that sets the key."""
        return self.own_variable or "EVERSTEP_" + self.name.upper().replace(".", "_")

    @property
    def allowed(self) -> str:
        """The allowed values, in words."""
        if self.choices:
            listed = ", ".join(self.choices)
            return f"a list of {listed}" if self.kind == "kinds" else listed
        if self.kind in ("whole", "number"):
            bounded = f"from {self.least:g} to {self.most:,g}" if self.most < 1e15 else f"of at least {self.least:g}"
            return f"{'an integer' if self.kind == 'whole' else 'a number'} {'greater than 0' if 0 < self.least < 0.001 else bounded}"
        return _ALLOWED[self.kind]

    def check(self, value: Any) -> Any:
        """Return the value if it is allowed; raises `Bad`."""
        try:
            return _CHECKS[self.kind](self, value)
        except InvalidArgument as error:
            raise Bad(f"is not allowed: {error.message}; allowed: {self.allowed}") from error

    def parse(self, text: str) -> Any:
        """Parse the text of an environment variable; raises `Bad`."""
        return self.check(_PARSERS.get(self.kind, _same)(self, text.strip()))

    def refuse(self) -> Bad:
        return Bad(f"is not allowed; allowed: {self.allowed}")


_ALLOWED = {
    "flag": "true, false",
    "text": "a string that is not empty",
    "policy": "a policy such as 'every 5 steps', 'every 30 s', 'on gate, llm', several of them joined by |, 'manual' or 'off'",
    "span": "seconds, or a string such as '90s', '15min', '12h', '30d', '4w'",
    "tags": "a list of tags",
    "tagged": "true, false or a list of tags",
    "modules": "a list of module names such as 'shop.orders'",
    "files": "a list of paths such as 'flows/*.yaml', each ending with .yaml, .yml or .py",
    "names": "a list of names, in which * matches any text",
    "patterns": f"a list of {', '.join(BUILT_IN)} and regular expressions",
    "secret": "hex digits, Base64, file:PATH, command:PROGRAM, keyring:SERVICE/NAME, passphrase:TEXT, passphrase-file:PATH",
    "secrets": "a list of keys",
    "hooks": f"a list of tables with {', '.join(HOOK_KEYS)}",
}


def seconds_of(value: Any) -> float:
    """Convert a length of time to seconds: '30d' is 2,592,000."""
    if isinstance(value, (int, float)):
        return value
    found = _SPAN.fullmatch(value)
    assert found is not None
    return float(found[1]) * _UNITS[found[2]]


def _flag(key: Key, value: Any) -> bool:
    if type(value) is not bool:
        raise key.refuse()
    return value


def _text(key: Key, value: Any) -> str:
    if type(value) is not str or not value.strip() or not value.isprintable():
        raise key.refuse()
    return value


def _secret(key: Key, value: Any) -> Concealed:
    if type(value) is Concealed:
        return value
    if type(value) is not str or not value.strip() or not value.isprintable():
        raise key.refuse()
    return Concealed(check_form(value.strip()))


def _secrets(key: Key, value: Any) -> list[Any]:
    if type(value) is not list:
        raise key.refuse()
    return [_secret(key, item) for item in value]


def _choice(key: Key, value: Any) -> str:
    if type(value) is not str or value not in key.choices:
        raise key.refuse()
    return value


def _whole(key: Key, value: Any) -> int:
    if type(value) is not int or not key.least <= value <= key.most:
        raise key.refuse()
    return value


def _number(key: Key, value: Any) -> float:
    if type(value) not in (int, float) or not isfinite(value) or not key.least <= value <= key.most:
        raise key.refuse()
    return float(value) if type(value) is float else value


def _policy(key: Key, value: Any) -> str:
    text = _text(key, value)
    Policy.parse(text)
    return text


def _span(key: Key, value: Any) -> float | str:
    if type(value) is str and _SPAN.fullmatch(value) and seconds_of(value) < 1e10:
        return value
    if type(value) in (int, float) and isfinite(value) and 0 <= value < 1e10:
        return value  # type: ignore[no-any-return]
    raise key.refuse()


def _list(key: Key, value: Any, good: Callable[[str], Any]) -> list[Any]:
    if type(value) is not list:
        raise key.refuse()
    for index, item in enumerate(value):
        try:
            fits = type(item) is str and good(item)
        except InvalidArgument as error:
            raise Bad(f"{item!r:.60} is not allowed: {error.message}; allowed: {key.allowed}", (index,)) from error
        if not fits:
            raise Bad(f"{item!r:.60} is not allowed; allowed: {key.allowed}", (index,))
    return list(value)


def _tags(key: Key, value: Any) -> list[Any]:
    return _list(key, value, check_tag)


def _tagged(key: Key, value: Any) -> Any:
    return value if type(value) is bool else _tags(key, value)


def _modules(key: Key, value: Any) -> list[Any]:
    return _list(key, value, _MODULE.fullmatch)


def _files(key: Key, value: Any) -> list[Any]:
    return _list(key, value, lambda path: path.endswith((".yaml", ".yml", ".py")) and path.isprintable())


def _names(key: Key, value: Any) -> list[Any]:
    return _list(key, value, lambda name: name.replace("*", "").strip("_- ") and name.isprintable())


def _patterns(key: Key, value: Any) -> list[Any]:
    return _list(key, value, check_pattern)


def _kinds(key: Key, value: Any) -> list[Any]:
    return _list(key, value, key.choices.__contains__)


def _hooks(key: Key, value: Any) -> list[dict[str, Any]]:
    if type(value) is not list:
        raise key.refuse()
    return [_hook(key, index, table) for index, table in enumerate(value)]


def _hook(key: Key, index: int, table: Any) -> dict[str, Any]:
    if type(table) is not dict:
        raise Bad(f"must be a table; allowed: {key.allowed}", (index,))
    for name in table:
        if name not in HOOK_KEYS:
            raise Bad(f"has no key {name!r:.60}; allowed: {', '.join(HOOK_KEYS)}", (index, name))
    for name in ("event", "call"):
        if name not in table:
            raise Bad(f"has no {name}; a hook needs event and call", (index,))
    event, call, priority, timeout = table["event"], table["call"], table.get("priority", 0), table.get("timeout", TIMEOUT)
    if type(event) is not str or not (event in HOOK_EVENTS or is_custom(event)):
        raise Bad(f"event = {event!r:.60} is not allowed; allowed: {', '.join(HOOK_EVENTS)}, custom:name", (index, "event"))
    if type(call) is not str or not _CALL.fullmatch(call):
        raise Bad(f"call = {call!r:.60} is not allowed; allowed: a string such as 'package.module:function'", (index, "call"))
    if type(priority) is not int:
        raise Bad(f"priority = {priority!r:.60} is not allowed; allowed: an integer", (index, "priority"))
    if type(timeout) not in (int, float) or not 0 < timeout <= TIMEOUT_MAX:
        raise Bad(f"timeout = {timeout!r:.60} is not allowed; allowed: a number of seconds greater than 0", (index, "timeout"))
    return {"event": event, "call": call, "priority": priority, "timeout": timeout}


_CHECKS: dict[str, Callable[[Key, Any], Any]] = {
    "flag": _flag, "text": _text, "choice": _choice, "whole": _whole, "number": _number, "policy": _policy, "span": _span, "tags": _tags,
    "tagged": _tagged, "modules": _modules, "files": _files, "names": _names, "patterns": _patterns, "kinds": _kinds, "hooks": _hooks,
    "secret": _secret, "secrets": _secrets,
}  # fmt: skip


def _same(key: Key, text: str) -> Any:
    return text


def _to_flag(key: Key, text: str) -> Any:
    lowered = text.lower()
    return True if lowered in _YES else False if lowered in _NO else text


def _to_number(key: Key, text: str) -> Any:
    for make in (int, float):
        try:
            return make(text)
        except ValueError:
            continue
    return text


def _to_span(key: Key, text: str) -> Any:
    return text if _SPAN.fullmatch(text) else _to_number(key, text)


def _to_list(key: Key, text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _to_tagged(key: Key, text: str) -> Any:
    return _to_flag(key, text) if text.lower() in _YES + _NO else _to_list(key, text)


def _to_hooks(key: Key, text: str) -> list[Any]:
    """Parse `after_step=package.module:function`, several joined by commas."""
    hooks = []
    for part in _to_list(key, text):
        event, _, call = part.partition("=")
        hooks.append({"event": event.strip(), "call": call.strip()})
    return hooks


_PARSERS: dict[str, Callable[[Key, str], Any]] = {
    "flag": _to_flag, "whole": _to_number, "number": _to_number, "span": _to_span, "tags": _to_list, "tagged": _to_tagged,
    "modules": _to_list, "files": _to_list, "names": _to_list, "patterns": _to_list, "kinds": _to_list, "hooks": _to_hooks, "secrets": _to_list,
}  # fmt: skip
LISTS = ("tags", "tagged", "modules", "files", "names", "patterns", "kinds", "hooks", "secrets")
HIDDEN = ("secret", "secrets")
"""Kinds whose values are never shown."""

_TABLE = (
    Key("enabled", "flag", True, "Whether anything is recorded. If not, no file is created and steps are plain calls.", live=False),
    Key("store", "text", None, "Where the store is: a path (relative to the configuration file) or a URL.", live=False),
    Key("preset", "choice", None, "A named set of values; values that are set explicitly override it.", ("development", "production", "high_throughput")),
    Key("durability", "choice", "sync", "When a save is durable, in runs that choose nothing else.", ("sync", "async", "exit")),
    Key("policy", "policy", "manual", "When checkpoints are saved automatically, in runs that choose nothing else."),
    Key("compression.codec", "choice", "zstd", "How stored content is compressed.", ("none", "zstd", "gzip")),
    Key("compression.level", "whole", None, "The compression level: -7 to 22 for zstd, 0 to 9 for gzip.", least=-7, most=22),
    Key("compression.threshold", "whole", 256, "Content with fewer bytes is not compressed."),
    Key("retention.keep_last", "whole", None, "Keep this many of the newest checkpoints of a run.", least=1),
    Key("retention.keep_within", "span", None, "Keep checkpoints that are not older than this."),
    Key("retention.keep_daily", "whole", None, "Keep the newest checkpoint of each of this many days.", least=1),
    Key("retention.keep_weekly", "whole", None, "Keep the newest checkpoint of each of this many weeks.", least=1),
    Key("retention.keep_tagged", "tagged", None, "Keep checkpoints with any tag, or with one of these."),
    Key("retention.keep_kinds", "kinds", None, "Keep checkpoints of these kinds.", KINDS),
    Key("retention.max_bytes", "whole", None, "Drop the oldest checkpoints of all runs until at most this many bytes are stored."),
    Key("retention.completed", "choice", "all", "What to keep of a run that has ended.", ("all", "final", "delete")),
    Key("retention.minimum", "whole", 1, "Always keep this many of the newest checkpoints.", least=1),
    Key("schedule", "choice", "manual", "When to clean up.", ("manual", "on_open", "daily", "weekly", "monthly"), live=False),
    Key("protect", "tags", (), "Tags whose checkpoints are always kept."),
    Key(
        "lease_seconds", "number", TTL_SECONDS, "Seconds until the lease of a writer that stopped responding expires.", least=0.01, most=86_400, live=False
    ),
    Key("imports", "modules", (), "Modules that define workflows; the command line imports them.", live=False),
    Key("workflows", "files", (), "Files that define workflows (.yaml or .py), relative to the configuration file; * matches any name, ** any folders.", live=False),
    Key("hooks", "hooks", (), "Functions to call at events."),
    Key("limits.seconds", "number", None, "The seconds that a run may use over all its attempts.", least=1e-6, most=1e15),
    Key("limits.steps", "whole", None, "The steps that a run may use.", least=1, most=10**15),
    Key("limits.tokens", "whole", None, "The tokens that a run may use.", least=1, most=10**15),
    Key("limits.cost", "number", None, "The cost that a run may incur.", least=1e-9, most=1e15),
    Key("limits.timeout", "number", None, "The seconds that one attempt at a run may take.", least=1e-6, most=1e15),
    Key("redaction.keys", "names", (), "Names whose values are masked, in addition to the built-in ones."),
    Key("redaction.patterns", "patterns", (), "Patterns of text to mask, in addition to API keys and tokens."),
    Key("redaction.store", "flag", False, "Whether to mask values before they are stored, too."),
    Key("encryption.key", "secret", None, "The key of the store, in any of its forms: see encryption.md.", live=False, own_variable="EVERSTEP_KEY"),
    Key("encryption.old_keys", "secrets", (), "Former keys, tried for what is not yet under the new one.", live=False),
    Key("reload", "choice", "off", "How to detect a change of the file while a store is open.", ("off", "file", "signal"), live=False),
)  # fmt: skip
KEYS: dict[str, Key] = {key.name: key for key in _TABLE}
GROUPS = tuple(dict.fromkeys(name.partition(".")[0] for name in KEYS if "." in name))
VARIABLES: dict[str, Key] = {key.variable: key for key in _TABLE}


def nearest(name: str, names: Any) -> str:
    """Suggest the names that an unknown one may mean."""
    close = get_close_matches(name[:60], list(names), 3, 0.5)
    return f"did you mean {' or '.join(close)}?" if close else f"allowed: {', '.join(names)}"

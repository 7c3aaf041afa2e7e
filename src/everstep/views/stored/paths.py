"""Paths into a state as a person types them: `messages[2].content`, `users['a.b'].name`, or a JSON list of keys. No I/O."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from shlex import quote
from typing import Any

from everstep.errors import InvalidArgument, NotFound
from everstep.views.stored.values import fields_of

_MOST_KEYS = 1_000
_PART = re.compile(r"\.?([^.\[\]'\"]+)|\[(-?\d+)\]|\[('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")\]")


def parse(text: str) -> tuple[Any, ...]:
    """Parse a path into its keys and positions."""
    if text.startswith("[") and text.endswith("]"):
        try:
            found = json.loads(text)
            if isinstance(found, list) and len(found) != 1:
                return tuple(found)
        except ValueError:
            pass
    parts: list[Any] = []
    at = 0
    while at < len(text):
        match = _PART.match(text, at)
        if match is None or (match[1] is not None and at > 0 and text[at] != "."):
            raise InvalidArgument(
                f"{text!r:.100} is not a valid path: cannot parse {text[at:]!r:.40}",
                remedy="Write for example messages[2].content, or ['odd.key'] for a key with dots.",
            )
        parts.append(match[1] if match[1] is not None else int(match[2]) if match[2] is not None else _unquoted(match[3]))
        at = match.end()
    return tuple(parts)


def _unquoted(text: str) -> str:
    """Parse a quoted key; in double quotes it is JSON, as `shown` writes it."""
    if text.startswith('"'):
        try:
            return str(json.loads(text))
        except ValueError:
            pass
    return re.sub(r"\\(.)", r"\1", text[1:-1])


def shown(path: Sequence[Any]) -> str:
    """Format a path so that it can be typed again."""
    out = ""
    for key in path:
        if isinstance(key, int) and not isinstance(key, bool):
            out += f"[{key}]"
        elif isinstance(key, str) and re.fullmatch(r"[^.\[\]'\"\s]+", key) and key.isprintable():
            out += f".{key}" if out else key
        elif isinstance(key, str):
            out += f"[{json.dumps(key, ensure_ascii=not key.isprintable())}]"
        else:
            out += f"[{key!r}]"
    return out or "state"


def pick(value: Any, path: Sequence[Any], ref: str) -> Any:
    """Return the value at a path."""
    for depth, key in enumerate(path):
        try:
            value = _member(value, key)
        except (KeyError, IndexError, TypeError, ValueError):
            place = f"everstep state {quote(ref)} {quote(shown(path[:depth])) if depth else ''}".rstrip()
            raise NotFound(
                f"the state of {ref} has no value at {shown(path[: depth + 1])}",
                remedy=f"{_near(value, path[:depth], key)}Print the state: {place}",
            ) from None
    return value


def _near(value: Any, above: Sequence[Any], key: Any) -> str:
    """Return a question about keys that are similar to one that is missing; empty if there is none."""
    keys = [one for one in (value if isinstance(value, Mapping) else fields_of(value) or {}) if isinstance(one, str)]
    near = get_close_matches(key, keys[:_MOST_KEYS], 3, 0.6) if isinstance(key, str) else []
    return f"Did you mean {' or '.join(shown((*above, one)) for one in near)}? " if near else ""


def _member(value: Any, key: Any) -> Any:
    if isinstance(value, Mapping):
        return value[key] if key in value else value[int(key)]
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        return value[int(key)]
    return (fields_of(value) or {})[key]  # its fields, never a method

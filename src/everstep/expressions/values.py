"""Operations on the values of an expression: members, comparisons, and four functions. No I/O.

Never calls a method or property of a program's object, and never reads anything private: only keys, positions and declared fields.
"""

from __future__ import annotations

import difflib
import json as jsons
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Any

from everstep.secret import Secret

Later = Callable[[], Any]  # an operand that is evaluated when needed


class ExpressionError(ValueError):
    """An expression that cannot be parsed or evaluated; `line` is its line in the document, once known."""

    line: int | None = None


class Missing(ExpressionError):
    """A missing value; `default(x, y)` catches it."""


def member(value: Any, key: Any) -> Any:
    """Return a key of a mapping, an item of a list, or a field of an object."""
    if isinstance(value, Mapping):
        if isinstance(key, (str, int, float)) and key in value:
            return value[key]
    elif isinstance(value, Sequence) and type(key) is int:
        if -len(value) <= key < len(value):
            return value[key]
    elif isinstance(key, str) and key in _fields(type(value)):
        return getattr(value, key)
    holder = "null" if value is None else f"a value of type {type(value).__name__}"
    raise Missing(f"there is no {key!r:.60} in {holder}")


def _fields(kind: type) -> Sequence[str]:
    """List the fields of a dataclass, a named tuple, a pydantic model or a msgspec struct."""
    for name in ("__dataclass_fields__", "_fields", "model_fields", "__struct_fields__"):
        fields = getattr(kind, name, None)
        if isinstance(fields, (dict, tuple)):
            return tuple(fields)
    return ()


COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "in": lambda a, b: a in b,
    "not in": lambda a, b: a not in b,
}


def compared(name: str, left: Any, right: Any) -> bool:
    try:
        return bool(COMPARISONS[name](left, right))
    except (TypeError, ValueError) as error:
        raise ExpressionError(f"cannot compare {left!r:.60} {name} {right!r:.60}") from error


def _len(value: Later) -> int:
    found = value()
    if not isinstance(found, (Sequence, Mapping, Set)):
        raise ExpressionError(f"len() takes a list, a string or a mapping, got a value of type {type(found).__name__}")
    return len(found)


def _default(value: Later, other: Later) -> Any:
    try:
        found = value()
    except Missing:
        found = None
    return other() if found is None else found


def _json(value: Later) -> Any:
    text = _text(value(), "json()")
    try:
        return jsons.loads(text)
    except (ValueError, RecursionError) as error:
        raise ExpressionError(f"json(): {error} in '{text:.60}'") from error


def _lines(value: Later) -> list[str]:
    return [line for line in _text(value(), "lines()").splitlines() if line.strip()]


def _text(value: Any, what: str) -> str:
    if not isinstance(value, str):
        raise ExpressionError(f"{what} takes text, got a value of type {type(value).__name__}")
    return value


FUNCTIONS: dict[str, tuple[int, Callable[..., Any]]] = {
    "len": (1, _len),
    "default": (2, _default),
    "json": (1, _json),
    "lines": (1, _lines),
}


def as_text(value: Any) -> str:
    """Format a value for a text or an environment variable: text as it is, everything else as JSON. Never a Secret: the text would be wrong or show it."""
    if isinstance(value, Secret):
        raise ExpressionError("a Secret cannot be put into a text; under env: or with:, let it be the whole value")
    return value if isinstance(value, str) else jsons.dumps(value, ensure_ascii=False, default=_as_str)


def _as_str(value: Any) -> str:
    """Format a value that JSON does not have."""
    return as_text(value) if isinstance(value, Secret) else str(value)


def suggestion(word: str, allowed: Iterable[str]) -> str:
    """Suggest the closest allowed word, as the end of a sentence."""
    near = difflib.get_close_matches(word, list(allowed), n=1, cutoff=0.6)
    return f" (did you mean '{near[0]}'?)" if near else ""

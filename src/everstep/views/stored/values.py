"""Converts stored values to JSON. Never runs code of a value. No I/O.

JSON has no tuples, dates or bytes. They become forms that a script can use: a list, an ISO text, an object that names its type:

    tuple, deque, range, set, frozenset   a list; sets in an order that is always the same
    datetime, date, time, UUID, Decimal, Fraction, Path, Enum   a text
    timedelta                      seconds
    bytes, bytearray               {"$bytes": "base64"}
    NaN and infinities             {"$float": "nan"}
    complex                        {"$complex": [real, imaginary]}
    a Secret                       the text "[redacted]"
    an object of a type            its fields, with "$type": its name
    a dict with other keys         {"$dict": [[key, value], …]}; also one that looks like any of these

`tagged_json` reads them back.
"""

from __future__ import annotations

import json
import math
from base64 import b64encode
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any

from everstep.codec.opaque import OPAQUE
from everstep.codec.values import revived
from everstep.secret import MASK, Secret

_SCALARS = (str, int, float, bool, type(None))


def as_json(value: Any) -> Any:
    """Return a stored value as JSON values."""
    if isinstance(value, Enum):
        return str(value.value) if not isinstance(value.value, (int, float)) else value.value
    if isinstance(value, float) and not math.isfinite(value):
        return {"$float": str(value)}
    if isinstance(value, _SCALARS):
        return _scalar(value)
    if isinstance(value, Mapping):
        return _mapping(value)
    if isinstance(value, Sequence) and not isinstance(value, (bytes, bytearray, memoryview)):
        return [as_json(item) for item in value]
    if isinstance(value, Secret):
        return MASK
    if isinstance(value, (set, frozenset)):
        return sorted((as_json(item) for item in value), key=lambda item: json.dumps(item, sort_keys=True))
    return _other(value)


def iso(moment: datetime) -> str:
    """Format a time of the store in UTC with milliseconds: 2026-11-15T08:30:00.000Z. Times in user values are written unchanged."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def whole(value: Any) -> Any:
    """Convert a lazily loaded value to plain containers: masking only looks into plain ones."""
    if isinstance(value, Mapping) and not isinstance(value, dict):
        return {key: whole(item) for key, item in value.items()}
    if type(value).__name__ == "ListView":
        return [whole(item) for item in value]
    return value


def opened(value: Any) -> Any:
    """Return a value with its objects as dicts of their fields."""
    fields = fields_of(value)
    if fields is not None or isinstance(value, Mapping):
        return {key: opened(item) for key, item in (value.items() if fields is None else fields.items())}
    if isinstance(value, (list, tuple)) or type(value).__name__ == "ListView":
        return [opened(item) for item in value]
    return value


def _scalar(value: Any) -> Any:
    """Return the plain value of an instance of a subclass."""
    for kind in (bool, int, float, str):
        if isinstance(value, kind):
            return kind(value)
    return None


def _mapping(value: Mapping[Any, Any]) -> Any:
    if all(isinstance(key, str) for key in value):
        plain = {str(key): as_json(item) for key, item in value.items()}
        if not any(key.startswith("$") for key in plain) or not _looks_like_tag(plain):
            return plain
    return {"$dict": [[as_json(key), as_json(item)] for key, item in value.items()]}


def _looks_like_tag(plain: dict[str, Any]) -> bool:
    from everstep.views.stored.tagged_json import is_tag  # imported here: it imports this module

    return is_tag(plain)


def _other(value: Any) -> Any:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return {"$bytes": b64encode(bytes(value)).decode()}
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, complex):
        return {"$complex": [as_json(value.real), as_json(value.imag)]}
    if type(value).__name__ == "Unknown" and value.name == OPAQUE:
        value = revived(value)
    found = fields_of(value)
    if found is not None:
        name = getattr(value, "name", None) if type(value).__name__ == "Unknown" else None
        return {"$type": str(name or type(value).__qualname__), **{str(key): as_json(item) for key, item in found.items()}}
    if hasattr(value, "isoformat"):
        return value.isoformat()
    return as_json(value.tolist()) if hasattr(value, "tolist") else str(value)


def fields_of(value: Any) -> dict[Any, Any] | None:
    """Return the fields of an object of the program, or of a type that this process doesn't know."""
    if type(value).__name__ == "Unknown" and isinstance(getattr(value, "fields", None), Mapping):
        return dict(value.fields)
    if hasattr(type(value), "__dataclass_fields__"):
        from dataclasses import fields

        return {field.name: getattr(value, field.name) for field in fields(value)}
    for name in ("model_fields", "__struct_fields__"):
        if hasattr(type(value), name):
            return {field: getattr(value, field) for field in getattr(type(value), name)}
    return None


def dumps(value: Any, indent: int | None = None) -> str:
    """Write JSON in ASCII, so that no text can send escapes to a terminal."""
    return json.dumps(value, indent=indent, ensure_ascii=True, allow_nan=False)

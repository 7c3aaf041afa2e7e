"""Plain data of any object, and names and keys of steps. No I/O."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from hashlib import sha256
from typing import Any
from uuid import UUID

from everstep import Secret

_SCALARS = (type(None), bool, int, float, str, bytes, datetime, date, time, timedelta, Decimal, UUID, Secret)


def is_plain(value: Any) -> bool:
    """Whether a value consists of built-in types alone."""
    if type(value) in (list, tuple):
        return all(is_plain(item) for item in value)
    if type(value) is dict:
        return all(type(key) is str and is_plain(item) for key, item in value.items())
    return type(value) in _SCALARS


def to_plain(value: Any) -> Any:
    """Return an object as plain data: the fields of a model or dataclass, else its text."""
    if is_plain(value):
        return value
    if hasattr(value, "model_dump") and not isinstance(value, type):
        return value.model_dump(mode="json")
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [to_plain(item) for item in value]
    return str(value)


def to_copy(value: Any) -> Any:
    """Return an object as plain data that shares nothing with it."""
    if isinstance(value, Mapping):
        return {str(key): to_copy(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_copy(item) for item in value]
    return value if type(value) in _SCALARS else to_copy(to_plain(value))


def to_text(value: Any) -> str:
    """Return a text as it is, any other value as JSON with sorted keys."""
    return value if isinstance(value, str) else json.dumps(to_plain(value), sort_keys=True, default=str)


def name_of(text: str | None, otherwise: str) -> str:
    """Return a text as the name of a step or gate."""
    return "".join("-" if c in "#/@" or c < " " else c for c in text or "")[:200] or otherwise


def key_of(turn: int, call_id: str) -> str:
    """Return the key of a tool call. The turn is part of it: not every model numbers its calls through the whole run."""
    key = f"{turn}.{call_id}"
    return key if len(key) <= 200 and "/" not in key else f"{turn}.{sha256(call_id.encode()).hexdigest()}"

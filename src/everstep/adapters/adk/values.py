"""Values of sessions as plain data, and back.

Plain data stays as it is, with its types. A pydantic model or dataclass becomes a dict of its fields and an Enum its value, as in ADK's own
services; anything else is refused. A dict of the program that has the key `@` is `{"@": "dict", "items": …}`. Models of ADK and google.genai are
compact: fields that have their default are left out. No I/O.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import cache
from typing import Any
from uuid import UUID

from pydantic import BaseModel

from everstep import Secret
from everstep.errors import InvalidArgument, Unstorable

TAG = "@"
_ATOMS = frozenset({type(None), bool, int, float, str, bytes, datetime, date, time, timedelta, Decimal, UUID, Secret})
_KEYS = frozenset({str, int, float, bool, type(None)})
_FRAMEWORK = ("google.genai.", "google.adk.")
_MISSING: Any = object()


def to_plain(value: Any, path: str) -> Any:
    """Return a value as data that can be stored and shares nothing with it; raise Unstorable with its path."""
    cls = value.__class__
    if cls in _ATOMS:
        return value
    if isinstance(value, Enum):
        return to_plain(value.value, path)
    if isinstance(value, Mapping):
        out = {_key(key, path): to_plain(item, f"{path}[{key!r}]") for key, item in value.items()}
        return {TAG: "dict", "items": out} if TAG in out else out
    if cls is tuple:
        return tuple(to_plain(item, f"{path}[{n}]") for n, item in enumerate(value))
    if isinstance(value, (list, tuple)):
        return [to_plain(item, f"{path}[{n}]") for n, item in enumerate(value)]
    if cls in (set, frozenset) and all(item.__class__ in _ATOMS for item in value):
        return cls(value)
    if isinstance(value, BaseModel):
        return fields_of(value, path) if cls.__module__.startswith(_FRAMEWORK) else _dumped(value, path)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_plain(getattr(value, field.name), f"{path}.{field.name}") for field in dataclasses.fields(value)}
    if isinstance(value, (str, bytes)):  # a subclass
        return str(value) if isinstance(value, str) else bytes(value)
    raise Unstorable(
        path,
        f"is of type {cls.__module__}.{cls.__qualname__}, which cannot be stored",
        remedy="Convert it to plain data, or use the prefix temp: for a value that is not to be stored.",
    )


def fields_of(model: BaseModel, path: str, without: Sequence[str] = ()) -> dict[str, Any]:
    """Return the fields of a model of the framework that do not have their default."""
    defaults, out = _defaults(model.__class__), {}
    for name, value in (model.__dict__ | (model.__pydantic_extra__ or {})).items():
        default = defaults.get(name, _MISSING)
        if name not in without and not (value.__class__ is default.__class__ and value == default):
            out[name] = to_plain(value, f"{path}.{name}")
    return out


def from_plain(stored: Any) -> Any:
    """Return a new value from stored data, which may be live or a view."""
    if stored.__class__ in _ATOMS:
        return stored
    if isinstance(stored, Mapping):
        tag = stored.get(TAG)
        if tag is not None and (tag != "dict" or not isinstance(stored.get("items"), Mapping)):
            raise InvalidArgument(
                f"the session holds a value of kind {tag!r:.60}", remedy="Upgrade Everstep: a newer version has written it."
            )
        found = stored if tag is None else stored["items"]
        return {key: from_plain(item) for key, item in found.items()}
    if isinstance(stored, tuple):
        return tuple(from_plain(item) for item in stored)
    if isinstance(stored, (str, bytes)):
        return stored
    if isinstance(stored, AbstractSet):
        return frozenset(stored) if isinstance(stored, frozenset) else set(stored)
    if isinstance(stored, Sequence):
        return [from_plain(item) for item in stored]
    return stored


def _dumped(model: BaseModel, path: str) -> Any:
    """Return all fields of a model of the program; those of fastapi, in configurations of credentials, by the names that they are read with."""
    return to_plain(model.model_dump(by_alias=model.__class__.__module__.startswith("fastapi.")), path)


def _key(key: Any, path: str) -> Any:
    if key.__class__ in _KEYS:
        return key
    if isinstance(key, str):
        return str(key.value) if isinstance(key, Enum) else str(key)
    raise Unstorable(path, f"has a key of type {type(key).__name__}", remedy="Use text or numbers as keys.")


@cache
def _defaults(cls: type[BaseModel]) -> dict[str, Any]:
    """Return the defaults of a class. A time that a factory makes is not one: it differs for each object."""
    found = {name: field.get_default(call_default_factory=True) for name, field in cls.model_fields.items() if not field.is_required()}
    return {name: value for name, value in found.items() if value.__class__ is not float}

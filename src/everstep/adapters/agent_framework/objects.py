"""Takes objects apart into named fields, and fills new ones, as pickle does: without a constructor, with `__getstate__` and `__setstate__`.

Only for classes that are allowed. Unlike with pickle, data never names a function to call. No I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

from pydantic import BaseModel

from everstep.errors import Unstorable

Encode = Callable[[Any, str], Any]
Decode = Callable[[Any], Any]
_SCALARS = (str, int, float, bytes)
_LISTS = (list, set, frozenset, tuple)


def fields_of(value: Any, path: str, encode: Encode) -> dict[str, Any]:
    """Return the parts of an object, encoded."""
    cls = value.__class__
    if isinstance(value, Enum):
        return {"value": encode(value.value, path)}
    if isinstance(value, BaseModel):
        out: dict[str, Any] = {"fields": _named(value.__dict__, path, encode), "set": sorted(value.__pydantic_fields_set__)}
        for name in ("extra", "private"):
            found = getattr(value, f"__pydantic_{name}__")
            if found:
                out[name] = _named(found, path, encode)
        return out
    if hasattr(cls, "_fields") and isinstance(value, tuple):
        return {"fields": _named(value._asdict(), path, encode)}  # type: ignore[attr-defined]
    out = _contents(value, path, encode)
    state = value.__getstate__()
    if isinstance(state, tuple) and len(state) == 2 and all(part is None or isinstance(part, dict) for part in state):
        state = {**(state[0] or {}), **(state[1] or {})}  # attributes, and those in slots
    if state is None or isinstance(state, Mapping):
        return {**out, "fields": _named(state or {}, path, encode)}
    if hasattr(cls, "__setstate__"):
        return {**out, "state": encode(state, path)}
    raise Unstorable(path, f"is of type {cls.__qualname__}, whose __getstate__ returns {type(state).__name__}")


def made_of(cls: Any, stored: Mapping[str, Any], decode: Decode) -> Any:
    """Return the object that was taken apart."""
    if issubclass(cls, Enum):
        return cls(decode(stored["value"]))
    if issubclass(cls, BaseModel):
        return _model(cls, stored, decode)
    fields = {name: decode(item) for name, item in stored["fields"].items()} if "fields" in stored else None
    if issubclass(cls, tuple) and hasattr(cls, "_fields"):
        return tuple.__new__(cls, [(fields or {})[name] for name in cls._fields])
    made = _empty(cls, stored, decode)
    if "state" in stored:
        made.__setstate__(decode(stored["state"]))
    elif fields and hasattr(cls, "__setstate__"):
        made.__setstate__(fields)
    else:
        for name, item in (fields or {}).items():
            object.__setattr__(made, name, item)
    return made


def _named(fields: Mapping[str, Any], path: str, encode: Encode) -> dict[str, Any]:
    return {name: encode(item, f"{path}.{name}") for name, item in fields.items()}


def _contents(value: Any, path: str, encode: Encode) -> dict[str, Any]:
    """Return what an instance of a subclass of a built-in type holds besides its attributes."""
    base: Any
    for base in _SCALARS:
        if isinstance(value, base):
            return {"value": encode(base(value) if base is not str else str.__str__(value), path)}
    if isinstance(value, dict):
        return {"items": encode(dict(value), path)}
    if isinstance(value, _LISTS):
        return {"items": encode(list(value), path)}
    return {}


def _empty(cls: Any, stored: Mapping[str, Any], decode: Decode) -> Any:
    base: Any
    if "value" in stored:
        base = next(base for base in _SCALARS if issubclass(cls, base))
        return base.__new__(cls, decode(stored["value"]))
    if "items" not in stored:
        return object.__new__(cls)
    items = decode(stored["items"])
    base = next(base for base in (dict, *_LISTS) if issubclass(cls, base))
    if base in (tuple, frozenset):
        return base.__new__(cls, items)
    made = base.__new__(cls)
    base.__init__(made, items)  # of the built-in type: a class of the user may want other arguments
    return made


def _model(cls: Any, stored: Mapping[str, Any], decode: Decode) -> Any:
    """Fill a pydantic model without validating it again: it was valid when it was saved."""
    made = cls.__new__(cls)
    object.__setattr__(made, "__dict__", {name: decode(item) for name, item in stored["fields"].items()})
    object.__setattr__(made, "__pydantic_fields_set__", set(stored["set"]))
    for name in ("extra", "private"):
        found = stored.get(name)
        kept = None if found is None else {key: decode(item) for key, item in found.items()}
        if kept is None and name == "extra" and cls.model_config.get("extra") == "allow":
            kept = {}
        object.__setattr__(made, f"__pydantic_{name}__", kept)
    return made

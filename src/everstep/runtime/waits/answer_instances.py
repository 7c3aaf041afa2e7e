"""Converts answers to instances of the class that a gate has as its schema, and back to plain data. No I/O.

The store has plain JSON data. The class comes from the program that asks, never from a store.
"""

from __future__ import annotations

import json
import types
import typing
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

from everstep.runtime.waits.answer_check import check, same


def plain_of(value: Any) -> Any:
    """Return an answer as plain data. A value that contains no instance of such a class is returned as it is."""
    cls = type(value)
    if isinstance(value, Enum):
        return plain_of(value.value)
    if _is_model(cls):
        return value.model_dump(mode="json", by_alias=True)
    if _is_struct(cls):
        import msgspec

        return msgspec.to_builtins(value)
    if is_dataclass(cls):
        return {one.name: plain_of(getattr(value, one.name)) for one in fields(cls) if one.init}
    if cls is list:
        return [plain_of(one) for one in value]
    if cls is dict:
        return {key: plain_of(one) for key, one in value.items()}
    return value


def instance_of(kind: Any, value: Any) -> Any:
    """Return an instance of a type from plain data that matches its schema. Errors of the class itself are raised as they are."""
    if kind is None or isinstance(kind, Mapping):
        return value
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin is not None:
        return _of_generic(origin, args, value)
    if isinstance(kind, typing.NewType):
        return instance_of(kind.__supertype__, value)
    if type(kind).__name__ == "TypeAliasType":
        return instance_of(kind.__value__, value)
    return _of_class(kind, value) if isinstance(kind, type) else value


def _of_generic(origin: Any, args: tuple[Any, ...], value: Any) -> Any:
    if origin in (typing.Union, types.UnionType):
        return _of_union(args, value)
    if origin is list:
        return [instance_of(args[0], one) for one in value]
    if origin is dict:
        return {key: instance_of(args[1], one) for key, one in value.items()}
    if origin is typing.Literal:
        return next((one for one in args if plain_of(one) == value and type(plain_of(one)) is type(value)), value)
    return instance_of(args[0], value) if args else value  # Annotated, and the qualifiers of a TypedDict


def _of_union(args: tuple[Any, ...], value: Any) -> Any:
    """Return an instance of the first member that matches."""
    from everstep.runtime.waits.answer_schema import to_schema

    fitting = [one for one in args if one is not types.NoneType and check(to_schema(one), value) is None]
    for one in fitting[:-1]:
        try:
            return instance_of(one, value)
        except Exception:  # noqa: BLE001, S112 - the class refuses it, another one may accept it
            continue
    return instance_of(fitting[-1], value) if fitting else value


def _of_class(kind: Any, value: Any) -> Any:
    if issubclass(kind, Enum):
        return next(one for one in kind if _same(plain_of(one), value))
    if _is_model(kind):
        return kind.model_validate_json(json.dumps(value))  # as JSON: a strict model accepts a date as text only there
    if _is_struct(kind):
        import msgspec

        return msgspec.convert(value, kind)
    if is_dataclass(kind):
        hints = typing.get_type_hints(kind, include_extras=True)
        make: Any = kind
        return make(**{name: instance_of(hints[name], one) for name, one in value.items()})
    if issubclass(kind, dict) and hasattr(kind, "__required_keys__"):
        hints = typing.get_type_hints(kind, include_extras=True)
        return {name: instance_of(hints[name], one) for name, one in value.items()}
    return value


def _same(one: Any, other: Any) -> bool:
    return same(list(one) if isinstance(one, tuple) else one, other)


def _is_model(cls: Any) -> bool:
    """Whether a class is a pydantic model."""
    return callable(getattr(cls, "model_json_schema", None)) and callable(getattr(cls, "model_validate_json", None))


def _is_struct(cls: Any) -> bool:
    """Whether a class is a msgspec Struct."""
    return hasattr(cls, "__struct_fields__") and hasattr(cls, "__struct_config__")

"""Makes the JSON Schema of a Python type: built-in types, unions and literals, Enums, dataclasses, TypedDicts, pydantic models, msgspec Structs.

Dataclasses and TypedDicts are translated here even if pydantic or msgspec is installed: the schema of a gate is part of the run's record
and must not depend on what is installed. Pydantic models and Structs bring their own schema. Never imports a name found in data.
"""

from __future__ import annotations

import re
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from math import isfinite
from typing import Any, NoReturn

from everstep.codec.explain import shown
from everstep.errors import InvalidArgument
from everstep.runtime.waits.answer_check import COMBINED, DEPTH, Schema, path_to, target


def plain(value: Any, path: str, depth: int = 0) -> Any:
    """Return a copy that is pure JSON, so that the stored and shown value is the checked one."""
    if isinstance(value, Enum):
        return plain(value.value, path, depth)
    if value is None or type(value) in (bool, int, str) or (type(value) is float and isfinite(value)):
        return value
    if depth < DEPTH and isinstance(value, (list, tuple)):
        return [plain(v, f"{path}[{i}]", depth + 1) for i, v in enumerate(value)]
    if depth < DEPTH and isinstance(value, Mapping) and all(type(k) is str for k in value):
        return {k: plain(v, path_to(path, k), depth + 1) for k, v in value.items()}
    raise InvalidArgument(
        f"{path} is {shown(value)}, which JSON cannot represent" + ("" if depth < DEPTH else " at this depth"),
        remedy=f"Use None, bool, int, finite float, text, lists and dicts with text keys, nested at most {DEPTH} deep.",
    )


def parts(schema: Schema) -> Iterator[tuple[str, Any]]:
    """Yield the schemas directly inside of a schema, each with its path."""
    for word in ("properties", "$defs"):
        for name, part in schema.get(word, {}).items():
            yield path_to(f".{word}", name), part
    for word in ("items", "additionalProperties"):
        if word in schema:
            yield f".{word}", schema[word]
    for word in COMBINED:
        for number, part in enumerate(schema.get(word, ())):
            yield f".{word}[{number}]", part


def all_parts(schema: Any) -> Iterator[Schema]:
    if isinstance(schema, dict):
        yield schema
        for _, part in parts(schema):
            yield from all_parts(part)


_NAMED = ((str, "string"), (int, "integer"), (float, "number"), (bool, "boolean"), (list, "array"), (dict, "object"), (None, "null"), (types.NoneType, "null"))  # fmt: skip
_WRAPPERS = ("Annotated", "Required", "NotRequired", "ReadOnly")


def from_type(kind: Any) -> Schema:
    maker = _Maker()
    root = maker.make(kind)
    name = target(root)
    if name is not None and all(part.get("$ref") != root["$ref"] for part in all_parts({"$defs": maker.defs})):
        root = maker.defs.pop(name)  # a schema is easier to read with one reference less; only a recursive type needs it
    return {**root, "$defs": maker.defs} if maker.defs else root


def _wrapper(kind: Any) -> str | None:
    """Return the name of a qualifier of a type: Annotated, and those of a TypedDict."""
    name = getattr(typing.get_origin(kind), "__name__", None) or getattr(typing.get_origin(kind), "_name", None)
    return name if name in _WRAPPERS else None


class _Maker:
    """Makes the schema of a type; classes are in `defs` once, so that they may refer to themselves."""

    def __init__(self) -> None:
        self.defs: dict[str, Schema] = {}
        self._names: dict[Any, str] = {}

    def make(self, kind: Any) -> Schema:
        for plain, name in _NAMED:
            if kind is plain:
                return {"type": name}
        if kind is Any or kind is object:
            return {}
        if typing.get_origin(kind) is not None:
            return self._of_generic(kind, typing.get_origin(kind), typing.get_args(kind))
        if isinstance(kind, typing.NewType):
            return self.make(kind.__supertype__)
        if type(kind).__name__ == "TypeAliasType":
            return self._once(kind, lambda name: self.make(kind.__value__))
        return self._of_class(kind) if isinstance(kind, type) else _no_shape(kind)

    def _of_generic(self, kind: Any, origin: Any, args: tuple[Any, ...]) -> Schema:
        if _wrapper(kind):
            return self.make(args[0])
        if origin in (typing.Union, types.UnionType):
            return {"anyOf": [self.make(arg) for arg in args]}
        if origin is typing.Literal:
            return {"enum": [plain(arg, "a Literal") for arg in args]}
        if origin is list:
            return {"type": "array", "items": self.make(args[0])}
        if origin is dict and args[0] is str:
            return {"type": "object", "additionalProperties": self.make(args[1])}
        return _no_shape(kind)

    def _of_class(self, kind: Any) -> Schema:
        if issubclass(kind, Enum):
            return {"title": kind.__name__, "enum": [plain(member, f"{kind.__name__}.{member.name}") for member in kind]}
        if callable(getattr(kind, "model_json_schema", None)):
            return self._once(kind, lambda name: self._of_model(kind, name))
        if hasattr(kind, "__struct_fields__") and hasattr(kind, "__struct_config__"):
            return self._once(kind, lambda name: self._of_struct(kind, name))
        if is_dataclass(kind):
            optional = {f.name for f in fields(kind) if f.default is not MISSING or f.default_factory is not MISSING}
            wanted = {f.name: f.name not in optional for f in fields(kind) if f.init}
            return self._once(kind, lambda name: self._of_fields(kind, wanted))
        if issubclass(kind, dict) and hasattr(kind, "__required_keys__"):
            return self._once(kind, lambda name: self._of_fields(kind, {key: key in kind.__required_keys__ for key in _hints(kind)}))
        return _no_shape(kind)

    def _once(self, kind: Any, make: Callable[[str], Schema]) -> Schema:
        if kind not in self._names:
            base = name = re.sub(r"\W", "_", kind.__name__)
            while name in self.defs:
                name = f"{base}_{len(self.defs)}"
            self._names[kind], self.defs[name] = name, {}
            self.defs[name] = make(name)
        return {"$ref": f"#/$defs/{self._names[kind]}"}

    def _of_fields(self, kind: Any, wanted: dict[str, bool]) -> Schema:
        hints = _hints(kind)
        for name in wanted:  # a TypedDict whose annotations are text does not evaluate these by itself
            wanted[name] = {"Required": True, "NotRequired": False}.get(_wrapper(hints[name]) or "", wanted[name])
        properties = {name: self.make(hints[name]) for name in wanted}
        required = [name for name, needed in wanted.items() if needed]
        made: Schema = {"title": kind.__name__, "type": "object", "properties": properties, "additionalProperties": False}
        return {**made, "required": required} if required else made

    def _of_model(self, kind: Any, name: str) -> Schema:
        """Return the schema of a pydantic model, which has its own definitions; prefixed with its name, they cannot clash with others."""
        try:
            made: Schema = dict(plain(kind.model_json_schema(ref_template=f"#/$defs/{name}.{{model}}"), name))
        except Exception as error:
            raise InvalidArgument(f"{kind.__name__} has no JSON Schema: {error}", remedy="Ask for a simpler model.") from error
        for inner, schema in made.pop("$defs", {}).items():
            self.defs[f"{name}.{inner}"] = schema
        return made

    def _of_struct(self, kind: Any, name: str) -> Schema:
        """Return the schema of a msgspec Struct; its definitions are prefixed with its name, too."""
        import msgspec

        try:
            (made,), parts = msgspec.json.schema_components([kind], ref_template=f"#/$defs/{name}.{{name}}")
        except Exception as error:
            raise InvalidArgument(f"{kind.__name__} has no JSON Schema: {error}", remedy="Ask for a simpler Struct.") from error
        for inner, schema in parts.items():
            self.defs[f"{name}.{inner}"] = dict(plain(schema, name))
        return dict(plain(made, name))


def _hints(kind: Any) -> dict[str, Any]:
    try:
        return typing.get_type_hints(kind, include_extras=True)
    except Exception as error:
        raise InvalidArgument(
            f"the annotations of {kind.__name__} cannot be read: {error}", remedy="Define the types that it names at the top of its module."
        ) from error


def _no_shape(kind: Any) -> NoReturn:
    raise InvalidArgument(
        f"schema must be a type of answers or a JSON Schema, got {shown(kind)}",
        remedy="Give str, int, float, bool, list, dict, Any, Optional, Union, Literal, list[x], dict[str, x], an Enum, a dataclass, a TypedDict, a pydantic model, a msgspec Struct or a JSON Schema.",
    )

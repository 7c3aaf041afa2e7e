"""The shape that an answer must have: from Python types to a part of JSON Schema, and the test of a value against it.

Constraints: type, enum, const, properties, required, additionalProperties, items, minItems, maxItems, minimum, maximum,
exclusiveMinimum, exclusiveMaximum, minLength, maxLength, pattern, anyOf, oneOf, allOf, $ref (only #/$defs/NAME) and $defs.
Words that constrain nothing (title, description, default, examples, format and the like) are kept and not looked at. Every
other keyword is refused when the schema is made: one that was silently ignored would let wrong answers through.

Differences to the standard, for the sake of the program that asked: 3.0 is no integer, True is no number, NaN and the infinities
are no numbers. A value is tested to a depth of 100 and with at most a million tests. A pattern (in the syntax of Python's `re`, found
anywhere in the text) is tried only on texts of up to 1,000 characters, and with at most 500,000 steps for one answer, whatever the
pattern: see `answer_pattern`. A schema from a store may be hostile, so that this holds for schemas that were never checked, too. No I/O, and no name found in data is ever imported.
"""

from __future__ import annotations

import re
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from math import isfinite
from typing import Any, NoReturn

from everstep.codec.explain import shown
from everstep.errors import InvalidArgument
from everstep.runtime.waits.answer_instances import plain_of
from everstep.runtime.waits.answer_pattern import MOST_STATES, Steps, Unbounded, compiled

DEPTH = 100
MOST_TESTS = 1_000_000
PATTERN_TEXT = 1_000
PATTERN_STEPS = 500_000

Schema = dict[str, Any]


def to_schema(schema: Any = None, choices: Iterable[Any] | None = None) -> Schema | None:
    """The JSON Schema of an answer, checked and plain; None if anything goes.

    `schema` is a Python type, an Enum (its values are the answers), a dataclass, a TypedDict, a pydantic model, a msgspec Struct or a JSON Schema;
    `choices` are the only values allowed. If both are given, each choice must fit the schema. A shape that cannot be
    expressed, or a keyword that is not understood, is an InvalidArgument that names it.
    """
    made = None if schema is None else _of_schema(schema)
    if choices is None:
        return made
    allowed = _of_choices(choices)
    for choice in allowed:
        if fault := check(made, choice):
            raise InvalidArgument(f"the choice {shown(choice)} does not fit the schema: {fault}", remedy="Change the choice or the schema.")
    if made is None:
        return {"enum": allowed}
    return {**made, "enum": allowed} if "enum" not in made else {**made, "allOf": [*made.get("allOf", ()), {"enum": allowed}]}


def check(schema: Schema | None, value: Any) -> str | None:
    """What is wrong with an answer, as a sentence that begins with the path to the first fault; None if it is right.

    `schema` is what `to_schema` returned. The value is plain data as JSON has it: None, bool, numbers, text, lists and dicts.
    """
    return None if schema is None else _Test(schema).fault(schema, value, "answer", 0)


def check_stored(schema: Any, value: Any) -> str | None:
    """What is wrong with an answer to a schema that was read from a store: a newer version, or a damaged or hostile store, may have written it.

    A keyword that is not understood is a fault: ignoring it would let wrong answers through.
    """
    try:
        _check_all(schema)
    except InvalidArgument as error:
        return f"the schema in the store cannot be checked: {error.message}"
    return check(schema, value)


def _check_all(schema: Any) -> None:
    defs = schema.get("$defs", {}) if isinstance(schema, dict) else {}
    _check_words(schema, "schema", defs)
    _check_circles(defs)


def _of_schema(schema: Any) -> Schema:
    made: Schema = _plain(schema, "schema") if isinstance(schema, Mapping) else _from_type(schema)
    _check_all(made)
    return made


def _of_choices(choices: Any) -> list[Any]:
    if isinstance(choices, (str, bytes, Mapping)) or not isinstance(choices, Iterable):
        raise InvalidArgument(f"choices={shown(choices)} is no list of values", remedy="Give a list: choices=['yes', 'no'].")
    allowed: list[Any] = []
    for number, choice in enumerate(choices):
        plain = _plain(plain_of(choice), f"choices[{number}]")
        allowed += [] if any(same(plain, other) for other in allowed) else [plain]
    if not allowed:
        raise InvalidArgument("choices is empty, so that no answer would be right", remedy="Give a list: choices=['yes', 'no'].")
    return allowed


def _plain(value: Any, path: str, depth: int = 0) -> Any:
    """A copy that is JSON and nothing else, so that what is stored and shown is what was checked."""
    if isinstance(value, Enum):
        return _plain(value.value, path, depth)
    if value is None or type(value) in (bool, int, str) or (type(value) is float and isfinite(value)):
        return value
    if depth < DEPTH and isinstance(value, (list, tuple)):
        return [_plain(v, f"{path}[{i}]", depth + 1) for i, v in enumerate(value)]
    if depth < DEPTH and isinstance(value, Mapping) and all(type(k) is str for k in value):
        return {k: _plain(v, _inside(path, k), depth + 1) for k, v in value.items()}
    raise InvalidArgument(
        f"{path} is {shown(value)}, which JSON cannot hold" + ("" if depth < DEPTH else " so deeply nested"),
        remedy=f"Use None, bool, int, finite float, text, lists and dicts with text keys, nested at most {DEPTH} deep.",
    )


def _inside(path: str, name: str) -> str:
    return f"{path}.{name}" if name.isidentifier() and len(name) <= 60 else f"{path}[{name!r:.60}]"


def same(one: Any, other: Any) -> bool:
    """Whether JSON calls two values equal: 1 is 1.0, and True is not 1."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(v, other[k]) for k, v in one.items())
    if (_is_number(one) and _is_number(other)) or (isinstance(one, str) and isinstance(other, str)):
        return bool(one == other)
    return one is None and other is None


def _is_number(value: Any) -> bool:
    return (isinstance(value, int) and not isinstance(value, bool)) or (isinstance(value, float) and isfinite(value))


_NAMED = ((str, "string"), (int, "integer"), (float, "number"), (bool, "boolean"), (list, "array"), (dict, "object"), (None, "null"), (types.NoneType, "null"))  # fmt: skip
_WRAPPERS = ("Annotated", "Required", "NotRequired", "ReadOnly")


def _from_type(kind: Any) -> Schema:
    maker = _Maker()
    root = maker.make(kind)
    name = _target(root)
    if name is not None and all(part.get("$ref") != root["$ref"] for part in _all_parts({"$defs": maker.defs})):
        root = maker.defs.pop(name)  # a form is easier to read without one more hop; only a type that holds itself needs it
    return {**root, "$defs": maker.defs} if maker.defs else root


def _wrapper(kind: Any) -> str | None:
    """The name of what only says something about a type: Annotated, and the words of a TypedDict."""
    name = getattr(typing.get_origin(kind), "__name__", None) or getattr(typing.get_origin(kind), "_name", None)
    return name if name in _WRAPPERS else None


class _Maker:
    """Makes the schema of a type; classes stand in `defs` once, so that they may hold themselves."""

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
            return {"enum": [_plain(arg, "a Literal") for arg in args]}
        if origin is list:
            return {"type": "array", "items": self.make(args[0])}
        if origin is dict and args[0] is str:
            return {"type": "object", "additionalProperties": self.make(args[1])}
        return _no_shape(kind)

    def _of_class(self, kind: Any) -> Schema:
        if issubclass(kind, Enum):
            return {"title": kind.__name__, "enum": [_plain(member, f"{kind.__name__}.{member.name}") for member in kind]}
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
        for name in wanted:  # a TypedDict whose annotations are text does not know these by itself
            wanted[name] = {"Required": True, "NotRequired": False}.get(_wrapper(hints[name]) or "", wanted[name])
        properties = {name: self.make(hints[name]) for name in wanted}
        required = [name for name, needed in wanted.items() if needed]
        made: Schema = {"title": kind.__name__, "type": "object", "properties": properties, "additionalProperties": False}
        return {**made, "required": required} if required else made

    def _of_model(self, kind: Any, name: str) -> Schema:
        """A pydantic model brings definitions of its own; under its name they cannot be taken for those of another one."""
        try:
            made: Schema = dict(_plain(kind.model_json_schema(ref_template=f"#/$defs/{name}.{{model}}"), name))
        except Exception as error:
            raise InvalidArgument(f"{kind.__name__} has no JSON Schema: {error}", remedy="Ask for a simpler model.") from error
        for inner, schema in made.pop("$defs", {}).items():
            self.defs[f"{name}.{inner}"] = schema
        return made

    def _of_struct(self, kind: Any, name: str) -> Schema:
        """A Struct of msgspec, whose definitions go under its name for the same reason."""
        import msgspec

        try:
            (made,), parts = msgspec.json.schema_components([kind], ref_template=f"#/$defs/{name}.{{name}}")
        except Exception as error:
            raise InvalidArgument(f"{kind.__name__} has no JSON Schema: {error}", remedy="Ask for a simpler Struct.") from error
        for inner, schema in parts.items():
            self.defs[f"{name}.{inner}"] = dict(_plain(schema, name))
        return dict(_plain(made, name))


def _hints(kind: Any) -> dict[str, Any]:
    try:
        return typing.get_type_hints(kind, include_extras=True)
    except Exception as error:
        raise InvalidArgument(
            f"the annotations of {kind.__name__} cannot be read: {error}", remedy="Define the types that it names at the top of its module."
        ) from error


def _no_shape(kind: Any) -> NoReturn:
    raise InvalidArgument(
        f"{shown(kind)} is no shape that an answer can have",
        remedy="Give str, int, float, bool, list, dict, Any, Optional, Union, Literal, list[x], dict[str, x], an Enum, a dataclass, a TypedDict, a pydantic model, a msgspec Struct or a JSON Schema.",
    )


IGNORED = frozenset(
    ("title", "description", "default", "examples", "format", "deprecated", "readOnly", "writeOnly", "discriminator", "$comment", "$schema")
)
_COMBINED = ("anyOf", "oneOf", "allOf")
_BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_COUNTS = ("minItems", "maxItems", "minLength", "maxLength")
_TYPES: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "null": ("null", lambda v: v is None),
    "boolean": ("true or false", lambda v: isinstance(v, bool)),
    "integer": ("a whole number", lambda v: isinstance(v, int) and not isinstance(v, bool)),
    "number": ("a number", _is_number),
    "string": ("text", lambda v: isinstance(v, str)),
    "array": ("a list", lambda v: isinstance(v, list)),
    "object": ("an object with text keys", lambda v: isinstance(v, dict) and all(isinstance(k, str) for k in v)),
}


def _is_type(given: Any) -> bool:
    several = given if isinstance(given, list) else [given]
    return bool(several) and all(isinstance(name, str) and name in _TYPES for name in several)


def _is_pattern(given: Any) -> bool:
    try:
        return isinstance(given, str) and compiled(given) is not None
    except (re.error, RecursionError, OverflowError, Unbounded):
        return False


_SHAPES: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "type": (f"one or a list of {', '.join(_TYPES)}", _is_type),
    "enum": ("a list that is not empty", lambda g: isinstance(g, list) and bool(g)),
    "const": ("anything", lambda g: True),
    "required": ("a list of names", lambda g: isinstance(g, list) and all(isinstance(name, str) for name in g)),
    "pattern": (
        f"a regular expression of at most {MOST_STATES:,} states, without back references, conditions, atomic groups and possessive repeats",
        _is_pattern,
    ),
    "$ref": ("#/$defs/NAME", lambda g: isinstance(g, str)),
    **dict.fromkeys(("properties", "$defs"), ("an object of schemas", lambda g: isinstance(g, dict))),
    **dict.fromkeys(("items", "additionalProperties"), ("a schema", lambda g: isinstance(g, (dict, bool)))),
    **dict.fromkeys(_COMBINED, ("a list of schemas that is not empty", lambda g: isinstance(g, list) and bool(g))),
    **dict.fromkeys(_BOUNDS, ("a number", _is_number)),
    **dict.fromkeys(_COUNTS, ("a whole number of at least 0", lambda g: type(g) is int and g >= 0)),
}


def _parts(schema: Schema) -> Iterator[tuple[str, Any]]:
    """The schemas right inside of a schema, each with where it stands."""
    for word in ("properties", "$defs"):
        for name, part in schema.get(word, {}).items():
            yield _inside(f".{word}", name), part
    for word in ("items", "additionalProperties"):
        if word in schema:
            yield f".{word}", schema[word]
    for word in _COMBINED:
        for number, part in enumerate(schema.get(word, ())):
            yield f".{word}[{number}]", part


def _all_parts(schema: Any) -> Iterator[Schema]:
    if isinstance(schema, dict):
        yield schema
        for _, part in _parts(schema):
            yield from _all_parts(part)


def _check_words(schema: Any, path: str, defs: Any) -> None:
    if isinstance(schema, bool):
        return
    if not isinstance(schema, dict):
        raise InvalidArgument(f"{path} is {shown(schema)}, which is no schema", remedy="Give an object of keywords, or true or false.")
    for word, given in schema.items():
        if word in IGNORED:
            continue
        if word not in _SHAPES:
            raise InvalidArgument(f"{path} has the keyword {shown(word)}, which is not understood", remedy=f"Use {', '.join(_SHAPES)}.")
        what, fits = _SHAPES[word]
        if not fits(given):
            raise InvalidArgument(f"{path}.{word} is {shown(given)}", remedy=f"It must be {what}.")
    if "$ref" in schema and _target(schema) not in defs:
        raise InvalidArgument(f"{path}.$ref is {shown(schema['$ref'])}, which is not there", remedy="Use #/$defs/NAME, with NAME in $defs.")
    for where, part in _parts(schema):
        _check_words(part, path + where, defs)


def _target(schema: Schema) -> str | None:
    """The name in $defs that a schema's $ref points at; None if it has none or points elsewhere."""
    ref = schema.get("$ref", "")
    return ref[8:].replace("~1", "/").replace("~0", "~") if ref.startswith("#/$defs/") else None


def _in_place(schema: Any) -> Iterator[str]:
    """The definitions that are tested on the very value that the schema is tested on."""
    if isinstance(schema, dict):
        if (name := _target(schema)) is not None:
            yield name
        for word in _COMBINED:
            for part in schema.get(word, ()):
                yield from _in_place(part)


def _check_circles(defs: dict[str, Any]) -> None:
    """Refuse a definition that only leads back to itself: no value could ever be tested to the end."""
    for name in defs:
        reached: set[str] = set()
        ahead = [name]
        while ahead:
            new = set(_in_place(defs[ahead.pop()])) - reached
            reached |= new
            ahead += new
        if name in reached:
            raise InvalidArgument(f"schema.$defs.{name} leads back to itself", remedy="Put an object or a list between the two.")


class _Test:
    """One test of one value: knows where definitions are, and how much more may be done."""

    def __init__(self, root: Schema):
        self._defs = root.get("$defs", {})
        self._left = MOST_TESTS
        self._steps = Steps(PATTERN_STEPS)

    def fault(self, schema: Any, value: Any, path: str, depth: int) -> str | None:
        self._left -= 1
        if self._left < 0 or depth > DEPTH:
            return f"{path} is too {'large' if self._left < 0 else 'deeply nested'} to be checked"
        if isinstance(schema, bool):
            return None if schema else f"{path} is not allowed"
        for word, test in _TESTS.items():
            if word in schema and (found := test(self, schema, value, path, depth)):
                return found
        return None

    def ref(self, schema: Schema, value: Any, path: str, depth: int) -> str | None:
        return self.fault(self._defs[_target(schema)], value, path, depth + 1)

    def of_type(self, schema: Schema, value: Any, path: str, depth: int) -> str | None:
        names = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        if any(_TYPES[name][1](value) for name in names):
            return None
        return f"{path} is {shown(value)}, and must be {' or '.join(_TYPES[name][0] for name in names)}"

    def enum(self, schema: Schema, value: Any, path: str, depth: int) -> str | None:
        allowed = schema["enum"]
        if any(same(value, one) for one in allowed):
            return None
        return f"{path} is {shown(value)}, and must be one of {', '.join(map(shown, allowed[:20]))}{', …' if len(allowed) > 20 else ''}"

    def const(self, schema: Schema, value: Any, path: str, depth: int) -> str | None:
        return None if same(value, schema["const"]) else f"{path} is {shown(value)}, and must be {shown(schema['const'])}"

    def required(self, schema: Schema, value: Any, path: str, depth: int) -> str | None:
        missing = [name for name in schema["required"] if name not in value] if isinstance(value, dict) else []
        return f"{path} lacks {', '.join(missing)}" if missing else None

    def properties(self, schema: Schema, value: Any, path: str, depth: int) -> str | None:
        if isinstance(value, dict):
            for name, part in schema["properties"].items():
                if name in value and (found := self.fault(part, value[name], _inside(path, name), depth + 1)):
                    return found
        return None

    def additional(self, schema: Schema, value: Any, path: str, depth: int) -> str | None:
        known, part = schema.get("properties", {}), schema["additionalProperties"]
        for name in (n for n in value if n not in known) if isinstance(value, dict) else ():
            if part is False:
                return f"{path} has {shown(name)}, and may only have {', '.join(known) or 'nothing'}"
            if found := self.fault(part, value[name], _inside(path, str(name)), depth + 1):
                return found
        return None

    def items(self, schema: Schema, value: Any, path: str, depth: int) -> str | None:
        for number, item in enumerate(value) if isinstance(value, list) else ():
            if found := self.fault(schema["items"], item, f"{path}[{number}]", depth + 1):
                return found
        return None

    def length(self, schema: Schema, value: Any, path: str, depth: int) -> str | None:
        for cls, suffix, unit in ((list, "Items", "items"), (str, "Length", "characters")):
            if isinstance(value, cls):
                least, most = schema.get(f"min{suffix}", 0), schema.get(f"max{suffix}", len(value))
                if not least <= len(value) <= most:
                    return f"{path} has {len(value):,} {unit}, and must have " + (
                        f"at least {least:,}" if len(value) < least else f"at most {most:,}"
                    )
        return None

    def bounds(self, schema: Schema, value: Any, path: str, depth: int) -> str | None:
        if _is_number(value):
            for word, words, fits in _LIMITS:
                if word in schema and not fits(value, schema[word]):
                    return f"{path} is {shown(value)}, and must be {words} {shown(schema[word])}"
        return None

    def pattern(self, schema: Schema, value: Any, path: str, depth: int) -> str | None:
        if not isinstance(value, str):
            return None
        if len(value) > PATTERN_TEXT:
            return f"{path} has {len(value):,} characters, and a text with a pattern must have at most {PATTERN_TEXT:,}"
        try:
            fits = compiled(schema["pattern"])(value, self._steps)
        except (re.error, RecursionError, OverflowError, Unbounded) as error:
            return f"{path} cannot be tested with the pattern {shown(schema['pattern'])}: {error}"
        return None if fits else f"{path} is {shown(value)}, and must match {schema['pattern']:.200}"

    def all_of(self, schema: Schema, value: Any, path: str, depth: int) -> str | None:
        for part in schema["allOf"]:
            if found := self.fault(part, value, path, depth + 1):
                return found
        return None

    def any_of(self, schema: Schema, value: Any, path: str, depth: int) -> str | None:
        faults = []
        for part in schema["anyOf"]:
            found = self.fault(part, value, path, depth + 1)
            if found is None:
                return None
            faults.append(found)
        return _none_fits(path, faults)

    def one_of(self, schema: Schema, value: Any, path: str, depth: int) -> str | None:
        faults = [found for part in schema["oneOf"] if (found := self.fault(part, value, path, depth + 1))]
        fitting = len(schema["oneOf"]) - len(faults)
        if fitting > 1:
            return f"{path} fits {fitting} of the forms of which it must fit exactly one"
        return None if fitting else _none_fits(path, faults)


def _none_fits(path: str, faults: list[str]) -> str:
    several = "; ".join(dict.fromkeys(faults))
    return faults[0] if len(faults) == 1 else f"{path} fits none of the {len(faults)} allowed forms: {several:.500}"


_LIMITS: tuple[tuple[str, str, Callable[[Any, Any], bool]], ...] = (
    ("minimum", "at least", lambda v, limit: v >= limit),
    ("maximum", "at most", lambda v, limit: v <= limit),
    ("exclusiveMinimum", "above", lambda v, limit: v > limit),
    ("exclusiveMaximum", "below", lambda v, limit: v < limit),
)
# In this order, so that the first fault that is told is the plainest one.
_TESTS: dict[str, Callable[[_Test, Schema, Any, str, int], str | None]] = {
    "type": _Test.of_type,
    "enum": _Test.enum,
    "const": _Test.const,
    "required": _Test.required,
    "properties": _Test.properties,
    "additionalProperties": _Test.additional,
    **dict.fromkeys(_COUNTS, _Test.length),
    "items": _Test.items,
    **dict.fromkeys(_BOUNDS, _Test.bounds),
    "pattern": _Test.pattern,
    "$ref": _Test.ref,
    "allOf": _Test.all_of,
    "anyOf": _Test.any_of,
    "oneOf": _Test.one_of,
}

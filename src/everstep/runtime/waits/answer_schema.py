"""Makes a checked JSON Schema for an answer from what the program gave. `answer_types` translates types, `answer_check` checks values.

Constraints: type, enum, const, properties, required, additionalProperties, items, minItems, maxItems, minimum, maximum,
exclusiveMinimum, exclusiveMaximum, minLength, maxLength, pattern, anyOf, oneOf, allOf, $ref (only #/$defs/NAME) and $defs.
Keywords that constrain nothing (title, description, default, examples, format and the like) are kept and ignored. Every
other keyword is refused when the schema is made: ignoring it silently would let wrong answers through. No I/O.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from everstep.codec.explain import shown
from everstep.errors import InvalidArgument
from everstep.runtime.waits.answer_check import BOUNDS, COMBINED, COUNTS, TYPES, Schema, check, is_number, same, target
from everstep.runtime.waits.answer_instances import plain_of
from everstep.runtime.waits.answer_pattern import MOST_STATES, Unbounded, compiled
from everstep.runtime.waits.answer_types import from_type, parts, plain


def to_schema(schema: Any = None, choices: Iterable[Any] | None = None) -> Schema | None:
    """Return the JSON Schema of an answer, checked and plain; None if any answer is valid.

    `schema` is a Python type, an Enum (its values are the answers), a dataclass, a TypedDict, a pydantic model, a msgspec Struct or a JSON
    Schema; `choices` are the only values allowed. If both are given, each choice must match the schema. A type that cannot be expressed, or an
    unknown keyword, raises an InvalidArgument that names it.
    """
    made = None if schema is None else _of_schema(schema)
    if choices is None:
        return made
    allowed = _of_choices(choices)
    for choice in allowed:
        if fault := check(made, choice):
            raise InvalidArgument(
                f"the choice {shown(choice)} does not match the schema: {fault}", remedy="Change the choice or the schema."
            )
    if made is None:
        return {"enum": allowed}
    return {**made, "enum": allowed} if "enum" not in made else {**made, "allOf": [*made.get("allOf", ()), {"enum": allowed}]}


def check_stored(schema: Any, value: Any) -> str | None:
    """Return the first fault of an answer to a schema from a store, which may come from a newer version, or be damaged or hostile.

    An unknown keyword is a fault: ignoring it would let wrong answers through.
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
    made: Schema = plain(schema, "schema") if isinstance(schema, Mapping) else from_type(schema)
    _check_all(made)
    return made


def _of_choices(choices: Any) -> list[Any]:
    if isinstance(choices, (str, bytes, Mapping)) or not isinstance(choices, Iterable):
        raise InvalidArgument(f"choices must be a list of values, got {shown(choices)}", remedy="Give a list: choices=['yes', 'no'].")
    allowed: list[Any] = []
    for number, choice in enumerate(choices):
        made = plain(plain_of(choice), f"choices[{number}]")
        allowed += [] if any(same(made, other) for other in allowed) else [made]
    if not allowed:
        raise InvalidArgument("choices must not be empty: no answer would be valid", remedy="Give a list: choices=['yes', 'no'].")
    return allowed


IGNORED = frozenset(
    ("title", "description", "default", "examples", "format", "deprecated", "readOnly", "writeOnly", "discriminator", "$comment", "$schema")
)


def _is_type(given: Any) -> bool:
    several = given if isinstance(given, list) else [given]
    return bool(several) and all(isinstance(name, str) and name in TYPES for name in several)


def _is_pattern(given: Any) -> bool:
    try:
        return isinstance(given, str) and compiled(given) is not None
    except (re.error, RecursionError, OverflowError, Unbounded):
        return False


_SHAPES: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "type": (f"one or a list of {', '.join(TYPES)}", _is_type),
    "enum": ("a list that is not empty", lambda g: isinstance(g, list) and bool(g)),
    "const": ("anything", lambda g: True),
    "required": ("a list of names", lambda g: isinstance(g, list) and all(isinstance(name, str) for name in g)),
    "pattern": (
        f"a regular expression of at most {MOST_STATES:,} states, without back references, conditions, atomic groups or possessive repeats",
        _is_pattern,
    ),
    "$ref": ("#/$defs/NAME", lambda g: isinstance(g, str)),
    **dict.fromkeys(("properties", "$defs"), ("an object of schemas", lambda g: isinstance(g, dict))),
    **dict.fromkeys(("items", "additionalProperties"), ("a schema", lambda g: isinstance(g, (dict, bool)))),
    **dict.fromkeys(COMBINED, ("a list of schemas that is not empty", lambda g: isinstance(g, list) and bool(g))),
    **dict.fromkeys(BOUNDS, ("a number", is_number)),
    **dict.fromkeys(COUNTS, ("an integer of at least 0", lambda g: type(g) is int and g >= 0)),
}


def _check_words(schema: Any, path: str, defs: Any) -> None:
    if isinstance(schema, bool):
        return
    if not isinstance(schema, dict):
        raise InvalidArgument(f"{path} must be a schema, got {shown(schema)}", remedy="Give an object of keywords, or true or false.")
    for word, given in schema.items():
        if word in IGNORED:
            continue
        if word not in _SHAPES:
            raise InvalidArgument(f"{path} has the unknown keyword {shown(word)}", remedy=f"Use {', '.join(_SHAPES)}.")
        what, fits = _SHAPES[word]
        if not fits(given):
            raise InvalidArgument(f"{path}.{word} must be {what}, got {shown(given)}", remedy="Change it in the schema.")
    if "$ref" in schema and target(schema) not in defs:
        raise InvalidArgument(
            f"{path}.$ref is {shown(schema['$ref'])}, which does not exist", remedy="Use #/$defs/NAME, with NAME in $defs."
        )
    for where, part in parts(schema):
        _check_words(part, path + where, defs)


def _in_place(schema: Any) -> Iterator[str]:
    """Yield the definitions that are tested on the same value as the schema itself."""
    if isinstance(schema, dict):
        if (name := target(schema)) is not None:
            yield name
        for word in COMBINED:
            for part in schema.get(word, ()):
                yield from _in_place(part)


def _check_circles(defs: dict[str, Any]) -> None:
    """Refuse a definition that only refers back to itself: no value could ever be checked."""
    for name in defs:
        reached: set[str] = set()
        ahead = [name]
        while ahead:
            new = set(_in_place(defs[ahead.pop()])) - reached
            reached |= new
            ahead += new
        if name in reached:
            raise InvalidArgument(f"schema.$defs.{name} only refers to itself", remedy="Put an object or a list between the two.")

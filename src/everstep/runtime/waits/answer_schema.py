"""The shape that an answer must have: from what the program gave to a checked JSON Schema. `answer_types` translates types, `answer_check` tests values.

Constraints: type, enum, const, properties, required, additionalProperties, items, minItems, maxItems, minimum, maximum,
exclusiveMinimum, exclusiveMaximum, minLength, maxLength, pattern, anyOf, oneOf, allOf, $ref (only #/$defs/NAME) and $defs.
Words that constrain nothing (title, description, default, examples, format and the like) are kept and not looked at. Every
other keyword is refused when the schema is made: one that was silently ignored would let wrong answers through. No I/O.
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
    made: Schema = plain(schema, "schema") if isinstance(schema, Mapping) else from_type(schema)
    _check_all(made)
    return made


def _of_choices(choices: Any) -> list[Any]:
    if isinstance(choices, (str, bytes, Mapping)) or not isinstance(choices, Iterable):
        raise InvalidArgument(f"choices={shown(choices)} is no list of values", remedy="Give a list: choices=['yes', 'no'].")
    allowed: list[Any] = []
    for number, choice in enumerate(choices):
        made = plain(plain_of(choice), f"choices[{number}]")
        allowed += [] if any(same(made, other) for other in allowed) else [made]
    if not allowed:
        raise InvalidArgument("choices is empty, so that no answer would be right", remedy="Give a list: choices=['yes', 'no'].")
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
        f"a regular expression of at most {MOST_STATES:,} states, without back references, conditions, atomic groups and possessive repeats",
        _is_pattern,
    ),
    "$ref": ("#/$defs/NAME", lambda g: isinstance(g, str)),
    **dict.fromkeys(("properties", "$defs"), ("an object of schemas", lambda g: isinstance(g, dict))),
    **dict.fromkeys(("items", "additionalProperties"), ("a schema", lambda g: isinstance(g, (dict, bool)))),
    **dict.fromkeys(COMBINED, ("a list of schemas that is not empty", lambda g: isinstance(g, list) and bool(g))),
    **dict.fromkeys(BOUNDS, ("a number", is_number)),
    **dict.fromkeys(COUNTS, ("a whole number of at least 0", lambda g: type(g) is int and g >= 0)),
}


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
    if "$ref" in schema and target(schema) not in defs:
        raise InvalidArgument(f"{path}.$ref is {shown(schema['$ref'])}, which is not there", remedy="Use #/$defs/NAME, with NAME in $defs.")
    for where, part in parts(schema):
        _check_words(part, path + where, defs)


def _in_place(schema: Any) -> Iterator[str]:
    """The definitions that are tested on the very value that the schema is tested on."""
    if isinstance(schema, dict):
        if (name := target(schema)) is not None:
            yield name
        for word in COMBINED:
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

"""Checks whether a value matches a schema that `answer_schema` made.

Differences from the standard, for the sake of the program that asked: 3.0 is not an integer, True is not a number, NaN and the infinities
are not numbers. A value is checked to a depth of 100 and with at most a million tests. A pattern (in the syntax of Python's `re`, found
anywhere in the text) is tested only on texts of up to 1,000 characters, and with at most 500,000 steps for one answer, whatever the
pattern: see `answer_pattern`. A schema from a store may be hostile, so the limits also apply to schemas that were never checked. No I/O.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from math import isfinite
from typing import Any

from everstep.codec.explain import shown
from everstep.runtime.waits.answer_pattern import Steps, Unbounded, compiled

DEPTH = 100
MOST_TESTS = 1_000_000
PATTERN_TEXT = 1_000
PATTERN_STEPS = 500_000

Schema = dict[str, Any]


def check(schema: Schema | None, value: Any) -> str | None:
    """Return the first fault of an answer, as a sentence that begins with its path; None if the answer is valid.

    `schema` comes from `to_schema`. The value is plain JSON data: None, bool, numbers, text, lists and dicts.
    """
    return None if schema is None else _Test(schema).fault(schema, value, "answer", 0)


def path_to(path: str, name: str) -> str:
    return f"{path}.{name}" if name.isidentifier() and len(name) <= 60 else f"{path}[{name!r:.60}]"


def same(one: Any, other: Any) -> bool:
    """Whether two values are equal in JSON: 1 equals 1.0, and True does not equal 1."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(v, other[k]) for k, v in one.items())
    if (is_number(one) and is_number(other)) or (isinstance(one, str) and isinstance(other, str)):
        return bool(one == other)
    return one is None and other is None


def is_number(value: Any) -> bool:
    return (isinstance(value, int) and not isinstance(value, bool)) or (isinstance(value, float) and isfinite(value))


COMBINED = ("anyOf", "oneOf", "allOf")
BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
COUNTS = ("minItems", "maxItems", "minLength", "maxLength")
TYPES: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "null": ("null", lambda v: v is None),
    "boolean": ("true or false", lambda v: isinstance(v, bool)),
    "integer": ("an integer", lambda v: isinstance(v, int) and not isinstance(v, bool)),
    "number": ("a number", is_number),
    "string": ("text", lambda v: isinstance(v, str)),
    "array": ("a list", lambda v: isinstance(v, list)),
    "object": ("an object with text keys", lambda v: isinstance(v, dict) and all(isinstance(k, str) for k in v)),
}


def target(schema: Schema) -> str | None:
    """Return the name in $defs that a schema's $ref points to; None if it has none or points elsewhere."""
    ref = schema.get("$ref", "")
    return ref[8:].replace("~1", "/").replace("~0", "~") if ref.startswith("#/$defs/") else None


class _Test:
    """One check of one value: has the definitions, and the remaining limits."""

    def __init__(self, root: Schema):
        self._defs = root.get("$defs", {})
        self._left = MOST_TESTS
        self._steps = Steps(PATTERN_STEPS)

    def fault(self, schema: Any, value: Any, path: str, depth: int) -> str | None:
        self._left -= 1
        if self._left < 0 or depth > DEPTH:
            return f"{path} is too {'large' if self._left < 0 else 'deeply nested'} to check"
        if isinstance(schema, bool):
            return None if schema else f"{path} is not allowed"
        for word, test in _TESTS.items():
            if word in schema and (found := test(self, schema, value, path, depth)):
                return found
        return None

    def ref(self, schema: Schema, value: Any, path: str, depth: int) -> str | None:
        return self.fault(self._defs[target(schema)], value, path, depth + 1)

    def of_type(self, schema: Schema, value: Any, path: str, depth: int) -> str | None:
        names = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        if any(TYPES[name][1](value) for name in names):
            return None
        return f"{path} must be {' or '.join(TYPES[name][0] for name in names)}, got {shown(value)}"

    def enum(self, schema: Schema, value: Any, path: str, depth: int) -> str | None:
        allowed = schema["enum"]
        if any(same(value, one) for one in allowed):
            return None
        return f"{path} must be one of {', '.join(map(shown, allowed[:20]))}{', …' if len(allowed) > 20 else ''}, got {shown(value)}"

    def const(self, schema: Schema, value: Any, path: str, depth: int) -> str | None:
        return None if same(value, schema["const"]) else f"{path} must be {shown(schema['const'])}, got {shown(value)}"

    def required(self, schema: Schema, value: Any, path: str, depth: int) -> str | None:
        missing = [name for name in schema["required"] if name not in value] if isinstance(value, dict) else []
        return f"{path} lacks {', '.join(missing)}" if missing else None

    def properties(self, schema: Schema, value: Any, path: str, depth: int) -> str | None:
        if isinstance(value, dict):
            for name, part in schema["properties"].items():
                if name in value and (found := self.fault(part, value[name], path_to(path, name), depth + 1)):
                    return found
        return None

    def additional(self, schema: Schema, value: Any, path: str, depth: int) -> str | None:
        known, part = schema.get("properties", {}), schema["additionalProperties"]
        for name in (n for n in value if n not in known) if isinstance(value, dict) else ():
            if part is False:
                return f"{path} may only have {', '.join(known) or 'nothing'}, got {shown(name)}"
            if found := self.fault(part, value[name], path_to(path, str(name)), depth + 1):
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
                    return f"{path} must have " + (
                        f"at least {least:,} {unit}, got {len(value):,}"
                        if len(value) < least
                        else f"at most {most:,} {unit}, got {len(value):,}"
                    )
        return None

    def bounds(self, schema: Schema, value: Any, path: str, depth: int) -> str | None:
        if is_number(value):
            for word, words, fits in _LIMITS:
                if word in schema and not fits(value, schema[word]):
                    return f"{path} must be {words} {shown(schema[word])}, got {shown(value)}"
        return None

    def pattern(self, schema: Schema, value: Any, path: str, depth: int) -> str | None:
        if not isinstance(value, str):
            return None
        if len(value) > PATTERN_TEXT:
            return f"{path} must have at most {PATTERN_TEXT:,} characters to be tested with a pattern, got {len(value):,}"
        try:
            fits = compiled(schema["pattern"])(value, self._steps)
        except (re.error, RecursionError, OverflowError, Unbounded) as error:
            return f"{path} cannot be tested with the pattern {shown(schema['pattern'])}: {error}"
        return None if fits else f"{path} must match {schema['pattern']:.200}, got {shown(value)}"

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
            return f"{path} must match exactly one of the allowed forms, and matches {fitting}"
        return None if fitting else _none_fits(path, faults)


def _none_fits(path: str, faults: list[str]) -> str:
    several = "; ".join(dict.fromkeys(faults))
    return faults[0] if len(faults) == 1 else f"{path} matches none of the {len(faults)} allowed forms: {several:.500}"


_LIMITS: tuple[tuple[str, str, Callable[[Any, Any], bool]], ...] = (
    ("minimum", "at least", lambda v, limit: v >= limit),
    ("maximum", "at most", lambda v, limit: v <= limit),
    ("exclusiveMinimum", "greater than", lambda v, limit: v > limit),
    ("exclusiveMaximum", "less than", lambda v, limit: v < limit),
)
# In this order, so that the first fault reported is the plainest one.
_TESTS: dict[str, Callable[[_Test, Schema, Any, str, int], str | None]] = {
    "type": _Test.of_type,
    "enum": _Test.enum,
    "const": _Test.const,
    "required": _Test.required,
    "properties": _Test.properties,
    "additionalProperties": _Test.additional,
    **dict.fromkeys(COUNTS, _Test.length),
    "items": _Test.items,
    **dict.fromkeys(BOUNDS, _Test.bounds),
    "pattern": _Test.pattern,
    "$ref": _Test.ref,
    "allOf": _Test.all_of,
    "anyOf": _Test.any_of,
    "oneOf": _Test.one_of,
}

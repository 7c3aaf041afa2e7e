"""The shape of an answer: schemas from Python types, what is refused, and the test of values against a model of it."""

from __future__ import annotations

import enum
import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NewType, NotRequired, Optional, Required, TypedDict, Union

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from everstep.errors import InvalidArgument
from everstep.runtime.waits.answer_check import DEPTH, MOST_TESTS, PATTERN_TEXT, check, same
from everstep.runtime.waits.answer_schema import to_schema
from everstep.runtime.waits.answer_types import plain


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


@dataclass
class Tree:
    name: str
    children: list[Tree] = field(default_factory=list)


@dataclass
class Review:
    verdict: Literal["ok", "bad"]
    score: int
    note: str | None = None
    color: Color = Color.RED
    derived: int = field(init=False, default=0)


class Movie(TypedDict):
    title: str
    year: NotRequired[int]


class Loose(TypedDict, total=False):
    title: Required[str]
    year: Annotated[int, []]


class Address(pydantic.BaseModel):
    city: str
    zip: str = pydantic.Field(pattern=r"^\d{5}$", max_length=5)


class Person(pydantic.BaseModel):
    """Somebody."""

    name: str
    age: int = pydantic.Field(ge=0, lt=150, default=0)
    home: Address | None = None
    friends: list[Person] = []


class Tagged(pydantic.BaseModel):
    many: set[int]


@dataclass
class Team:
    lead: Person
    places: dict[str, Address]


@dataclass
class Missing:
    other: Nowhere  # type: ignore[name-defined]  # noqa: F821


Name = NewType("Name", str)


@pytest.mark.parametrize(("kind", "schema"), [
    (str, {"type": "string"}), (int, {"type": "integer"}), (float, {"type": "number"}), (bool, {"type": "boolean"}), (list, {"type": "array"}), (dict, {"type": "object"}), (type(None), {"type": "null"}),
    (Any, {}), (object, {}), (Name, {"type": "string"}), (Annotated[int, []], {"type": "integer"}), (Optional[int], {"anyOf": [{"type": "integer"}, {"type": "null"}]}),  # noqa: UP045
    (Union[int, str], {"anyOf": [{"type": "integer"}, {"type": "string"}]}), (int | None, {"anyOf": [{"type": "integer"}, {"type": "null"}]}), (Literal["a", 1, True, None], {"enum": ["a", 1, True, None]}),  # noqa: UP007
    (Literal[Color.RED], {"enum": ["red"]}), (list[int], {"type": "array", "items": {"type": "integer"}}), (dict[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}),
    (list[dict[str, bool]], {"type": "array", "items": {"type": "object", "additionalProperties": {"type": "boolean"}}}), (Color, {"title": "Color", "enum": ["red", "blue"]}), (Level, {"title": "Level", "enum": [1, 2]}),
    (Movie, {"title": "Movie", "type": "object", "properties": {"title": {"type": "string"}, "year": {"type": "integer"}}, "additionalProperties": False, "required": ["title"]}),
    (Loose, {"title": "Loose", "type": "object", "properties": {"title": {"type": "string"}, "year": {"type": "integer"}}, "additionalProperties": False, "required": ["title"]}),
    (Review, {"title": "Review", "type": "object", "properties": {"verdict": {"enum": ["ok", "bad"]}, "score": {"type": "integer"}, "note": {"anyOf": [{"type": "string"}, {"type": "null"}]}, "color": {"title": "Color", "enum": ["red", "blue"]}}, "additionalProperties": False, "required": ["verdict", "score"]}),
    (Tree, {"$ref": "#/$defs/Tree", "$defs": {"Tree": {"title": "Tree", "type": "object", "properties": {"name": {"type": "string"}, "children": {"type": "array", "items": {"$ref": "#/$defs/Tree"}}}, "additionalProperties": False, "required": ["name"]}}}),
    ({"enum": ("a", "b"), "title": "T"}, {"enum": ["a", "b"], "title": "T"}), ({}, {}),
])  # fmt: skip
def test_a_type_becomes_a_schema(kind: Any, schema: dict[str, Any]) -> None:
    assert to_schema(kind) == schema
    assert to_schema(to_schema(kind)) == schema  # what was stored can be read again
    assert json.loads(json.dumps(schema)) == schema


def test_nothing_asked_is_nothing_checked() -> None:
    assert to_schema(None) is None
    assert check(None, object()) is None


@pytest.mark.parametrize(("kind", "value", "fault"), [
    (Review, {"verdict": "ok", "score": 3}, None), (Review, {"verdict": "ok", "score": 3, "note": None, "color": "blue"}, None),
    (Review, {"verdict": "meh", "score": 3}, "answer.verdict must be one of 'ok', 'bad', got 'meh'"), (Review, {"verdict": "ok"}, "answer lacks score"),
    (Review, {"verdict": "ok", "score": True}, "answer.score must be an integer, got True"), (Review, {"verdict": "ok", "score": 3.0}, "answer.score must be an integer, got 3.0"),
    (Review, {"verdict": "ok", "score": 3, "derived": 1}, "answer may only have verdict, score, note, color, got 'derived'"),
    (Review, {"verdict": "ok", "score": 3, "note": 7}, "answer.note matches none of the 2 allowed forms: answer.note must be text, got 7; answer.note must be null, got 7"),
    (Review, [], "answer must be an object with text keys, got []"), (dict, {1: 2}, "answer must be an object with text keys, got {1: 2}"),
    (Tree, {"name": "a", "children": [{"name": "b"}, {"name": "c", "children": [{"name": 5}]}]}, "answer.children[1].children[0].name must be text, got 5"), (Tree, {"name": "a", "children": [{"name": "b"}]}, None),
    (dict[str, int], {"a b": "x"}, "answer['a b'] must be an integer, got 'x'"), (float, 3, None), (float, True, "answer must be a number, got True"), (float, math.nan, "answer must be a number, got nan"),
    (int, 3.0, "answer must be an integer, got 3.0"), (Literal[1], True, "answer must be one of 1, got True"), (Literal[True], 1, "answer must be one of True, got 1"), (Level, 2, None), (Level, 3, "answer must be one of 1, 2, got 3"),
    (Person, {"name": "A", "age": 1, "friends": [{"name": "B", "home": {"city": "X", "zip": "12345"}}]}, None), (Person, {"name": "A", "age": 150}, "answer.age must be less than 150, got 150"),
    (Person, {"name": "A", "friends": [{"name": "B", "age": -1}]}, "answer.friends[0].age must be at least 0, got -1"),
    (Team, {"lead": {"name": "A", "friends": [{"name": 1}]}, "places": {}}, "answer.lead.friends[0].name must be text, got 1"),
    (Team, {"lead": {"name": "A"}, "places": {"x": {"city": "X", "zip": "1234"}}}, r"answer.places.x.zip must match ^\d{5}$, got '1234'"),
    (Team, {"lead": {"name": "A"}, "places": {"x": {"city": "X", "zip": "123456"}}}, "answer.places.x.zip must have at most 5 characters, got 6"),
    ({"type": ["integer", "null"]}, "x", "answer must be an integer or null, got 'x'"), ({"const": {"a": [1]}}, {"a": [1.0]}, None), ({"const": 1}, True, "answer must be 1, got True"),
    ({"oneOf": [{"type": "integer"}, {"minimum": 5}]}, 7, "answer must match exactly one of the allowed forms, and matches 2"), ({"oneOf": [{"type": "integer"}, {"minimum": 5}]}, 3, None),
    ({"oneOf": [{"type": "integer"}]}, "a", "answer must be an integer, got 'a'"), ({"allOf": [{"minimum": 1}, {"maximum": 3}]}, 4, "answer must be at most 3, got 4"),
    ({"exclusiveMinimum": 0}, 0, "answer must be greater than 0, got 0"), ({"minItems": 2}, [1], "answer must have at least 2 items, got 1"), ({"maxItems": 0}, [1], "answer must have at most 0 items, got 1"), ({"minLength": 2}, "é", "answer must have at least 2 characters, got 1"),
    ({"items": False}, [1], "answer[0] is not allowed"), ({"items": True}, [1], None), ({"properties": {"a": False}}, {"a": 1}, "answer.a is not allowed"), ({"additionalProperties": False}, {"a": 1}, "answer may only have nothing, got 'a'"),
    ({"pattern": "b"}, "abc", None), ({"pattern": "b"}, 7, None), ({"minimum": 3}, "abc", None), ({"minLength": 9}, [1], None), ({"required": ["a"]}, [], None), ({"pattern": "a"}, "a" * 1001, "answer must have at most 1,000 characters to be tested with a pattern, got 1,001"),
    ({"$ref": "#/$defs/a~1b", "$defs": {"a/b": {"type": "string"}}}, 7, "answer must be text, got 7"), (str, object, "answer must be text, got <class 'object'>"),
])  # fmt: skip
def test_the_first_fault_is_told_with_its_path(kind: Any, value: Any, fault: str | None) -> None:
    assert check(to_schema(kind), value) == fault


def test_a_long_list_of_choices_is_cut_in_the_sentence() -> None:
    assert str(check(to_schema(choices=range(100)), -1)).endswith("18, 19, …, got -1")


@pytest.mark.parametrize(("schema", "choices", "made"), [
    (None, ["yes", "no"], {"enum": ["yes", "no"]}), (None, ("yes", "yes", 1, 1.0, True), {"enum": ["yes", 1, True]}), (None, Color, {"enum": ["red", "blue"]}), (str, ["yes"], {"type": "string", "enum": ["yes"]}),
    (Color, ["red"], {"title": "Color", "enum": ["red", "blue"], "allOf": [{"enum": ["red"]}]}), (None, [{"a": [1]}, None], {"enum": [{"a": [1]}, None]}),
])  # fmt: skip
def test_choices_are_the_only_answers(schema: Any, choices: Any, made: dict[str, Any]) -> None:
    assert to_schema(schema, choices) == made
    assert check(made, next(iter(made["enum"]))) is None
    assert check(made, "perhaps")


@pytest.mark.parametrize(("schema", "choices", "words"), [
    (None, [], "choices must not be empty"), (None, "yes", "choices must be a list of values, got 'yes'"), (None, {"yes": 1}, "choices must be a list of values, got {'yes': 1}"), (None, 7, "choices must be a list of values, got 7"), (None, [b"x"], "choices[0] is b'x'"), (None, [1, math.nan], "choices[1] is nan"),
    (int, [1, "two"], "the choice 'two' does not match the schema: answer must be an integer, got 'two'"),
])  # fmt: skip
def test_choices_that_make_no_sense_are_refused(schema: Any, choices: Any, words: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        to_schema(schema, choices)
    assert words in refused.value.message


@pytest.mark.parametrize(
    "kind",
    [
        5,
        "str",
        b"x",
        set,
        tuple,
        bytes,
        complex,
        set[int],
        tuple[int, ...],
        dict[int, str],
        Callable[[], int],
        list["int"],
        [int],
        Tagged,
        Missing,
        type,
        lambda: 1,
    ],
)
def test_what_has_no_shape_is_refused(kind: Any) -> None:
    with pytest.raises(InvalidArgument):
        to_schema(kind)


def test_what_cannot_be_expressed_is_refused_with_what_can() -> None:
    with pytest.raises(InvalidArgument, match="uniqueItems"):
        to_schema(Tagged)
    with pytest.raises(InvalidArgument, match="Missing cannot be read: name 'Nowhere'"):
        to_schema(Missing)
    with pytest.raises(InvalidArgument) as refused:
        to_schema(set[int])
    assert all(word in refused.value.remedy for word in ("Literal", "dataclass", "TypedDict", "pydantic", "JSON Schema"))


@pytest.mark.parametrize(("schema", "words"), [
    ({"multipleOf": 2}, "schema has the unknown keyword 'multipleOf'"), ({"properties": {"a": {"not": {}}}}, "schema.properties.a has the unknown keyword 'not'"), ({"anyOf": [{}, {"if": {}}]}, "schema.anyOf[1] has the unknown keyword 'if'"),
    ({"type": "text"}, "got 'text'"), ({"type": []}, "got []"), ({"type": [["string"]]}, "schema.type"), ({"enum": []}, "got []"), ({"enum": "abc"}, "got 'abc'"), ({"properties": []}, "schema.properties"),
    ({"properties": {"a": 5}}, "got 5"), ({"required": "a"}, "got 'a'"), ({"required": [1]}, "schema.required"), ({"items": [{}]}, "schema.items"), ({"additionalProperties": 1}, "got 1"),
    ({"minItems": -1}, "got -1"), ({"minItems": True}, "got True"), ({"maxLength": 1.0}, "got 1.0"), ({"minimum": "1"}, "got '1'"), ({"maximum": True}, "got True"),
    ({"pattern": "("}, "got '('"), ({"pattern": 7}, "got 7"), ({"anyOf": []}, "got []"), ({"allOf": {}}, "got {}"), ({"$ref": "#/$defs/a"}, "which does not exist"), ({"$ref": "http://x/y"}, "which does not exist"),
    ({"$ref": 7}, "got 7"), ({"$ref": "#", "$defs": {}}, "which does not exist"), ({"$defs": []}, "got []"), ({"$defs": {"a": {"what": 1}}}, "schema.$defs.a has the unknown keyword 'what'"), ({"default": {1}}, "schema.default is {1}"), ({7: 7}, "schema is {7: 7}"), ({"const": math.inf}, "schema.const is inf"),
    ({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}, "schema.$defs.a only refers to itself"), ({"$defs": {"a": {"anyOf": [{}, {"$ref": "#/$defs/b"}]}, "b": {"allOf": [{"$ref": "#/$defs/a"}]}}}, "only refers to itself"),
])  # fmt: skip
def test_a_schema_that_is_not_understood_is_refused(schema: Any, words: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        to_schema(schema)
    assert words in refused.value.message
    assert refused.value.remedy


def test_words_that_constrain_nothing_are_kept() -> None:
    schema = {
        "title": "T",
        "description": "d",
        "default": 5,
        "examples": [1],
        "format": "email",
        "$schema": "x",
        "discriminator": {"propertyName": "kind"},
    }
    assert to_schema(schema) == schema
    assert check(schema, object()) is None


def test_a_schema_is_a_copy() -> None:
    given: dict[str, Any] = {"enum": ["a"]}
    made = to_schema(given)
    given["enum"].append("b")
    assert made == {"enum": ["a"]}


def test_depth_is_limited() -> None:
    deep: Any = {"name": "a"}
    endless: list[Any] = []
    endless.append(endless)
    for _ in range(200):
        deep = {"name": "a", "children": [deep]}
    assert str(check(to_schema(Tree), deep)).endswith("is too deeply nested to check")
    assert str(check(to_schema({"$ref": "#/$defs/a", "$defs": {"a": {"items": {"$ref": "#/$defs/a"}}}}), endless)).endswith(
        "is too deeply nested to check"
    )
    with pytest.raises(InvalidArgument, match="which JSON cannot represent at this depth"):
        to_schema({"default": endless})


def test_a_schema_that_branches_without_end_gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    assert MOST_TESTS == 1_000_000
    monkeypatch.setattr("everstep.runtime.waits.answer_check.MOST_TESTS", 10_000)
    fork = {f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}, {"$ref": f"#/$defs/d{n + 1}"}]} for n in range(40)}
    made = to_schema({"$ref": "#/$defs/d0", "$defs": {**fork, "d40": {"type": "string"}}})
    assert check(made, "x") is None
    assert "too large to check" in str(check({"items": {"type": "integer"}}, [1] * 20_000))
    assert check(made, 7)


def test_a_text_for_a_pattern_may_be_as_long_as_the_limit() -> None:
    assert check({"pattern": "^a+$"}, "a" * PATTERN_TEXT) is None


def test_a_named_type_may_hold_itself() -> None:
    names: dict[str, Any] = {}
    try:
        exec("type Json = dict[str, Json] | list[Json] | str | None", names)
    except SyntaxError:
        pytest.skip("the type statement came with Python 3.12")
    made = to_schema(names["Json"])
    assert check(made, {"a": [None, {"b": "c"}]}) is None
    assert "answer.a[0]" in str(check(made, {"a": [5]}))


def test_two_classes_of_one_name_are_kept_apart() -> None:
    def point(kind: type) -> type:
        @dataclass
        class Point:
            x: int

        Point.__annotations__ = {"x": kind}
        return Point

    one, other = point(int), point(str)
    made = to_schema(Union[one, other])  # noqa: UP007
    assert check(made, {"x": 1}) is None
    assert check(made, {"x": "a"}) is None
    assert check(made, {"x": None})


@pytest.mark.parametrize("text", ["Annotated", "Required"])
def test_a_class_with_a_schema_that_fails_is_refused(text: str) -> None:
    class Odd:
        @staticmethod
        def model_json_schema(ref_template: str) -> Any:
            raise RuntimeError(text)

    with pytest.raises(InvalidArgument, match=f"Odd has no JSON Schema: {text}"):
        to_schema(Odd)


scalars = st.none() | st.booleans() | st.integers(-5, 5) | st.floats(-5, 5) | st.text("ab", max_size=3)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3), max_leaves=8
)
Model = tuple[dict[str, Any], Callable[[Any], bool]]

TYPES: list[Model] = [
    ({"type": "null"}, lambda v: v is None), ({"type": "boolean"}, lambda v: type(v) is bool), ({"type": "integer"}, lambda v: type(v) is int),
    ({"type": "number"}, lambda v: type(v) in (int, float)), ({"type": "string"}, lambda v: type(v) is str), ({"type": "array"}, lambda v: type(v) is list),
    ({"type": "object"}, lambda v: type(v) is dict), ({}, lambda v: True),
]  # fmt: skip


@st.composite
def models(draw: st.DrawFn, depth: int = 2) -> Model:
    """A schema, and the plainest function that says the same."""
    what = draw(st.sampled_from(["type", "bounds", "length", "enum", *(["list", "object", "any", "one", "all", "ref"] if depth else [])]))
    if what == "type":
        return draw(st.sampled_from(TYPES))
    if what == "bounds":
        low, high = draw(st.integers(-4, 4)), draw(st.floats(-4, 4))
        return {"minimum": low, "exclusiveMaximum": high}, lambda v: type(v) not in (int, float) or low <= v < high
    if what == "length":
        least, most = draw(st.integers(0, 3)), draw(st.integers(0, 3))
        schema = {"minItems": least, "maxItems": most, "minLength": least, "maxLength": most}
        return schema, lambda v: type(v) not in (list, str) or least <= len(v) <= most
    if what == "enum":
        allowed = draw(st.lists(values, min_size=1, max_size=3))
        return {"enum": allowed}, lambda v: canonical(v) in [canonical(one) for one in allowed]
    several = draw(st.lists(models(depth - 1), min_size=1, max_size=3))
    schemas, tests = [s for s, _ in several], [t for _, t in several]
    if what == "list":
        return {"items": schemas[0]}, lambda v: type(v) is not list or all(map(tests[0], v))
    if what == "object":
        closed, needed = draw(st.booleans()), draw(st.sets(st.sampled_from("abc")))
        named = dict(zip("abc", schemas, strict=False))
        schema = {"properties": named, "required": sorted(needed), "additionalProperties": not closed}
        return (
            schema,
            lambda v: (
                type(v) is not dict
                or (
                    needed <= v.keys()
                    and (not closed or v.keys() <= named.keys())
                    and all(test(v[k]) for k, test in zip("abc", tests, strict=False) if k in v)
                )
            ),
        )
    if what == "ref":
        return {"$ref": f"#/$defs/{draw(st.sampled_from(list(DEFS)))}"}, lambda v: True
    word, counted = {"any": ("anyOf", any), "all": ("allOf", all), "one": ("oneOf", lambda found: sum(found) == 1)}[what]
    return {word: schemas}, lambda v: counted([test(v) for test in tests])  # type: ignore[operator]


DEFS = {"free": {}, "tree": {"items": {"$ref": "#/$defs/tree"}, "additionalProperties": {"$ref": "#/$defs/free"}}}


def canonical(value: Any) -> str:
    """JSON text in which equal values are the same: 1.0 is written as 1."""
    if type(value) is float and value == int(value):
        return str(int(value))
    if type(value) is list:
        return f"[{','.join(map(canonical, value))}]"
    if type(value) is dict:
        return f"{{{','.join(sorted(f'{k}:{canonical(v)}' for k, v in value.items()))}}}"
    return json.dumps(value)


@given(models(), values)
def test_a_value_fits_a_schema_exactly_if_it_fits_the_model(model: Model, value: Any) -> None:
    schema, fits = model
    made = to_schema({**schema, "$defs": DEFS})
    fault = check(made, value)
    assert (fault is None) == fits(value)
    assert fault is None or fault.startswith("answer")


@given(values, values)
def test_equal_is_what_json_calls_equal(one: Any, other: Any) -> None:
    assert same(one, one)
    assert same(one, other) == same(other, one) == (canonical(one) == canonical(other))


@given(values)
def test_every_value_is_an_answer_or_refused_in_a_sentence(value: Any) -> None:
    for kind in (Review, Tree, Movie, Team, Color, int, list[dict[str, int]]):
        fault = check(to_schema(kind), value)
        assert fault is None or fault.startswith("answer")


@pytest.mark.parametrize("wrap", [lambda value: [value], lambda value: {"a": value}], ids=["lists", "dicts"])
def test_json_is_nested_at_most_so_deep(wrap: Callable[[Any], Any]) -> None:
    deep: Any = 1
    for _ in range(DEPTH):
        deep = wrap(deep)
    assert plain(deep, "x") == deep
    with pytest.raises(InvalidArgument, match="at this depth"):
        plain(wrap(deep), "x")

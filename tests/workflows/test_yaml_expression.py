"""The small language of YAML workflows: what it reads, what it refuses, and that it cannot be made to do anything else."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everstep.expressions.parser import MOST_DEPTH, Expression, parse, parse_template
from everstep.expressions.values import ExpressionError, Missing


@dataclass
class Plan:
    title: str
    secret: str = "s"

    @property
    def shout(self) -> str:
        raise AssertionError("a property was called")

    def method(self) -> None:
        raise AssertionError("a method was called")


class Point(NamedTuple):
    x: int


NAMES: dict[str, Any] = {
    "inputs": {"topic": "logs", "n": 3, "tags": ["a", "b"]},
    "state": {"a": {"b": [10, {"c": "deep"}]}, "none": None, "with space": 1},
    "steps": {"my-step": {"result": Plan("T"), "status": "succeeded"}, "p": {"result": Point(4)}},
    "item": {"q": "x"},
}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1),
        ("-2.5", -2.5),
        ("1e3", 1000.0),
        (r"'it\'s'", "it's"),
        (r'"a\n\"b\""', 'a\n"b"'),
        ("true", True),
        ("false", False),
        ("null", None),
        ("[1, 'a', inputs.n]", [1, "a", 3]),
        ("[]", []),
        ("inputs.topic", "logs"),
        ("state.a.b[0]", 10),
        ("state.a.b[-1].c", "deep"),
        ("state['with space']", 1),
        ("state['a'].b[1]['c']", "deep"),
        ("inputs.tags[0]", "a"),
        ("steps.my-step.result.title", "T"),
        ("steps['my-step'].status", "succeeded"),
        ("steps.p.result.x", 4),
        ("item.q", "x"),
        ("inputs.n == 3", True),
        ("inputs.n != 3", False),
        ("inputs.n < 4", True),
        ("inputs.n <= 3", True),
        ("inputs.n > 3", False),
        ("inputs.n >= 3.0", True),
        ("'a' in inputs.tags", True),
        ("'z' not in inputs.tags", True),
        ("'og' in inputs.topic", True),
        ("not inputs.n == 3", False),
        ("not state.none", True),
        ("true or false and false", True),
        ("(true or false) and false", False),
        ("inputs.n and inputs.topic", True),
        ("null or ''", False),
        ("not (true and false) or false", True),
        ("len(inputs.tags)", 2),
        ("len(inputs.topic) == 4", True),
        ("default(state.nothing, 7)", 7),
        ("default(state.none, inputs.n)", 3),
        ("default(inputs.n, state.nothing)", 3),
        ("default(steps.my-step.result.nothing.at.all, 'x')", "x"),
        ("json('{\"a\": [1, 2]}').a[1]", 2),
        (r"lines('a\n\nb\n')", ["a", "b"]),
        ("  ${ inputs.n }  ", 3),
    ],
)
def test_what_it_means(text: str, value: Any) -> None:
    found = parse(text).evaluate(NAMES)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected a value at the end"),
        ("1 +", "unexpected '+'"),
        ("1 2", "unexpected '2'"),
        ("inputs.", "expected a name after '.'"),
        ("inputs.n ==", "expected a value at the end"),
        ("1 < 2 < 3", "two comparisons in a row; join them with 'and'"),
        ("(1", "expected ')' at the end"),
        ("[1 2]", "expected ',' before '2]'"),
        ("'open", "a string without a closing quote"),
        (r"'\x41'", r"unknown escape '\x'; allowed:"),
        ("size(inputs)", "there is no function 'size', only default, json, len, lines, in"),
        ("lens(inputs)", "(did you mean 'len'?)"),
        ("default(1)", "default() takes 2 values, got 1"),
        ("len()", "len() takes 1 value, got 0"),
        ("and", "expected a value before 'and'"),
        ("not not 1", "expected a value before 'not'"),
        ("1 not 2", "expected 'in' after 'not'"),
        ("1.2.3", "unexpected '"),
        ("12abc", "unexpected '"),
        ("a ${b}", "unexpected '$'"),
        ("${a} b", "text around ${...}"),
        ("${a", "expected '}' at the end"),
        ("x = 1", "unexpected '='"),
        ("f'{x}'", "unexpected '"),
        ("lambda: 1", "unexpected '"),
        ("inputs.n if true else 1", "unexpected 'if'"),
        ("inputs.topic.upper()", "unexpected '('"),
        ("2 ** 99999999", "unexpected '"),
    ],
)
def test_what_is_no_expression_is_refused_with_a_reason(text: str, message: str) -> None:
    with pytest.raises(ExpressionError) as refused:
        parse(text)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nothing", "there is no 'nothing' here"),
        ("state.none.x", "there is no 'x' in null"),
        ("inputs.tags[2]", "there is no 2 in a value of type list"),
        ("inputs.tags['a']", "there is no 'a' in a value of type list"),
        ("state[inputs.tags]", "there is no ['a', 'b'] in a value of type dict"),
        ("inputs.n < 'a'", "cannot compare 3 < 'a'"),
        ("1 in 2", "cannot compare 1 in 2"),
        ("len(3)", "len() takes a list, a string or a mapping, got a value of type int"),
        ("json('{')", "json():"),
        ("json(3)", "json() takes text, got a value of type int"),
        ("lines([])", "lines() takes text"),
    ],
)
def test_what_cannot_be_worked_out_says_why(text: str, message: str) -> None:
    with pytest.raises(ExpressionError) as refused:
        parse(text).evaluate(NAMES)
    assert message in str(refused.value)


@pytest.mark.parametrize("name", ["__class__", "__dict__", "shout", "method", "_fields", "__dataclass_fields__", "secrets"])
@pytest.mark.parametrize("step", ["my-step", "p"])
def test_only_fields_of_objects_can_be_reached(step: str, name: str) -> None:
    for text in (f"steps.{step}.result.{name}", f"steps.{step}.result['{name}']"):
        with pytest.raises(Missing):
            parse(text).evaluate(NAMES)


def test_nothing_but_data_can_be_reached_from_anything() -> None:
    for text in ("inputs.__class__", "inputs.topic.__class__", "state.a.keys", "len.__globals__", "inputs.topic.format"):
        with pytest.raises(Missing):
            parse(text).evaluate(NAMES)


def test_default_hides_a_missing_value_but_no_mistake() -> None:
    with pytest.raises(ExpressionError, match="cannot compare"):
        parse("default(inputs.n < 'a', 1)").evaluate(NAMES)


def test_the_second_value_of_default_is_worked_out_only_when_needed() -> None:
    assert parse("default(1, json('{'))").evaluate(NAMES) == 1


@pytest.mark.parametrize(
    "text", ["(" * 500 + "1" + ")" * 500, "a" + ".b" * 500, "a" + "[0]" * 300, "[" * 200, "'" + "a" * 5000 + "' == 1", "1 or " * 2000 + "1"]
)
def test_depth_and_length_have_a_cap(text: str) -> None:
    with pytest.raises(ExpressionError, match="more than"):
        parse(text)


def test_the_deepest_that_is_read_can_be_worked_out() -> None:
    deep = MOST_DEPTH - 1
    assert parse("(" * deep + "1" + ")" * deep).evaluate({}) == 1
    nested: Any = 1
    for _ in range(deep):
        nested = {"b": nested}
    assert parse("a" + ".b" * deep).evaluate({"a": nested}) == 1


def test_what_it_refers_to() -> None:
    def paths(text: str) -> list[tuple[Any, ...]]:
        return list(parse(text).paths())

    assert paths("steps.a.result.x > 1 and not inputs.y") == [("steps", "a", "result", "x"), ("inputs", "y")]
    assert paths("state['k'][0].z") == [("state", "k", 0, "z")]
    assert paths("default(steps.a.result, len(item))") == [("steps", "a", "result"), ("item",)]
    assert paths("steps[inputs.which].result") == [("steps",), ("inputs", "which")]
    assert paths("(steps).a") == [("steps",)]
    assert paths("[index, 'x']") == [("index",)]


def template(text: str) -> list[Any]:
    return [part.text if isinstance(part, Expression) else [part] for part in parse_template(text)]


def test_a_text_is_cut_at_its_expressions() -> None:
    assert template("plain") == [["plain"]]
    assert template("") == [[""]]
    assert template("${a}") == ["a"]
    assert template("x ${a.b} y ${ c } z") == [["x "], "a.b", [" y "], "c", [" z"]]
    assert template("${'}'} ${a['}']}") == ["'}'", [" "], "a['}']"]
    assert template("$${a} and $5 and ${a}") == [["${a} and $5 and "], "a"]
    assert template("$$${a}") == [["$${a}"]]


@given(st.text(alphabet="ab.[]()'\"\\ 01-+<=>!,${}\n and or not in len default", max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    for read in (parse, parse_template):
        with suppress(ExpressionError):
            read(text)


@given(st.text(max_size=40))
def test_a_text_without_expressions_stays_as_it_is(text: str) -> None:
    escaped = text.replace("${", "$${")
    if "$${" not in text and "$$" not in text:
        assert parse_template(escaped) == [text]


def as_source(value: Any) -> str:
    if isinstance(value, str):
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    if isinstance(value, list):
        return f"[{', '.join(map(as_source, value))}]"
    return {True: "true", False: "false", None: "null"}[value] if value is None or isinstance(value, bool) else repr(value)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.floats(-1e6, 1e6) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=6,
)


@given(VALUES)
def test_every_value_that_can_be_written_is_read_back(value: Any) -> None:
    assert parse(as_source(value)).evaluate({}) == value

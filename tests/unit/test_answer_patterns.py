"""The pattern of an answer's schema can't block the process that answers: the time is bounded, and the verdict that of `re`."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pace import examples

import everstep
from everstep.errors import BadAnswer, InvalidArgument
from everstep.runtime.waits import answer_pattern as patterns
from everstep.runtime.waits.answer_check import PATTERN_STEPS, check
from everstep.runtime.waits.answer_pattern import Steps, Unbounded, compiled
from everstep.runtime.waits.answer_schema import check_stored, to_schema

HOSTILE = [
    (r"(a+)+$", "a" * 999 + "!"), (r"^(a|a)*$", "a" * 999 + "!"), (r"(a|aa)+$", "a" * 999 + "!"), (r"(.*a){20}$", "a" * 999 + "!"),
    (r"^(\w+\s?)+$", "ab " * 333 + "!"), (r"a*a*a*a*a*a*a*b", "a" * 1000), (r"(?:a?){30}a{30}!", "a" * 1000), (r"(x+x+)+y", "x" * 1000),
    (r"(a|b|ab)*c", "ab" * 500), (r"((a*)*)*!", "a" * 1000), (r"(?=(a+)+$)b", "a" * 1000), (r"(?:(a|a)(a|a)){40}!", "a" * 1000),
    (r"^([a-zA-Z0-9])(([\-.]|[_]+)?([a-zA-Z0-9]+))*(@){1}[a-z0-9]+[.]{1}(([a-z]{2,3})|([a-z]{2,3}[.]{1}[a-z]{2,3}))$", "a" * 999 + "!"),
    (r"(?<!(?:a|a){20})!?b", "a" * 1000), ("(" * 80 + "a" + "+)" * 80 + "$", "a" * 999 + "!"),
]  # fmt: skip


@pytest.mark.parametrize(("pattern", "text"), HOSTILE)
def test_a_pattern_that_explodes_in_re_is_tested_in_bounded_time(pattern: str, text: str) -> None:
    began = time.process_time()
    assert check(to_schema({"pattern": pattern}), text) is not None
    assert time.process_time() - began < 5


def test_answering_such_a_gate_is_quick_and_honest() -> None:
    @everstep.workflow
    def asks() -> Any:
        return everstep.gate("name", schema={"type": "string", "pattern": r"^(\w+\s?)+$"})

    with everstep.open("memory://") as store:
        store.start(asks, id="r")
        began = time.process_time()
        with pytest.raises(BadAnswer, match="must match"):
            store.answer("r", "name", "many words that fit and then one sign that does not, " * 10)
        store.answer("r", "name", "many words that fit")
        assert time.process_time() - began < 2
        assert store.resume("r").result == "many words that fit"


HONEST = [
    r"^\d{5}$", r"^[a-z0-9]+(?:-[a-z0-9]+)*$", r"^(?=.*\d)(?=.*[a-z])(?=.*[A-Z]).{8,}$", r"^[\w.+-]+@[\w-]+(\.[\w-]+)+$", r"^(yes|no|maybe)$", r"(?i)^ja$",
    r"^\+?[0-9 ()-]{6,20}$", r"^https?://[^\s/$.?#].[^\s]*$", r"\bword\b", r"^(?!admin$)\w+$", r"(?<=a)b", r"(?<!a)b", r"^#(?:[0-9a-f]{3}){1,2}$",
    r"^\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])$", r"^.{1,1000}$", r"", r"^$", r"(?s)a.b", r"(?m)^b$", r"a(?i:b)c", r"[^a-c\d]", r"(?x) a  b # ab", r"^\s*\S+\s*$",
]  # fmt: skip
TEXTS = [
    "", "a", "b", "ab", "abc", "aBc", "12345", "123456", "a-b-c", "a--b", "Abcdefg1", "ann@example.org", "ann@example", "yes", "no ", "JA", "ja\n", "+49 (0)30 123",
    "https://x.org/a b", "a word.", "swords", "admin", "administrator", "#ff0", "#ff00", "2026-11-16", "2026-13-01", "a\nb", "a\nb\n", "é", "ß", "x" * 1000, "٣٣٣٣٣", " x ",
]  # fmt: skip


@pytest.mark.parametrize("pattern", HONEST)
def test_an_honest_pattern_means_what_it_means_in_re(pattern: str) -> None:
    for text in TEXTS:
        fault = check(to_schema({"pattern": pattern}), text)
        assert (fault is None) == (re.search(pattern, text) is not None), (pattern, text)


@pytest.mark.parametrize("pattern", [r"(a)\1", r"(?P<x>a)(?P=x)", r"(a)?(?(1)b|c)", r"(?>a+)b", r"a++b", r"(?:a{1000}){1000}", r"(){4000000000}", r"(?:(?:a?){999}){999}"])  # fmt: skip
def test_a_pattern_that_cannot_be_followed_is_refused_when_the_gate_is_made(pattern: str) -> None:
    began = time.process_time()
    with pytest.raises(InvalidArgument, match=r"schema\.pattern") as caught:
        to_schema({"pattern": pattern})
    assert "without back references" in caught.value.message
    stored = check({"pattern": pattern}, "aaaa")  # by a hostile store, or by an older version
    assert stored is not None
    assert "cannot be tested" in stored
    assert time.process_time() - began < 5


def test_the_steps_of_all_patterns_of_an_answer_are_counted_together() -> None:
    schema = to_schema({"items": {"pattern": r"(?=(.*x){2}y)z|q"}})
    began = time.process_time()
    assert "takes too many steps" in str(check(schema, ["x" * 1000] * 10_000))
    assert time.process_time() - began < 15


def test_a_number_with_more_digits_than_python_prints_is_a_bad_answer_not_a_crash() -> None:
    assert "must be at most 5" in str(check(to_schema({"maximum": 5}), 10**5000))
    assert "must be at least" in str(check(to_schema({"minimum": 10**5000}), 5))


_atoms = st.sampled_from(["a", "b", ".", "[ab]", "[^a]", r"\w", r"\b", r"\B", "^", "$", r"\Z", "(?i:A)", r"\s", "\n"])
_patterns = st.recursive(
    _atoms,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map("".join),
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: f"(?:{'|'.join(parts)})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,2}", "{0,3}", "*?", "+?"])).map(lambda pair: f"(?:{pair[0]}){pair[1]}"),
        st.tuples(st.sampled_from(["(?=", "(?!"]), inner).map(lambda pair: f"{pair[0]}{pair[1]})"),
    ),
    max_leaves=6,
)


def differs(pattern: str, text: str) -> bool:
    return compiled(pattern)(text, Steps(PATTERN_STEPS)) != (re.search(pattern, text) is not None)


@settings(max_examples=examples(250))
@given(_patterns, st.text(st.sampled_from("abA \n"), max_size=7))
def test_the_verdict_is_that_of_re_for_any_pattern(pattern: str, text: str) -> None:
    assert not differs(pattern, text)


def test_the_comparison_finds_a_matcher_that_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """The canary: one that forgets that a look-around may be negative."""
    right = patterns._Program._look
    monkeypatch.setattr(patterns._Program, "_look", lambda self, wanted, *rest: right(self, True, *rest))
    compiled.cache_clear()
    try:
        assert any(differs(pattern, text) for pattern in HONEST for text in TEXTS)
    finally:
        compiled.cache_clear()


def test_steps_end() -> None:
    with pytest.raises(Unbounded):
        compiled("(a|aa)+$")("a" * 100, Steps(10))


UNCHECKED: list[Any] = [
    {"patternProperties": {"^a": {"type": "integer"}}}, {"propertyNames": {"pattern": "^a"}}, {"not": {"type": "string"}}, {"properties": {"a": {"multipleOf": 3}}},
    {"$defs": {"A": {"if": {}}}, "$ref": "#/$defs/A"},
]  # fmt: skip
BROKEN: list[Any] = [
    [1], {"type": "bogus"}, {"items": 5}, {"$ref": "#/$defs/none"}, {"$ref": 5}, {"anyOf": 7}, {"minimum": "x"}, {"required": 5}, {"properties": [1]}, {"enum": 3},
    {"pattern": 3}, {"$defs": 3, "$ref": "#/$defs/A"}, {"$defs": {"A": {"$ref": "#/$defs/A"}}, "$ref": "#/$defs/A"},
]  # fmt: skip


@pytest.mark.parametrize("schema", UNCHECKED, ids=str)
def test_a_keyword_that_is_not_checked_is_refused_at_the_gate(schema: Any) -> None:
    @everstep.workflow
    def asks() -> Any:
        return everstep.gate("name", schema=schema)

    outcome = everstep.open("memory://").start(asks)
    assert outcome.status == "failed"
    assert "has the unknown keyword" in str(outcome.error)


@pytest.mark.parametrize("schema", [*UNCHECKED, *BROKEN], ids=str)
def test_a_stored_schema_that_cannot_be_checked_accepts_no_answer(schema: Any) -> None:
    for value in ({"a": "x"}, [1], 5, "text", None):
        assert "the schema in the store cannot be checked: schema" in str(check_stored(schema, value))

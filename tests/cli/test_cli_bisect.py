"""`bisect` finds the first checkpoint at which a condition holds, as brute force would, and runs no code."""

from __future__ import annotations

import contextlib
import io
import json
import operator
from collections.abc import Iterator
from typing import Any

import pytest
from cli_helpers import Shop
from hypothesis import given, settings
from hypothesis import strategies as st

import everstep
from everstep.cli.main import main

SIGNS = {"==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[everstep.Store]:
    with everstep.open(tmp_path_factory.mktemp("bisect") / "store.db") as opened:
        yield opened


def found(store: everstep.Store, run: str, when: str) -> tuple[int, Any]:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        code = main(["bisect", run, "--store", store.url, "--json", "--when", when])
    return code, json.loads(out.getvalue())["data"]


@settings(max_examples=40)
@given(
    states=st.lists(st.dictionaries(st.sampled_from("abc"), st.integers(-3, 3), max_size=3), min_size=1, max_size=12),
    key=st.sampled_from("abc"),
    sign=st.sampled_from(sorted(SIGNS)),
    number=st.integers(-3, 3),
    spelled=st.sampled_from(["state.{}", "state['{}']", "{}"]),
)
def test_it_finds_what_brute_force_finds(
    store: everstep.Store, states: list[dict[str, int]], key: str, sign: str, number: int, spelled: str
) -> None:
    with store.run(durability="exit") as run:
        for state in states:
            run.checkpoint(state=dict(state))
    first = next((n for n, s in enumerate(states, 1) if key in s and SIGNS[sign](s[key], number)), None)
    code, data = found(store, run.id, f"{spelled.format(key)} {sign} {number}")
    assert (None if data["checkpoint"] is None else data["checkpoint"]["number"]) == first
    assert code == (3 if first is None else 0)
    assert data["states_read"] == (first or len(states))


@pytest.fixture
def counted(empty: Shop) -> Shop:
    """A count that rises, and a flag that comes and goes."""
    with everstep.open(empty.path) as store, store.run("r") as run:
        for n in range(1, 101):
            run.state.update(n=n, flag=n in (40, 41, 90), words=["x"] * (n % 7), user={"na-me": f"u{n}"}, state="shadow")
            run.checkpoint(f"n is {n}")
    return empty


@pytest.mark.parametrize(
    ("when", "first"),
    [
        ("state.n >= 64", 64), ("n > 63", 64), ("flag", 40), ("flag and n > 50", 90), ("not flag", 1), ("len(words) == 6", 6), ("'x' in words", 1),
        ("state.user.na-me == 'u77'", 77), ("state['user']['na-me'] == \"u77\"", 77), ("n in [12, 13]", 12), ("default(missing, 5) == 5", 1),
        ("missing == 1 or n == 3", None), ("n == 3 or missing == 1", 3), ("n == '64'", None), ("words[0] == 'x'", 1), ("words[5] == 'x'", 6),
        ("state.state == 'shadow'", 1), ("${n == 9}", 9), ("n > 'text'", None), ("null == null", 1),
    ],
)  # fmt: skip
def test_conditions_hold_where_they_say(when: str, first: int | None, counted: Shop) -> None:
    data = counted.json("bisect", "r", "--when", when, code=0 if first else 3)
    assert (data["checkpoint"] or {}).get("number") == first


def test_a_condition_that_holds_for_good_is_found_by_halving(counted: Shop) -> None:
    data = counted.json("bisect", "r", "--when", "n >= 64", "--sorted")
    assert data["checkpoint"]["number"] == 64
    assert data["states_read"] <= 7
    assert counted.json("bisect", "r", "--when", "n >= 64")["states_read"] == 64
    assert counted.json("bisect", "r", "--when", "n > 100", "--sorted", code=3)["checkpoint"] is None


def test_states_that_were_pruned_are_passed_over(counted: Shop) -> None:
    with counted.open() as store:
        store.prune({"keep_last": 20}, run="r")
    assert counted.json("bisect", "r", "--when", "n > 10")["checkpoint"]["number"] == 81
    assert counted.json("bisect", "r", "--when", "n > 90", "--sorted")["checkpoint"]["number"] == 91


@pytest.mark.parametrize(
    "when",
    [
        "", "n >", "n = 3", "(n", "n ** 2 > 4", "n + 1 == 2", "__import__('os').system('touch pwned')", "eval('1')", "open('x')", "n.__class__()",
        "lambda: 1", "[x for x in words]", "n if flag else 1", "'unclosed", "a" * 5000, "(" * 100 + "1" + ")" * 100, "n; n", "\x00",
    ],
)  # fmt: skip
def test_what_is_no_condition_is_a_usage_error_and_is_not_run(when: str, counted: Shop) -> None:
    called = counted.call("bisect", "r", "--when", when)
    assert called.code == 2, called.err
    assert called.out == ""
    assert "[E104]" in called.err
    assert "Traceback" not in called.err
    assert not (counted.folder / "pwned").exists()


@pytest.mark.parametrize(
    "when", ["state.__class__ != null", "n.__class__ != null", "words.append != null", "state.items != null", "user.keys != null"]
)
def test_no_attribute_of_python_is_reached(when: str, counted: Shop) -> None:
    assert counted.json("bisect", "r", "--when", when, code=3)["checkpoint"] is None


def test_a_state_that_is_no_mapping_is_named_state(empty: Shop) -> None:
    for text in ("[1]", "[1, 2]", "7"):
        empty.pipe("checkpoint", "r", stdin=text).ok()
    assert empty.json("bisect", "r", "--when", "len(state) == 2")["checkpoint"]["number"] == 2
    assert empty.json("bisect", "r", "--when", "state == 7")["checkpoint"]["number"] == 3


def plan(goal: str, stops: list[int]) -> everstep.Unknown:
    """An object of a type that the command line does not know."""
    return everstep.Unknown("trip.Plan", 1, {"goal": goal, "stops": stops})


@pytest.mark.parametrize(
    ("when", "first"),
    [
        ("plan.goal == 'Rome'", 2), ("state.plan.goal == 'Rome'", 2), ("len(plan.stops) == 3", 3), ("default(plan.goal, 'none') == 'none'", None),
        ("plans[0].goal == 'Rome'", 2), ("state.plans[0].stops[1] == 2", 3), ("plan.name == 'trip.Plan'", None), ("plan.fields != null", None),
    ],
)  # fmt: skip
def test_fields_of_objects_are_named_as_keys_are(when: str, first: int | None, empty: Shop) -> None:
    with everstep.open(empty.path) as store, store.run("r") as run:
        for goal, stops in (("Oslo", []), ("Rome", []), ("Rome", [1, 2, 3])):
            run.state.update(plan=plan(goal, stops), plans=[plan(goal, stops)])
            run.checkpoint()
    data = empty.json("bisect", "r", "--when", when, code=0 if first else 3)
    assert (data["checkpoint"] or {}).get("number") == first


def test_a_state_that_is_an_object_has_its_fields(empty: Shop) -> None:
    with everstep.open(empty.path) as store, store.run("r") as run:
        for goal in ("Oslo", "Rome"):
            run.checkpoint(state=plan(goal, []))
    for when in ("goal == 'Rome'", "state.goal == 'Rome'"):
        assert empty.json("bisect", "r", "--when", when)["checkpoint"]["number"] == 2


def test_it_says_so_if_it_never_holds(counted: Shop) -> None:
    called = counted.call("bisect", "r", "--when", "n > 1000")
    assert (called.code, called.out, called.err) == (3, "", "The condition is not true at any of the 100 checkpoints of r.\n")

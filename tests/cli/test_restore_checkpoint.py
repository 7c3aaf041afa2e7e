"""`Everstep restore | everstep checkpoint --state` keeps every value, whatever its keys and types are."""

from collections import OrderedDict
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from cli_helpers import Shop
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from pace import examples

import everstep
from everstep.codec.values import encode
from everstep.errors import InvalidArgument
from everstep.views.stored.tagged_json import exact, from_json, reconciled
from everstep.views.stored.values import as_json, dumps

STATES: list[Any] = [
    {1: "one", "two": 2, (1, "a"): [None], b"k": {3.5: True}},
    {"k": {1: {"$dict": [["a", 1]]}}, "$bytes": "eA==", "l": [{"$bytes": "eA=="}, {"$dict": [[1, 2]]}, {"$float": "nan"}]},
    {"b": b"\x00\xff", "f": [float("inf"), 1.0, 1], "c": complex(1, float("nan")), "big": 10**40},
    {
        "t": (1, [2], {"s": {1, 2}}),
        "when": datetime(2024, 2, 3, tzinfo=UTC),
        "day": date(2024, 1, 1),
        "d": Decimal("1.50"),
        "p": Path("/x"),
    },
    {"o": OrderedDict(a=(1,)), "u": UUID(int=5), "nested": [{"deep": [(1, 2), {"k": {2: (3,)}}]}]},
]


@pytest.mark.parametrize("state", STATES, ids=range(len(STATES)))
def test_a_state_goes_through_a_pipe_unchanged(empty: Shop, state: Any) -> None:
    with everstep.open(empty.path) as store, store.run("r") as run:
        run.checkpoint(state=state)
    empty.pipe("checkpoint", "r", stdin=empty.pipe("restore", "r").ok().out).ok()
    empty.pipe("checkpoint", "copy", stdin=empty.pipe("restore", "r", "--exact").ok().out).ok()
    with everstep.open(empty.path) as store:
        assert encode(store.load("r")) == encode(store.load("copy")) == encode(state)
        assert store.get("r").checkpoints == 2


def test_a_script_that_changes_a_part_changes_only_that(empty: Shop) -> None:
    with everstep.open(empty.path) as store, store.run("r") as run:
        run.checkpoint(state={"n": 1, "seen": {1: "a"}, "pair": (1, 2), "log": [(1,), (2,)]})
    text = empty.pipe("restore", "r").ok().out.replace('"n": 1', '"n": 2')
    empty.pipe("checkpoint", "r", stdin=text).ok()
    with everstep.open(empty.path) as store:
        assert store.load("r") == {"n": 2, "seen": {1: "a"}, "pair": (1, 2), "log": [(1,), (2,)]}
        assert [str(change) for change in store.diff("r@1", "r@2")] == ["~ ['n']: 1 -> 2"]


scalars = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.binary(max_size=4), st.just((1,)))
keys = st.one_of(st.text(max_size=3), st.integers(0, 3), st.sampled_from(["$bytes", "$dict", "$float", "$value", "$data", (1, 2)]))
states = st.recursive(scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4), max_leaves=12)
words = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=4), st.sampled_from(["eA==", "nan", "inf"])),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "$bytes", "$dict", "$float", "$complex"]), inner, max_size=3)
    ),
    max_leaves=10,
)


@settings(max_examples=examples(400))
@given(states)
def test_exact_json_is_the_value(state: Any) -> None:
    assert encode(from_json(exact(state))) == encode(state)
    assert encode(reconciled(state, as_json(state))) == encode(state)


@settings(max_examples=examples(400))
@given(words)
def test_a_script_gets_back_the_json_that_it_saved(value: Any) -> None:
    try:
        made = from_json(value)
    except InvalidArgument:  # a $dict that has a key twice
        assume(False)
    assert dumps(as_json(made)) == dumps(value)

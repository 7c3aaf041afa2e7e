"""A difference applied to the old value gives the new one, to the byte; so do the changes that people see."""

# ruff: noqa: C901 -- one long choice

import copy
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st
from pace import examples

from everstep.codec.kinds import Unknown
from everstep.codec.values import Decoder, encode
from everstep.snapshot.delta import apply, difference
from everstep.snapshot.diff import between, patch
from everstep.snapshot.untracked import Shadow

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.floats(),
    st.text("ab", max_size=3),
    st.binary(max_size=2),
    st.sampled_from([0.0, -0.0, 1, True, 1.0, "x" * 300]),
)
KEYS = st.one_of(st.sampled_from("abcd"), st.integers(0, 2), st.booleans(), st.tuples(st.integers(0, 1)))
VALUES: st.SearchStrategy[Any] = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=6),
        st.dictionaries(KEYS, inner, max_size=5),
        st.lists(inner, max_size=2).map(tuple),
        st.builds(Unknown, st.sampled_from(["t", "u"]), st.just(1), st.dictionaries(st.sampled_from("fg"), inner)),
    ),
    max_leaves=20,
)


@st.composite
def edited(draw: st.DrawFn) -> tuple[Any, Any]:
    """A value and what became of it: mostly the same, as in life."""
    old = draw(VALUES)
    return old, _edit(draw, copy.deepcopy(old))


def _edit(draw: st.DrawFn, value: Any) -> Any:
    if draw(st.integers(0, 4)) == 0:
        return draw(VALUES)
    if isinstance(value, list):
        value = [_edit(draw, v) if draw(st.booleans()) else v for v in value]
        at = draw(st.integers(0, len(value)))
        how = draw(st.sampled_from(["keep", "insert", "delete", "move", "twice"]))
        if how == "insert":
            value[at:at] = draw(st.lists(VALUES, max_size=3))
        elif how == "delete":
            del value[at : at + draw(st.integers(1, 3))]
        elif how == "move" and value:
            value.append(value.pop(0))
        elif how == "twice":
            value += copy.deepcopy(value)
        return value
    if isinstance(value, dict):
        for key in list(value):
            if draw(st.booleans()):
                value[key] = _edit(draw, value[key])
        how = draw(st.sampled_from(["keep", "add", "delete", "again"]))
        if how == "add":
            value[draw(KEYS)] = draw(VALUES)
        elif value and how == "delete":
            del value[draw(st.sampled_from(list(value)))]
        elif value and how == "again":
            key = draw(st.sampled_from(list(value)))
            value[key] = value.pop(key)
        return value
    if isinstance(value, Unknown):
        return Unknown(value.name, value.version, {name: _edit(draw, field) for name, field in value.fields.items()})
    if isinstance(value, str):
        return value[:3] + "Z" + value[4:]
    return value


def fresh(value: Any) -> Any:
    return Decoder().decode(encode(value))


@settings(max_examples=examples(300))
@given(edited())
@example(({1: "a"}, {True: "a"}))
@example(([0.0], [-0.0]))
@example(({"a": 1, "b": 2}, {"b": 2, "a": 1}))
def test_a_difference_applied_to_the_old_gives_the_new(pair: tuple[Any, Any]) -> None:
    old, new = pair
    ops: list[Any] = []
    difference(fresh(old), fresh(new), (), ops)
    stored = Decoder().decode(encode(ops))
    assert encode(apply(fresh(old), stored)) == encode(new)


@settings(max_examples=examples(300))
@given(edited())
def test_the_changes_between_two_values_patch_one_into_the_other(pair: tuple[Any, Any]) -> None:
    old, new = pair
    changes = between(fresh(old), fresh(new))
    assert encode(patch(fresh(old), changes)) == encode(new)


@settings(max_examples=examples(200))
@given(VALUES)
def test_the_same_value_has_no_difference(value: Any) -> None:
    ops: list[Any] = []
    difference(fresh(value), fresh(value), (), ops)
    assert ops == []
    assert between(fresh(value), fresh(value)) == []


@settings(max_examples=examples(200))
@given(st.lists(edited(), min_size=1, max_size=4))
def test_a_shadow_finds_every_change_of_a_plain_part(pairs: list[tuple[Any, Any]]) -> None:
    now = fresh(pairs[0][0])
    shadow = Shadow(now)
    stored = fresh(now)
    for old, new in pairs:
        for value in (old, new):
            ops: list[Any] = []
            shadow.compare(fresh(value), (), ops)
            stored = apply(stored, Decoder().decode(encode(ops)))
            assert encode(stored) == encode(value)


def test_a_big_plain_part_is_compared_in_pieces_and_no_change_is_missed() -> None:
    import random

    rng = random.Random(5)
    value: Any = {
        "l": [{"i": i, "t": "x" * rng.randint(10, 200)} for i in range(2000)],
        "d": {str(i): "y" * 100 for i in range(1000)},
        "s": "z" * 100_000,
    }
    shadow, stored = Shadow(value), fresh(value)
    for turn in range(60):
        big = value["l"]
        at = rng.randrange(len(big))
        how = turn % 8
        if how == 0:
            big[at]["t"] = "changed"
        elif how == 1:
            del big[at : at + rng.randint(1, 50)]
        elif how == 2:
            big[at:at] = [{"new": turn}] * rng.randint(1, 50)
        elif how == 3:
            value["d"].pop(rng.choice(list(value["d"])))
        elif how == 4:
            value["s"] = value["s"][:at] + "Q" + value["s"][at + 1 :]
        elif how == 5:
            value["d"][f"n{turn}"] = turn
        elif how == 6:
            big.append(big.pop(0))
        else:
            big[at] = "k" * 50_000
        ops: list[Any] = []
        shadow.compare(value, (), ops)
        raw = encode(ops)
        stored = apply(stored, Decoder().decode(raw))
        assert encode(stored) == encode(value), how
        assert len(raw) < 60_000, how


def test_deltas_are_small_where_the_change_is_small() -> None:
    def cost(old: Any, new: Any) -> int:
        ops: list[Any] = []
        difference(old, new, (), ops)
        assert encode(apply(fresh(old), ops)) == encode(new)
        return len(encode(ops))

    items = [{"n": i, "t": f"item {i}"} for i in range(1000)]
    assert cost(items, items[1:]) < 50
    assert cost(items, [*items, {"n": 1}]) < 50
    assert cost(items, [*items[:500], "new", *items[500:]]) < 50
    assert cost(items, [*items[3:400], *items[401:], "x"]) < 100
    text = "word " * 100_000
    assert cost(text, text[:250_000] + "edit" + text[250_000:]) < 50
    assert cost({"a": {"b": text}}, {"a": {"b": "x" + text}}) < 50

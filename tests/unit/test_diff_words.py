"""Changes as a person reads them."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pace import examples

from everstep.codec.values import Decoder, encode
from everstep.snapshot import align
from everstep.snapshot.delta import SET, SPLICE
from everstep.snapshot.diff import Change, between, changes, patch


def test_a_small_dict_that_was_set_as_a_whole_is_told_by_what_differs() -> None:
    found = changes({"a": 1, "b": {"c": [1, 2]}}, [[SET, [], {"a": 1, "b": {"c": [1, 3]}, "d": 5}]])
    assert found == [Change(("b", "c", 1), "changed", 2, 3), Change(("d",), "added", None, 5)]


def test_a_part_that_was_set_as_a_whole_is_told_by_what_differs() -> None:
    found = changes({"x": {"k": 1, "l": 2}}, [[SET, ["x"], {"k": 1}], [SET, ["y"], {"z": 1}]])
    assert found == [Change(("x", "l"), "removed", 2, None), Change(("y",), "added", None, {"z": 1})]


def test_what_became_something_else_is_told_as_a_whole() -> None:
    assert changes({"x": [1]}, [[SET, ["x"], {"0": 1}]]) == [Change(("x",), "changed", [1], {"0": 1})]
    assert changes([1], [[SET, [], {"a": 1}]]) == [Change((), "changed", [1], {"a": 1})]


def test_a_key_that_moved_is_told_as_a_move() -> None:
    found = changes({"a": 1, "b": 2, "c": 3}, [[SET, [], {"c": 3, "a": 1, "b": 2}]])
    assert found == [Change(("c",), "moved", 2, 0)]
    assert str(found[0]) == "> ['c']: order 2 -> 0"


def test_many_keys_that_moved_are_told_as_another_order() -> None:
    old = {f"k{i}": i for i in range(60)}
    new = dict(reversed(old.items()))
    assert between(old, new) == [Change((), "moved", list(old), list(new))]


def test_what_was_set_to_what_it_was_is_no_change() -> None:
    assert changes({"x": 1.5, "l": [1, 2]}, [[SET, ["x"], 1.5], [SPLICE, ["l"], 0, 2, [1, 2]]]) == []


def test_equal_neighbours_give_the_fewest_changes() -> None:
    assert changes({"l": [1, 1, 2]}, [[SPLICE, ["l"], 0, 2, [1]]]) == [Change(("l", 1), "removed", 1, None)]
    assert between(["a", "a", "b", "b"], ["a", "b", "a", "b", "b"]) == [Change((1,), "added", None, "b")]


values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(0, 3), st.sampled_from([1.5, float("nan"), "a", "b" * 200, b"x", (1, [2])])),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.sampled_from(["a", "b", "c", "d", 1, (1,)]), inner, max_size=6),
    max_leaves=20,
)


@settings(max_examples=examples(400))
@given(values, values)
def test_changes_applied_to_the_old_give_the_new(old: Any, new: Any) -> None:
    found = between(old, new)
    assert encode(patch(Decoder().decode(encode(old)), found)) == encode(new)
    assert bool(found) == (encode(old) != encode(new))


@settings(max_examples=examples(300))
@given(st.lists(st.sampled_from("abc"), max_size=9), st.lists(st.sampled_from("abc"), max_size=9))
def test_a_list_is_told_with_the_fewest_changes(old: list[str], new: list[str]) -> None:
    assert len(between(old, new)) == levenshtein(old, new)


def levenshtein(a: list[str], b: list[str]) -> int:
    if not a or not b:
        return len(a) + len(b)
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        before, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            before, row[j] = row[j], min(before + (x != y), row[j] + 1, row[j - 1] + 1)
    return row[-1]


def test_long_lists_are_told_too(monkeypatch: pytest.MonkeyPatch) -> None:
    old = [{"n": n, "t": "same"} for n in range(2000)]
    new = [*old[:500], {"n": "new"}, *old[501:1500], *old[1510:], "end"]
    found = between(old, new)
    assert len(found) == 1 + 10 + 1 + 1
    assert patch(Decoder().decode(encode(old)), found) == new
    monkeypatch.setattr(align, "MOST_CELLS", 9)
    for a, b in (([1, 2, 3, 4, 5, 5, 5], [5, 5, 1, 2, 9, 4]), ([1, 1, 1, 1, 1], [2, 2, 2, 2, 2, 2])):
        assert patch(list(a), between(a, b)) == b

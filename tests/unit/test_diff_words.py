"""Changes as a person reads them."""

from everstep.snapshot.delta import SET
from everstep.snapshot.diff import Change, changes


def test_a_small_dict_that_was_set_as_a_whole_is_told_by_what_differs() -> None:
    found = changes({"a": 1, "b": {"c": [1, 2]}}, [[SET, [], {"a": 1, "b": {"c": [1, 3]}, "d": 5}]])
    assert found == [Change(("b", "c", 1), "changed", 2, 3), Change(("d",), "added", None, 5)]


def test_a_part_that_was_set_as_a_whole_is_told_by_what_differs() -> None:
    found = changes({"x": {"k": 1, "l": 2}}, [[SET, ["x"], {"k": 1}], [SET, ["y"], {"z": 1}]])
    assert found == [Change(("x", "l"), "removed", 2, None), Change(("y",), "added", None, {"z": 1})]


def test_what_became_something_else_is_told_as_a_whole() -> None:
    assert changes({"x": [1]}, [[SET, ["x"], {"0": 1}]]) == [Change(("x",), "changed", [1], {"0": 1})]
    assert changes([1], [[SET, [], {"a": 1}]]) == [Change((), "changed", [1], {"a": 1})]


def test_keys_in_another_order_are_a_change() -> None:
    found = changes({"a": 1, "b": 2}, [[SET, [], {"b": 2, "a": 1}]])
    assert [(change.path, change.kind) for change in found] == [((), "changed")]

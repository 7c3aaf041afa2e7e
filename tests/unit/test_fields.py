"""Classes that are their fields are in all that matters what dataclasses are."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import everstep
from everstep.codec.values import decode, encode
from everstep.fields import Shape, as_dict, field, replace


class Ours(Shape):
    a: int
    b: str = "b"
    c: list[int] = field(default_factory=list)
    d: int = 0


@dataclasses.dataclass(slots=True)
class Theirs:
    a: int
    b: str = "b"
    c: list[int] = dataclasses.field(default_factory=list)
    d: int = 0


class Fixed(Shape, frozen=True):
    x: Any
    y: int = 0
    secret: int = field(default_factory=int, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.y < 0:
            object.__setattr__(self, "y", 0)


class Nothing(Shape, frozen=True):
    """No field at all."""


values = st.one_of(st.integers(), st.text(max_size=3), st.lists(st.integers(), max_size=2), st.floats())
arguments = st.lists(values, max_size=5)
named = st.dictionaries(st.sampled_from(["a", "b", "c", "d", "e"]), values, max_size=5)


def outcome(cls: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    try:
        made = cls(*args, **kwargs)
    except TypeError as error:
        return str(error).replace("Theirs", "Ours")
    return repr(made).replace("Theirs", "Ours"), dataclasses.asdict(made), dataclasses.replace(made).c is made.c


@given(arguments, named)
def test_they_are_made_and_shown_as_dataclasses_are(args: list[Any], kwargs: dict[str, Any]) -> None:
    assert str(outcome(Ours, args, kwargs)) == str(outcome(Theirs, args, kwargs))


@given(values, values)
def test_two_are_equal_where_dataclasses_are(one: Any, other: Any) -> None:
    assert (Ours(one) == Ours(other)) == (Theirs(one) == Theirs(other))
    assert Ours(one) != Theirs(one)
    assert (Fixed(one, secret=1) == Fixed(one, secret=2)) == (Theirs(one) == Theirs(one))


def test_a_default_that_is_made_belongs_to_one_instance() -> None:
    Ours(1).c.append(1)
    assert Ours(1).c == []
    given: list[int] = []
    assert Ours(1, c=given).c is given


def test_what_is_frozen_stays_as_it_is_and_can_be_hashed() -> None:
    fixed = Fixed(1, -3)
    assert fixed == Fixed(1)
    assert len({fixed, Fixed(1), Fixed(2)}) == 2
    with pytest.raises(dataclasses.FrozenInstanceError, match="'x' of a Fixed"):
        fixed.x = 2  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        del fixed.x
    with pytest.raises(TypeError, match="unhashable"):
        hash(Ours(1))


def test_there_is_no_room_for_other_names() -> None:
    with pytest.raises(AttributeError):
        Ours(1).e = 1  # type: ignore[attr-defined]


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one)), replace, dataclasses.replace])
@pytest.mark.parametrize("one", [Ours(1, "x", [2]), Fixed((1,), 2, 3), Nothing()])
def test_a_copy_is_equal(one: Any, again: Any) -> None:
    other = again(one)
    assert (other, type(other), repr(other)) == (one, type(one), repr(one))


def test_some_fields_can_be_others_in_a_copy() -> None:
    assert replace(Fixed(1, 2, 3), y=4) == Fixed(1, 4) == dataclasses.replace(Fixed(1, 2), y=4)
    with pytest.raises(TypeError, match="'z'"):
        replace(Fixed(1), z=4)


def test_dataclasses_know_them() -> None:
    known: list[Any] = [Ours, Ours(1)]
    assert [dataclasses.is_dataclass(one) for one in known] == [True, True]
    ours, theirs = dataclasses.fields(Ours), dataclasses.fields(Theirs)
    assert [(f.name, f.type, f.default, f.default_factory) for f in ours] == [
        (f.name, f.type, f.default, f.default_factory) for f in theirs
    ]
    assert [(f.name, f.repr, f.compare) for f in dataclasses.fields(Fixed)][2] == ("secret", False, False)
    assert dataclasses.asdict(Fixed([Ours(1)]))["x"] == [{"a": 1, "b": "b", "c": [], "d": 0}]


def test_their_signature_is_that_of_their_fields() -> None:
    assert list(inspect.signature(Ours).parameters) == ["a", "b", "c", "d"]
    assert str(inspect.signature(everstep.Retry)).startswith("(attempts=")


def test_they_can_be_matched() -> None:
    match Fixed(1, 2):
        case Fixed(x, y):
            assert (x, y) == (1, 2)
        case _:
            raise AssertionError


def test_a_class_of_the_program_may_add_to_one() -> None:
    class More(Fixed, frozen=True):
        z: int = 7

    class Same(Fixed, frozen=True):
        def double(self) -> Any:
            return self.x * 2

    assert (More(1, 2, z=3), as_dict(More(1))) == (More(1, 2, z=3), {"x": 1, "y": 0, "secret": 0, "z": 7})
    assert More(1) != Fixed(1)
    assert (Same(3).double(), hash(Same(3)) == hash(Same(3))) == (6, True)


def test_the_store_takes_them_for_dataclasses() -> None:
    everstep.register(Fixed, name="tests:Fixed")
    assert decode(encode(Fixed([1], 2, 3))) == Fixed([1], 2)

"""Attributes of an instance that are no fields of its type are kept, not dropped."""

from collections import Counter, OrderedDict, namedtuple
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import msgspec
import pydantic
import pytest

import everstep
from everstep.codec.values import decode, encode
from everstep.errors import Unstorable


@everstep.register
@dataclass
class Plan:
    goal: str
    steps: list[str] = field(default_factory=list)

    @cached_property
    def count(self) -> int:
        return len(self.steps)


class Base:
    __slots__ = ("__hidden", "token")


@everstep.register
@dataclass
class Slotted(Base):
    name: str


@everstep.register
@dataclass(slots=True)
class Tight:
    name: str


@everstep.register
class Wider(Plan):
    """No dataclass itself: its own attributes are no fields."""


@everstep.register
class Open(msgspec.Struct, dict=True):
    name: str


@everstep.register
class Closed(msgspec.Struct):
    name: str


class Point(NamedTuple):
    x: int


@everstep.register
class Named(Point):
    pass


@everstep.register
class Model(pydantic.BaseModel):
    name: str

    @cached_property
    def upper(self) -> str:
        return self.name.upper()


@everstep.register
class Loose(pydantic.BaseModel, extra="allow"):
    name: str


@pytest.mark.parametrize(
    "made", [Plan("a"), Wider("a"), Slotted("a"), Open("a"), Named(1), Loose(name="a")], ids=lambda v: type(v).__name__
)
def test_an_attribute_that_is_no_field_comes_back(made: Any) -> None:
    made.note = {"by": ["hand"]}
    back = decode(encode(made))
    assert type(back) is type(made)
    assert back == made
    assert back.note == {"by": ["hand"]}
    assert encode(back) == encode(made)


def test_slots_of_a_base_come_back() -> None:
    made = Slotted("a")
    made.token = "t"
    made._Base__hidden = 3  # type: ignore[attr-defined]
    back = decode(encode(made))
    assert (back.name, back.token, back._Base__hidden) == ("a", "t", 3)


def test_a_cached_property_is_computed_again_and_not_stored() -> None:
    plan, model = Plan("a", ["x"]), Model(name="a")
    bare = encode(plan), encode(model)
    assert (plan.count, model.upper) == (1, "A")
    assert (encode(plan), encode(model)) == bare
    assert decode(encode(plan)).count == 1
    assert decode(encode(model)).upper == "A"


def test_what_has_no_extra_attribute_is_stored_as_before() -> None:
    for made in (Plan("a"), Tight("a"), Closed("a"), Named(1), Model(name="a"), namedtuple("P", "x")(1)):
        assert b"__extra__" not in encode(made)
        assert decode(encode(made)) == made


def test_a_change_of_one_is_a_change_of_the_state() -> None:
    store = everstep.open("memory://", checking=True)
    plan = Plan("a")
    with store.run("r") as run:
        run.state["plan"] = plan
        run.checkpoint()
        plan.note = "first"  # type: ignore[attr-defined]
        run.checkpoint()
        plan.note = "second"  # type: ignore[attr-defined]
        run.checkpoint()
    assert [getattr(store.load("r", at=n)["plan"], "note", None) for n in (1, 2, 3)] == [None, "first", "second"]


def test_one_that_cannot_be_stored_is_refused_with_its_path() -> None:
    store = everstep.open("memory://")
    plan = Plan("a")
    plan.socket = object()  # type: ignore[attr-defined]
    run = store.run("r").__enter__()
    run.state["plan"] = plan
    with pytest.raises(Unstorable, match="socket"):
        run.checkpoint()


@pytest.mark.parametrize("kind", [OrderedDict, Counter])
def test_attributes_of_an_ordered_dict_or_counter_are_refused_not_dropped(kind: type) -> None:
    held = kind({"a": 1})
    store = everstep.open("memory://")
    with store.run("r") as run:
        run.state["plain"] = {"deep": [(held,)]}
        run.checkpoint()
        held.note = "x"
        with pytest.raises(
            Unstorable, match=rf"state\['plain'\]\['deep'\]\[0\]\[0\] has attributes \('note'\), which a stored {kind.__name__} cannot keep"
        ):
            run.checkpoint()
        with pytest.raises(Unstorable, match="has attributes"):
            run.step("s", lambda: held)
        del held.note
    assert type(store.load("r")["plain"]["deep"][0][0]) is kind


@pytest.mark.parametrize("base", [dict, list, set, tuple, str, int, bytes, OrderedDict])
def test_a_subclass_of_a_container_is_refused_until_it_is_registered(base: type) -> None:
    with pytest.raises(Unstorable, match="is a Mine, which cannot be stored"):
        encode(type("Mine", (base,), {})())

"""`everstep fork --set` of a typed state: the command line does not know the class, and edits the fields by their names."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

import pytest
from cli_helpers import Shop


class Mood(Enum):
    GOOD = "good"
    BAD = "bad"


@dataclass(frozen=True)
class Item:
    name: str
    price: float


@dataclass
class Basket:
    goal: str = "bread"
    items: list[Item] = field(default_factory=lambda: [Item("bread", 2.5)])
    more: dict[str, int] = field(default_factory=lambda: {"bags": 1})
    mood: Mood = Mood.GOOD
    note: str | None = None


@pytest.fixture(params=["class unknown", "class known"])
def basket(empty: Shop, request: pytest.FixtureRequest) -> Shop:
    with empty.open() as store, store.run("b", state=Basket()) as run:
        run.checkpoint()
    if request.param == "class unknown":
        empty.call = empty.pipe  # type: ignore[method-assign]
    return empty


def state(shop: Shop, run: str) -> Basket:
    with shop.open() as store, store.run(run, state=Basket()) as opened:
        return opened.state


def test_fields_items_and_keys_are_set(basket: Shop) -> None:
    basket.call("fork", "b@1", "c", "--set", "goal=milk", "--set", "items[0].price=3.5", "--set", "more.bags=2", "--set", "note=fresh").ok()
    assert state(basket, "c") == Basket("milk", [Item("bread", 3.5)], {"bags": 2}, Mood.GOOD, "fresh")
    assert state(basket, "b") == Basket()
    assert "goal" in basket.call("diff", "b@1", "c@1").out


def test_a_key_of_a_dict_in_a_field_is_removed_and_a_field_is_not(basket: Shop) -> None:
    basket.call("fork", "b@1", "c", "--unset", "more.bags").ok()
    assert state(basket, "c").more == {}
    refused = basket.call("fork", "b@1", "d", "--unset", "goal")
    assert refused.code == 2
    assert "'goal' cannot be removed: it is a field of an object" in refused.err


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("gaol=milk", "Fields of this object: goal, items, more, mood, note."),
        ("items[0].prize=1", "Fields of this object: name, price."),
        ("items[7].price=1", "the state has no 7"),
        ("goal.x=1", "'x' cannot be changed: it is inside a value of type str"),
        ("mood=BAD", "'mood' is an object, and cannot become 'BAD'"),
    ],
)
def test_wrong_paths_and_values_are_refused_and_make_no_run(basket: Shop, change: str, said: str) -> None:
    called = basket.call("fork", "b@1", "c", "--set", change)
    assert called.code == 2, called.out
    assert said in called.err
    with basket.open() as store:
        assert [run.id for run in store.runs()] == ["b"]

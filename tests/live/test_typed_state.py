"""A state may be an instance of a class: a dataclass, a pydantic model, a msgspec Struct. It comes back as that class, and changes by field."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import pydantic
import pytest
import warm

import everstep
from everstep.codec import kinds
from everstep.errors import InvalidArgument, TypeConflict


@dataclass
class Item:
    name: str
    count: int = 1


@dataclass
class Basket:
    owner: str = ""
    items: list[Item] = field(default_factory=list)
    prices: dict[str, int] = field(default_factory=dict)
    best: Item | None = None


class ModelItem(pydantic.BaseModel):
    name: str
    count: int = 1


class ModelBasket(pydantic.BaseModel):
    owner: str = ""
    items: list[ModelItem] = []
    prices: dict[str, int] = {}
    best: ModelItem | None = None


class StructItem(msgspec.Struct):
    name: str
    count: int = 1


class StructBasket(msgspec.Struct):
    owner: str = ""
    items: list[StructItem] = []
    prices: dict[str, int] = {}
    best: StructItem | None = None


@dataclass(frozen=True)
class Frozen:
    n: int = 0
    names: tuple[str, ...] = ()
    text: str = ""


KINDS: dict[str, tuple[Any, Any]] = {
    "dataclass": (Basket, Item),
    "pydantic": (ModelBasket, ModelItem),
    "msgspec": (StructBasket, StructItem),
}


@pytest.fixture(params=KINDS)
def pair(request: pytest.FixtureRequest) -> tuple[Any, Any]:
    return KINDS[request.param]


@pytest.fixture(autouse=True)
def new_process() -> None:
    forget()


def forget() -> None:
    """Forget all classes that were not registered by hand, as another process would not know them."""
    for cls in [cls for cls, kind in kinds._by_type.items() if not kind.explicit]:
        del kinds._by_name[kinds._by_type.pop(cls).name]


def fill(state: Any, item: Any) -> None:
    state.owner = "eva"
    state.items.append(item(name="tea", count=2))
    state.prices["tea"] = 3
    state.best = item(name="milk")


def test_a_state_comes_back_as_its_class_in_another_process(store: everstep.Store, pair: tuple[Any, Any]) -> None:
    basket, item = pair
    with store.run("r", state=basket()) as run:
        fill(run.state, item)
        run.checkpoint()
    forget()
    with store.run("r", state=basket()) as run:
        assert type(run.state) is basket
        assert type(run.state.items[0]) is type(run.state.best) is item
        assert run.state.items[0].count == 2
        run.state.items[0].count = 5
        run.checkpoint()
    assert type(store.load("r")) is basket
    assert store.load("r").items[0].count == 5
    assert store.load("r@1").items[0].count == 2


def test_changes_in_lists_dicts_and_nested_models_are_saved_field_by_field(store: everstep.Store, pair: tuple[Any, Any]) -> None:
    basket, item = pair
    with store.run("r", state=basket()) as run:
        fill(run.state, item)
        run.checkpoint()
        run.state.items[0].count = 7
        run.checkpoint()
        run.state.prices["milk"] = 2
        run.state.items.append(item(name="milk"))
        run.checkpoint()
        run.checkpoint()
    changes = [[(change.path, change.kind) for change in store.diff(f"r@{n}", f"r@{n + 1}")] for n in (1, 2, 3)]
    assert changes[0] == [(("items", 0, "count"), "changed")]
    assert sorted(changes[1]) == [(("items", 1), "added"), (("prices", "milk"), "added")]
    assert changes[2] == []
    assert store.blame("r", ["items", 0, "count"]).number == 2
    assert store.blame("r", ["prices", "milk"]).number == 3
    assert store.blame("r", ["owner"]).number == 1


def test_a_small_change_of_a_big_state_writes_little(store: everstep.Store, pair: tuple[Any, Any]) -> None:
    basket, item = pair
    with store.run("r", state=basket()) as run:
        run.state.items.extend(item(name=f"item {n}", count=n) for n in range(2_000))
        run.checkpoint()
        before = store.get("r").stored_bytes
        run.state.items[1_000].count = -1
        run.checkpoint()
        assert store.get("r").stored_bytes - before < 1_000
    assert store.load("r").items[1_000].count == -1


def test_without_the_class_the_fields_are_there_and_can_be_saved_again(store: everstep.Store, pair: tuple[Any, Any]) -> None:
    basket, item = pair
    with store.run("r", state=basket()) as run:
        fill(run.state, item)
    forget()
    found = store.load("r")
    assert type(found) is everstep.Unknown
    assert found.fields["owner"] == "eva"
    assert found.fields["items"][0].fields["count"] == 2
    with store.run("r") as run:
        run.state.fields["owner"] = "bob"
    forget()
    with store.run("r", state=basket()) as run:
        assert (type(run.state), run.state.owner) == (basket, "bob")


def test_a_fork_has_the_class_and_its_fields_can_be_set(store: everstep.Store, pair: tuple[Any, Any]) -> None:
    basket, item = pair
    with store.run("r", state=basket()) as run:
        fill(run.state, item)
    store.fork("r", "known", edit={"owner": "bob"})
    forget()
    store.fork("r", "unknown", edit={"owner": "zoe"})
    with pytest.raises(InvalidArgument, match="no field 'onwer'"):
        store.fork("r", "wrong", edit={"onwer": "x"})
    for fork, owner in (("known", "bob"), ("unknown", "zoe")):
        with store.run(fork, state=basket()) as run:
            assert (type(run.state), run.state.owner, run.state.items[0].name) == (basket, owner, "tea")


def test_a_frozen_state_is_replaced_and_still_changes_by_field(store: everstep.Store) -> None:
    with store.run("r", state=Frozen(text="x" * 5_000)) as run:
        run.checkpoint()
        before = store.get("r").stored_bytes
        run.state = replace(run.state, n=1, names=("a",))
        run.checkpoint()
        assert store.get("r").stored_bytes - before < 1_000
    assert sorted(change.path for change in store.diff("r@1", "r@2")) == [("n",), ("names",)]
    forget()
    with store.run("r", state=Frozen()) as run:
        assert run.state == Frozen(1, ("a",), "x" * 5_000)
        run.state = Frozen(2)
    assert store.load("r") == Frozen(2)


def named(cls: Any, name: str) -> Any:
    cls.__module__, cls.__qualname__, cls.__name__ = "elsewhere", name, name
    return cls


def test_a_class_with_a_new_field_takes_its_default(store: everstep.Store) -> None:
    @dataclass
    class Before:
        n: int = 0

    @dataclass
    class After:
        n: int = 0
        more: list[int] = field(default_factory=list)

    with store.run("r", state=named(Before, "State")(3)) as run:
        run.checkpoint()
    forget()
    with store.run("r", state=named(After, "State")()) as run:
        assert run.state == After(3, [])
        run.state.more.append(1)
    assert store.load("r") == After(3, [1])
    assert store.load("r@1") == After(3, [])


def test_a_class_without_a_stored_field_is_refused_and_nothing_is_lost(store: everstep.Store) -> None:
    @dataclass
    class Before:
        n: int = 0
        old: str = "kept"

    @dataclass
    class After:
        n: int = 0

    with store.run("r", state=named(Before, "State")(3)) as run:
        run.checkpoint()
    forget()
    with pytest.raises(TypeConflict, match="has no field 'old'"), store.run("r", state=named(After, "State")()):
        pass
    assert store.get("r").checkpoints == 1
    everstep.register(After, version=2, upgrades={1: lambda old: {"n": old["n"]}})
    try:
        with store.run("r", state=After()) as run:
            assert run.state == After(3)
            run.state.n = 4
        assert store.load("r") == After(4)
    finally:
        del kinds._by_name[kinds._by_type.pop(After).name]


def test_a_class_that_moved_to_another_module_is_found_by_its_name(store: everstep.Store) -> None:
    @dataclass
    class Main:
        basket: Item
        n: int = 0

    Main.__module__ = "__main__"
    with store.run("r", state=Main(Item("tea"))) as run:
        run.checkpoint()
        run.state.n = 1
    forget()
    Main.__module__ = "shop.states"
    with store.run("r", state=Main(Item(""))) as run:
        assert run.state == Main(Item("tea"), 1)
        run.state.n = 2
    assert store.load("r") == Main(Item("tea"), 2)
    assert store.verify("full").ok


def test_another_class_is_refused(store: everstep.Store) -> None:
    with store.run("r", state=Basket("eva")) as run:
        run.checkpoint()
    for forgotten in (False, True):
        if forgotten:
            forget()
        with pytest.raises(TypeConflict, match="opened it with a Frozen"), store.run("r", state=Frozen()):
            pass
    with store.run("list", state=[1]) as run:
        run.checkpoint()
    with pytest.raises(TypeConflict, match="is a stored list"), store.run("list", state=Frozen()):
        pass
    assert store.get("r").status == "succeeded"


@pytest.mark.parametrize(("cls", "fits"), [(Frozen, True), (ModelBasket, True), (StructBasket, True), (Basket, False)])
def test_a_dict_becomes_the_class_that_the_program_has_now_if_it_fits(store: everstep.Store, cls: Any, fits: bool) -> None:
    old: dict[str, Any] = {"n": 5, "text": "t"} if cls is Frozen else {"owner": "eva", "items": [{"name": "tea", "count": 2}]}
    with store.run("r", state=old) as run:
        run.checkpoint()
    if not fits:  # a dataclass cannot tell what its inner dicts are
        with pytest.raises(TypeConflict), store.run("r", state=cls()):
            pass
        return
    with store.run("r", state=cls()) as run:
        assert type(run.state) is cls
        run.checkpoint()
    assert type(store.load("r")) is cls
    if cls is not Frozen:
        assert store.load("r").items[0].count == 2


def test_a_dict_that_does_not_fit_is_refused_with_the_reason(store: everstep.Store) -> None:
    with store.run("r", state={"owner": 5, "itmes": []}) as run:
        run.checkpoint()
    for cls in (ModelBasket, StructBasket, Frozen):
        with pytest.raises(TypeConflict, match="does not fit"), store.run("r", state=cls()):
            pass
    assert store.load("r") == {"owner": 5, "itmes": []}


def test_the_given_state_is_copied_and_not_warned_about(store: everstep.Store, recwarn: pytest.WarningsRecorder) -> None:
    mine = Basket("eva", [Item("tea")])
    with store.run("r", state=mine) as run:
        run.state.items[0].count = 9
        run.checkpoint()
    assert mine.items[0].count == 1
    assert [str(one.message) for one in recwarn if "everstep.register" in str(one.message)] == []


def test_the_state_can_be_read_after_the_block(store: everstep.Store) -> None:
    with store.run("r", state=Basket()) as run:
        run.state.owner = "eva"
    assert run.state.owner == "eva"
    assert run.number == 1
    with pytest.raises(everstep.EverstepError):
        run.state = Basket()
    with store.run("r", state=Basket()) as run:
        assert run.state.owner == "eva"


def test_a_masked_store_keeps_the_class_and_hides_the_secret(tmp_path: Any) -> None:
    @dataclass
    class Login:
        user: str = ""
        password: str = ""

    from everstep.redact import MASK, Redactor

    with everstep.open("memory://", redaction=Redactor.default()) as store:
        with store.run("r", state=Login()) as run:
            run.state.user, run.state.password = "eva", "hunter2-hunter2"
            run.checkpoint()
            assert run.state.password == "hunter2-hunter2"
        assert store.load("r") == Login("eva", MASK)


def test_an_async_run_and_one_that_is_off_have_typed_states(store: everstep.Store) -> None:
    async def main() -> None:
        async with store.run("r", state=Basket()) as run:
            run.state.items.append(Item("tea"))
            await run.checkpoint()
        assert run.state.items == [Item("tea")]

    asyncio.run(main())
    assert store.load("r").items == [Item("tea")]
    with everstep.open(enabled=False) as off, off.run("r", state=Basket("eva")) as run:
        assert run.state == Basket("eva")


def test_the_command_line_shows_the_fields_without_the_class(tmp_path: Any) -> None:
    with everstep.open(tmp_path / "s.db") as store, store.run("r", state=Basket("eva", [Item("tea")])) as run:
        run.checkpoint()
        run.state.items[0].count = 4
    for arguments, words in ((["state", "r"], ("eva", "tea")), (["diff", "r@1", "r"], ("items", "count", "4"))):
        done = warm.run(
            [sys.executable, "-m", "everstep", *arguments, "--store", str(tmp_path / "s.db")], capture_output=True, text=True, timeout=60
        )
        assert all(word in done.stdout for word in words), done.stdout + done.stderr

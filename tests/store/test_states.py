"""Many states in one walk: the same states that loading them one by one gives, each a value of its own unless they may share."""

import asyncio
import random
from typing import Any

import pytest

import everstep
from everstep.backends.wrap import Counted
from everstep.codec.values import encode
from everstep.errors import InvalidArgument, NotFound, RunDeleted


def filled(store: everstep.Store, n: int = 150, seed: int = 0) -> None:
    """A run whose states change in every way that a delta can say."""
    chance = random.Random(seed)
    line = store.line("r", state={"items": [], "text": "x" * 600, "deep": {"a": {"b": [1]}}})
    for i in range(n):
        state = line.state
        state["items"].append({"i": i, "tags": ["t"]})
        if chance.random() < 0.3:
            chance.choice(state["items"])["i"] = -i
        if chance.random() < 0.2:
            del state["items"][chance.randrange(len(state["items"]))]
        if chance.random() < 0.2:
            state["text"] += "y" * chance.randrange(50)
        if chance.random() < 0.2:
            state["deep"]["a"]["b"].append((i, {"t": [i]}))
            state["deep"][f"k{i}"] = {1, i}
        if chance.random() < 0.05:
            line.state = {"items": [], "text": "z" * 600, "deep": {"a": {"b": [i]}}}
        line.checkpoint(f"note {i}", tags=f"t{i}")


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("newest_first", [True, False])
def test_a_walk_gives_the_states_that_loads_give(places: Any, newest_first: bool, shared: bool) -> None:
    store = places.open()
    filled(store)
    store.tag("r@70", "later")
    for first, last in ((None, None), (1, 1), (150, 150), (1, 3), (40, 120), (149, None), (None, 2)):
        found = list(store.states("r", first=first, last=last, newest_first=newest_first, shared=shared))
        numbers = list(range(first or 1, (last or 150) + 1))
        assert [made.number for made, _ in found] == (numbers[::-1] if newest_first else numbers)
        for made, state in found[:: max(1, len(found) // 12)]:
            assert encode(state) == encode(store.load(made.ref)), made.ref
            assert made == store.checkpoint(made.ref)
            assert (made.note, made.tags) == (store.checkpoint(made.ref).note, store.checkpoint(made.ref).tags)


def test_states_are_values_of_their_own_unless_they_may_share(places: Any) -> None:
    store = places.open()
    filled(store, 20)
    own = [state for _, state in store.states("r")]
    for state in own:
        before = [encode(other) for other in own if other is not state]
        state["items"].append(1)
        state["deep"]["a"]["b"].append(1)
        for item in state["items"]:
            if isinstance(item, dict):
                item["tags"].append("changed")
        assert [encode(other) for other in own if other is not state] == before
    shared = [state for _, state in store.states("r", shared=True)]
    assert shared[0]["items"][0] is shared[1]["items"][0]


def test_objects_of_the_program_come_back(places: Any) -> None:
    import dataclasses

    @dataclasses.dataclass
    class Point:
        x: int

    everstep.register(Point, name="states.Point")
    store = places.open()
    line = store.line("r", state={"p": [Point(0)], "t": (Point(9),)})
    for n in range(1, 60):
        line.state["p"].append(Point(n))
        line.state["p"][0].x = n
        line.checkpoint()
    for shared in (True, False):
        for made, state in store.states("r", shared=shared, first=40):
            assert state == store.load(made.ref)
            assert type(state["p"][3]) is Point


def test_a_walk_reads_each_base_once(places: Any) -> None:
    store = places.open()
    filled(store, 60)
    store.backend = Counted(store.backend)  # type: ignore[assignment]
    list(store.states("r", first=20))
    assert sum(store.backend.calls.values()) < 40  # type: ignore[attr-defined]


def test_pruned_states_are_left_out(places: Any) -> None:
    store = places.open()
    filled(store, 120)
    store.prune(everstep.Retention(keep_last=3, keep_tagged=["t50", "t51", "t90"]), run="r")
    kept = [c.number for c in store.checkpoints("r") if not c.pruned]
    assert [made.number for made, _ in store.states("r")] == kept
    assert [made.number for made, _ in store.states("r", newest_first=False)] == kept[::-1]
    for made, state in store.states("r"):
        assert encode(state) == encode(store.load(made.ref))


def test_wrong_numbers_are_refused_at_once(places: Any) -> None:
    store = places.open()
    store.line("r").checkpoint()
    for wrong in (0, 2, -1):
        with pytest.raises(NotFound):
            store.states("r", first=wrong)
    with pytest.raises(InvalidArgument):
        store.states("r", last="1")  # type: ignore[arg-type]
    with pytest.raises(NotFound):
        store.states("nobody")
    with store.run("empty"):
        pass
    assert list(store.states("empty")) == []


def test_a_run_that_is_deleted_in_the_middle_is_reported(places: Any) -> None:
    store = places.open()
    filled(store, 150)
    walk: Any = store.states("r")
    next(walk)
    store.delete("r")
    with pytest.raises(RunDeleted):
        list(walk)


def test_an_async_walk_gives_the_same_states(places: Any) -> None:
    store = places.open()
    filled(store, 40)

    async def main() -> None:
        async with places.open() as awaited:
            found = [(made.number, state) async for made, state in await awaited.states("r", first=3, newest_first=False)]
            assert found == [(made.number, state) for made, state in store.states("r", first=3, newest_first=False)]
            with pytest.raises(NotFound):
                await awaited.states("absent")

    asyncio.run(main())

"""When an async workflow has ended, none of the tasks that it left behind begins a step that had not ended before."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from situations import Kills, World

import everstep
from everstep.errors import RunClosed

world = World()


async def astep(name: str, seconds: float = 0.0) -> Any:
    return await everstep.current().step(name, world.ado, name, 1, seconds)


@everstep.workflow
async def trip() -> Any:
    return await asyncio.gather(astep("car"), astep("hotel", 0.3))


@everstep.workflow
async def left_behind() -> Any:
    task = asyncio.create_task(astep("hotel", 0.3))
    await astep("car")
    return task.done()


def killed_in_the_hotel(flow: Any) -> Any:
    """A store in which `car` has ended and `hotel` was called."""
    world.calls = []
    with everstep.open("memory://") as store:
        kills = Kills(store, world)
        store.start(flow, id="r")
    return next(kill for kill in kills.found if kill.calls == ["car", "hotel"] and has_ended(kill, "car#0"))


def has_ended(kill: Any, address: str) -> bool:
    with kill.open() as store:
        return store.get("r").status == "running" and any(step.address == address and step.status != "running" for step in store.steps("r"))


def test_a_replayed_failure_ends_the_program_before_its_other_steps_begin() -> None:
    world.broken = {"car": 1}
    kill = killed_in_the_hotel(trip)
    with kill.open() as store:
        outcome = store.resume("r")
        assert (outcome.status, world.calls[len(kill.calls) :].count("hotel")) == ("failed", 0)
        assert store.resume("r").unwrap() == ["car", "hotel"]
        assert world.calls.count("hotel") == kill.calls.count("hotel") + 1


def test_a_task_that_is_left_behind_begins_nothing_after_the_end() -> None:
    world.broken = {}
    world.calls = []
    with everstep.open("memory://") as store:
        kills = Kills(store, world)
        store.start(left_behind, id="r")
    kill = next(kill for kill in kills.found if kill.place != "before 0" and has_ended(kill, "car#0"))
    with kill.open() as store:
        world.calls = []
        assert store.resume("r").unwrap() is False
        assert world.calls == []


def test_tasks_that_are_left_behind_end_with_the_run() -> None:
    """Also in a loop that lives on: nothing waits for ever."""
    world.broken = {"car": 1}
    kill = killed_in_the_hotel(trip)

    async def resumed() -> int:
        async with kill.open() as store:
            before = asyncio.all_tasks()
            outcome = await store.resume("r")
            assert outcome.status == "failed"
            for _ in range(20):
                await asyncio.sleep(0)
            return len(asyncio.all_tasks() - before)

    assert asyncio.run(resumed()) == 0


def test_a_step_that_is_asked_for_after_the_run_was_closed_is_refused() -> None:
    """It does not wait for ever."""
    kept: list[Any] = []

    @everstep.workflow
    async def short() -> None:
        kept.append(everstep.current())

    async def asked_late() -> Any:
        async with everstep.open("memory://") as store:
            await store.start(short, id="r")
            return await asyncio.wait_for(kept[0].step("late", world.ado, "late"), 5)

    with pytest.raises(RunClosed):
        asyncio.run(asked_late())


@pytest.fixture(autouse=True)
def _fresh() -> None:
    world.calls, world.broken = [], {}

"""Several runs in one commit: all appends of a block are made, or none."""

# ruff: noqa: PT012 -- a block that raises is a block

import asyncio
import threading
from contextlib import suppress
from typing import Any

import pytest

import everstep
from everstep.errors import Conflict, InvalidArgument, LeaseHeld


def test_a_block_is_one_commit(places: Any) -> None:
    store: everstep.Store = places.open()
    lines = [store.line(name) for name in "abc"]
    writes = store.backend.manifest().writes
    with store.together():
        for line in lines:
            line.state["n"] = 1
            line.checkpoint()
            line.state["n"] = 2
            line.checkpoint("second")
            line.attach(2, "x", line.id)
        assert store.runs() == []
    assert store.backend.manifest().writes <= writes + 3
    assert [store.load(name) for name in "abc"] == [{"n": 2}] * 3
    assert [one.value for one in store.attached("b")] == ["b"]
    lines[0].state["n"] = 3
    assert lines[0].checkpoint().number == 3
    assert store.verify("full").ok


def test_a_conflict_of_one_line_makes_none_of_the_commits(places: Any) -> None:
    store: everstep.Store = places.open()
    a, b = store.line("a"), store.line("b")
    a.checkpoint()
    b.checkpoint()
    places.open().line("b").checkpoint(state={"by": "other"})
    with pytest.raises(Conflict) as caught, store.together():
        a.state["n"] = 1
        assert a.checkpoint().number == 2
        b.state["n"] = 1
        b.checkpoint()
    assert caught.value.number == 2
    assert (store.get("a").checkpoints, a.number, b.number, b.state) == (1, 1, 2, {"by": "other"})
    with store.together():
        a.checkpoint()
        b.checkpoint()
    assert (store.load("a"), store.load("b")) == ({"n": 1}, {"by": "other"})
    assert store.verify("full").ok


def test_a_block_that_raises_writes_nothing(places: Any) -> None:
    store: everstep.Store = places.open()
    a = store.line("a")
    with pytest.raises(ValueError, match="no"), store.together():
        a.state["n"] = 1
        a.checkpoint()
        raise ValueError("no")
    assert (a.exists, a.number, store.runs()) == (False, 0, [])
    a.checkpoint()
    assert store.load("a") == {"n": 1}


def test_a_run_that_is_driven_elsewhere_refuses_the_block(places: Any) -> None:
    store: everstep.Store = places.open()
    a, b = store.line("a"), store.line("b")
    a.checkpoint()
    b.checkpoint()
    other = places.open()
    handle = other.run("b")
    import threading

    ready, done = threading.Event(), threading.Event()

    def drive() -> None:
        with handle:
            ready.set()
            done.wait(30)

    thread = threading.Thread(target=drive)
    thread.start()
    ready.wait(30)
    with pytest.raises(LeaseHeld), store.together():
        a.checkpoint()
        b.checkpoint()
    done.set()
    thread.join()
    assert store.get("a").checkpoints == 1


def test_blocks_of_tasks_do_not_mix(places: Any) -> None:
    async def main() -> None:
        async with places.open() as store:

            async def work(name: str, fails: bool) -> None:
                one, two = await store.line(f"{name}1"), await store.line(f"{name}2")
                async with store.together():
                    await one.checkpoint()
                    await asyncio.sleep(0)
                    await two.checkpoint()
                    if fails:
                        raise ValueError

            await asyncio.gather(work("a", False), work("b", True), work("c", False), return_exceptions=True)
            assert sorted(run.id for run in await store.runs()) == ["a1", "a2", "c1", "c2"]

    asyncio.run(main())


def test_a_fork_takes_the_entries_of_its_checkpoint_along(places: Any) -> None:
    store: everstep.Store = places.open()
    line = store.line("r")
    line.checkpoint()
    line.checkpoint()
    line.attach(1, "first", 1)
    line.attach(2, "small", 1)
    line.attach(2, "small", 2, replace=True)
    line.attach(2, "big", ["y" * 300] * 100)
    fork = store.fork("r@2", "fork")
    assert [(one.number, one.name) for one in store.attached(fork.id)] == [(1, "small"), (1, "big")]
    assert store.attached("fork")[0].value == 2
    store.delete("r")
    store.gc()
    assert len(store.attached("fork", 1)[1].value) == 100
    assert store.verify("full").ok


def test_a_task_that_outlives_the_block_saves_at_once(places: Any) -> None:
    async def main() -> None:
        async with places.open() as store:
            inside, late = await store.line("inside"), await store.line("late")
            ended = asyncio.Event()

            async def save() -> int:
                await ended.wait()
                async with store.together():  # a block of its own, not a part of the one that has ended
                    await late.checkpoint(state={"n": 1})
                return (await late.checkpoint(state={"n": 2})).number

            async with store.together():
                await inside.checkpoint()
                task = asyncio.create_task(save())
            ended.set()
            assert await task == 2
            assert await store.load("late") == {"n": 2}
            assert (await store.verify("full")).ok

    asyncio.run(main())


def test_a_line_is_not_refreshed_while_its_appends_wait(places: Any) -> None:
    store = places.open()
    line = store.line("r")
    line.checkpoint(state={"n": 0})
    with store.together():
        line.checkpoint(state={"n": 1})
        assert not line.refresh()
        assert line.answers() == []
        line.checkpoint(state={"n": 2})
    assert (store.load("r"), store.get("r").checkpoints) == ({"n": 2}, 3)
    assert store.verify("full").ok


def test_a_line_that_was_used_outside_of_the_block_is_refused_in_it(places: Any) -> None:
    store = places.open()
    line = store.line("r")
    line.checkpoint(state={"n": 0})
    with pytest.raises(InvalidArgument, match="outside of this"), store.together():
        line.checkpoint(state={"n": 1})
        thread = threading.Thread(target=lambda: line.refresh())
        thread.start()
        thread.join()
        line.checkpoint(state={"n": 2})
    assert (store.load("r"), store.get("r").checkpoints) == ({"n": 0}, 1)
    line.refresh()
    assert line.checkpoint(state={"n": 3}).number == 2
    assert store.verify("full").ok


@pytest.mark.parametrize("exists", [True, False])
def test_questions_in_a_block_are_asked_once(places: Any, exists: bool) -> None:
    store = places.open()
    line = store.line("r")
    if exists:
        line.checkpoint()
    with store.together():
        first = line.ask("boss", "Go?")
        assert (first.address, first.ask, first.open) == ("boss#0", "Go?", True)
        assert line.ask("boss", "Go?") == first
    assert [gate.address for gate in store.gates("r")] == ["boss#0"]
    store.answer("r", "boss", True)
    with store.together():
        assert [gate.answer for gate in line.answers()] == [gate.answer for gate in line.answers()] == [True]
    assert [(gate.address, gate.answer) for gate in store.gates("r")] == [("boss#0", True)]
    assert store.verify("full").ok


def test_a_block_inside_that_raised_takes_the_outer_one_along(places: Any) -> None:
    store, other = places.open(), everstep.open("memory://")
    one, two = store.line("one"), store.line("two")
    with pytest.raises(InvalidArgument, match="inside this one raised"), store.together():
        one.checkpoint()
        with suppress(ValueError), other.together(), store.together():
            two.checkpoint()
            raise ValueError
    assert store.runs() == []
    with store.together():
        one.checkpoint()
        with other.together(), store.together():
            two.checkpoint()
        assert store.runs() == []
    assert sorted(info.id for info in store.runs()) == ["one", "two"]

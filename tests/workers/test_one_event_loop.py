"""Async workflows of a worker share one event loop."""

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from worker_helpers import Working

import everstep
from everstep.queues import crew
from everstep.testing.waiting import until

Start = Callable[..., Working]


def test_runs_share_a_lock_of_asyncio(store: everstep.Store, working: Start) -> None:
    turns = asyncio.Lock()  # like a client: it belongs to the first loop that it has to wait in

    async def take_turns(number: int) -> int:
        async with turns:
            await asyncio.sleep(0.01)
        return await everstep.current().step("work", asyncio.sleep, 0.0, number)

    everstep.workflow(take_turns, name="take turns")
    jobs = [store.enqueue("take turns", number) for number in range(8)]
    working(store)
    assert [job.wait(60).unwrap() for job in jobs] == list(range(8))


def test_a_thousand_waiting_runs_need_at_most_twenty_threads(tmp_path: Any, working: Start) -> None:
    go: list[asyncio.Event] = []
    inside: list[int] = []

    async def wait(number: int) -> int:
        run = everstep.current()
        if not go:
            go.append(asyncio.Event())
        inside.append(number)
        return await run.step("wait", _wait_for, go[0], number, key=number)

    async def _wait_for(event: asyncio.Event, number: int) -> int:
        await event.wait()
        return number

    everstep.workflow(wait, name="wait for all")
    before = threading.active_count()
    with everstep.open(str(tmp_path / "store.db"), policy=everstep.every(seconds=60)) as store:
        jobs = [store.enqueue("wait for all", number) for number in range(1000)]
        one = working(store, concurrency=1000)
        until(lambda: len(inside) == 1000)
        threads = threading.active_count() - before
        assert len(one.worker.jobs) == 1000
        assert threads <= 20, [thread.name for thread in threading.enumerate()]
        loop = go[0]._loop  # type: ignore[attr-defined]
        loop.call_soon_threadsafe(go[0].set)
        assert [job.wait(60).unwrap() for job in jobs] == list(range(1000))
        one.stop()


def test_a_task_that_exits_ends_its_run_alone(store: everstep.Store, working: Start) -> None:
    async def leave() -> None:
        raise SystemExit(3)

    async def rude() -> None:
        await asyncio.gather(leave(), asyncio.sleep(0.01))

    async def patient() -> str:
        await asyncio.sleep(0.3)
        return await everstep.current().step("work", asyncio.sleep, 0.0, "done")

    everstep.workflow(rude, name="rude")
    everstep.workflow(patient, name="patient")
    good, bad = store.enqueue("patient"), store.enqueue("rude")
    working(store)
    assert type(bad.wait(60).error).__name__ == "ExitInWorkflow"
    assert good.wait(60).unwrap() == "done"


def test_plain_steps_of_async_runs_do_not_keep_others_from_beginning_and_ending(store: everstep.Store, working: Start) -> None:
    go = threading.Event()

    async def slow() -> bool:
        return await everstep.current().step("wait", go.wait, 60)

    async def quick() -> str:
        return await everstep.current().step("work", asyncio.sleep, 0.0, "quick")

    everstep.workflow(slow, name="slow")
    everstep.workflow(quick, name="quick")
    slow_ones = [store.enqueue("slow") for _ in range(30)]
    working(store, concurrency=40)
    assert store.enqueue("quick").wait(60).unwrap() == "quick"
    assert not any(job.status == "succeeded" for job in slow_ones)
    go.set()
    assert all(job.wait(60).unwrap() for job in slow_ones)


def test_a_worker_that_stops_gives_back_async_runs_that_are_in_no_step(store: everstep.Store, working: Start) -> None:
    seen: list[str] = []

    async def dawdle() -> str:
        seen.append("begun")
        if len(seen) == 1:
            await asyncio.sleep(600)
        return "done"

    everstep.workflow(dawdle, name="dawdle")
    job = store.enqueue("dawdle")
    first = working(store)
    until(lambda: seen)
    began = time.monotonic()
    first.stop()
    assert time.monotonic() - began < 60
    assert first.seen("given back", run=job.id)
    working(store)
    assert job.wait(60).unwrap() == "done"


def test_a_blocking_call_is_named(store: everstep.Store, working: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crew, "BLOCKED_SECONDS", 0.2)
    go = threading.Event()

    async def block() -> str:
        go.wait(60)  # instead of a step
        return "done"

    everstep.workflow(block, name="block")
    job = store.enqueue("block")
    one = working(store)
    until(lambda: one.seen("blocked"))
    go.set()
    assert job.wait(60).unwrap() == "done"
    (told,) = one.seen("blocked")
    assert "test_one_event_loop.py" in told["where"]
    assert "block" in told["where"]

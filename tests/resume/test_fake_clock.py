"""Advancing the fake clock wakes sleepers, in threads and in asyncio; a sleep that nothing else can end does not hang."""

import asyncio
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

import everstep
from everstep.testing.clock import FakeClock


@pytest.fixture
def store() -> Iterator[everstep.Store]:
    with everstep.open("memory://") as store:
        yield store


def within(seconds: float, function: Any) -> Any:
    """Call a function in a thread: a hang fails the test instead of stopping it."""
    box: list[Any] = []
    thread = threading.Thread(target=lambda: box.append(function()), daemon=True)
    thread.start()
    thread.join(seconds)
    assert box, "it hangs"
    return box[0]


@everstep.workflow(name="short")
def short() -> str:
    everstep.sleep(0.5)
    return "awake"


@everstep.workflow(name="ashort")
async def ashort() -> str:
    await everstep.sleep(0.5)
    return "awake"


@pytest.mark.parametrize("flow", [short, ashort])
def test_a_short_sleep_moves_the_clock_where_nothing_else_can(store: everstep.Store, flow: Any) -> None:
    def work() -> Any:
        with FakeClock() as clock:
            before = clock.now_us()
            return store.start(flow, id="r").unwrap(), clock.now_us() - before

    got, passed = within(10, work)
    assert got == "awake"
    assert 500_000 <= passed < 600_000


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_long_sleep_of_an_own_loop_does_not_hang(store: everstep.Store, kind: str) -> None:
    async def aloop() -> None:
        async with store.run("r") as run:
            await run.sleep(3600)

    def work() -> str:
        with FakeClock():
            if kind == "async":
                asyncio.run(aloop())
            else:
                with store.run("r") as run:
                    run.sleep(3600)
        return "over"

    assert within(10, work) == "over"


def test_advancing_wakes_a_thread_at_once(store: everstep.Store) -> None:
    done = threading.Event()

    def loop() -> None:
        with store.run("r") as run:
            run.sleep(3600)
        done.set()

    with FakeClock() as clock:
        thread = threading.Thread(target=loop, daemon=True)
        thread.start()
        assert not done.wait(0.4)
        clock.advance(1800)
        assert not done.wait(0.2)
        began = time.monotonic()
        clock.advance(1801)
        assert done.wait(5)
        assert time.monotonic() - began < 2
        thread.join(5)


def test_advancing_wakes_tasks(store: everstep.Store) -> None:
    async def loop() -> str:
        async with store.run("r") as run:
            await run.sleep(3600)
        return "over"

    async def main() -> str:
        with FakeClock() as clock:
            task = asyncio.create_task(loop())
            await asyncio.sleep(0.3)
            assert not task.done()
            clock.advance(3601)
            return await asyncio.wait_for(task, 5)

    assert within(20, lambda: asyncio.run(main())) == "over"


def test_a_step_wins_against_a_timer_while_no_time_passes(store: everstep.Store) -> None:
    @everstep.workflow(name="race")
    async def flow() -> str:
        run = everstep.current()
        step = asyncio.ensure_future(run.step("work", lambda: time.sleep(0.2) or "step"))
        timer = asyncio.ensure_future(run.sleep(0.9))
        done, left = await asyncio.wait({step, timer}, return_when=asyncio.FIRST_COMPLETED)
        for one in left:
            one.cancel()
        return "step" if step in done else "timer"

    def work() -> Any:
        with FakeClock():
            return store.start(flow, id="r").unwrap()

    assert within(20, work) == "step"


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_wait_between_attempts_follows_the_clock(store: everstep.Store, kind: str) -> None:
    tries: list[int] = []

    def flaky() -> str:
        tries.append(1)
        if len(tries) < 3:
            raise ValueError("no")
        return "good"

    retry = everstep.Retry(attempts=3, delay=30, max_delay=60)

    @everstep.workflow(name="retries")
    def flow() -> str:
        return str(everstep.current().step("flaky", flaky, retry=retry))

    @everstep.workflow(name="aretries")
    async def aflow() -> str:
        return str(await everstep.current().step("flaky", flaky, retry=retry))

    def work() -> Any:
        with FakeClock():
            return store.start(flow if kind == "sync" else aflow, id="r").unwrap()

    assert within(10, work) == "good"


def test_a_retry_in_a_thread_of_map_waits_no_longer_than_without_the_clock(store: everstep.Store) -> None:
    tries: list[int] = []

    @everstep.step(retry=everstep.Retry(attempts=2, delay=0.05))
    def flaky(n: int) -> int:
        tries.append(n)
        if tries.count(n) < 2:
            raise ValueError("no")
        return n

    def work() -> Any:
        with FakeClock(), store.run("r") as run:
            return run.map(flaky, [1, 2, 3])

    assert within(10, work) == [1, 2, 3]


def test_the_real_clock_still_sleeps(store: everstep.Store) -> None:
    began = time.monotonic()
    with store.run("r") as run:
        run.sleep(0.15)
    assert 0.14 < time.monotonic() - began < 2

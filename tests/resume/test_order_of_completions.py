"""An async program that decides by which of its tasks ends first takes the same way on resume."""

import asyncio
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import everstep


@pytest.fixture
def store() -> Iterator[everstep.Store]:
    with everstep.open("memory://") as store:
        yield store
        assert store.verify("full").ok


calls: list[Any] = []


class Killed(BaseException):
    """Stands for a process that died: nothing of it is recorded as an error."""


async def work(name: int, delay: float) -> int:
    calls.append(name)
    await asyncio.sleep(delay)
    return name


async def note(name: int) -> int:
    calls.append(f"note {name}")
    return name


async def first_come(delays: list[float]) -> list[int]:
    run, order = everstep.current(), []
    for next_one in asyncio.as_completed([run.step("work", work, n, delay) for n, delay in enumerate(delays)]):
        name = await next_one
        order.append(await run.step("note", note, name))
    return order


async def one_by_one(delays: list[float]) -> list[int]:
    run, order = everstep.current(), []
    left = {asyncio.ensure_future(run.step("work", work, n, delay)) for n, delay in enumerate(delays)}
    while left:
        done, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
        for one in sorted(done, key=lambda task: task.result()):
            order.append(await run.step("note", note, one.result()))
    return order


async def through_wrappers(delays: list[float]) -> list[int]:
    """Some results pass through more tasks than others before the program sees them."""
    run = everstep.current()

    async def wrapped(n: int, delay: float) -> int:
        task: Any = run.step("work", work, n, delay)
        for _ in range(n % 3):
            task = asyncio.ensure_future(task)
        return int(await task)

    order = []
    tasks = [asyncio.create_task(wrapped(n, delay)) for n, delay in enumerate(delays)]  # as_completed begins coroutines in any order
    for next_one in asyncio.as_completed(tasks):
        order.append(await run.step("note", note, await next_one))
    return order


async def a_queue_of_results(delays: list[float]) -> list[int]:
    run, queue, order = everstep.current(), asyncio.Queue[int](), []

    async def produce(n: int, delay: float) -> None:
        await queue.put(await run.step("work", work, n, delay))

    tasks = [asyncio.ensure_future(produce(n, delay)) for n, delay in enumerate(delays)]
    for _ in delays:
        order.append(await run.step("note", note, await queue.get()))
    await asyncio.gather(*tasks)
    return order


PROGRAMS = [first_come, one_by_one, through_wrappers, a_queue_of_results]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
@pytest.mark.parametrize("seed", range(4))
def test_completions_are_handed_out_in_recorded_order(store: everstep.Store, program: Callable[[list[float]], Any], seed: int) -> None:
    calls.clear()
    seen: list[list[int]] = []
    delays = [random.Random(seed).random() * 0.05 for _ in range(6)]

    @everstep.workflow(name=program.__name__)
    async def flow() -> list[int]:
        seen.append(await program(delays))
        await everstep.gate("ok")
        return seen[-1]

    assert store.start(flow, id="r").status == "waiting"
    called = list(calls)
    store.answer("r", "ok", "yes")
    again = store.resume("r")
    assert again.status == "succeeded", again.error
    assert seen[0] == seen[1] == again.result
    assert calls == called
    assert sorted(seen[0]) == list(range(6))


def test_new_steps_end_after_what_was_recorded(store: everstep.Store) -> None:
    """The process died when one of two racing steps had ended: the other one can't win on resume, however fast it is."""
    calls.clear()
    crash, kill = [True], [True]

    async def slow() -> str:
        calls.append("slow")
        if crash.pop() if crash else False:
            await asyncio.sleep(60)
        return "slow"

    async def fast() -> str:
        calls.append("fast")
        return "fast"

    @everstep.workflow
    async def race() -> str:
        run = everstep.current()
        tasks = [asyncio.ensure_future(run.step("slow", slow)), asyncio.ensure_future(run.step("fast", fast))]
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        winner = next(iter(done)).result()
        if kill:
            raise Killed(kill.pop())
        return str(winner)

    with pytest.raises(Killed):
        store.start(race, id="r")
    assert store.resume("r").unwrap() == "fast"
    assert calls.count("fast") == 1


def test_steps_that_changed_code_no_longer_asks_for_do_not_hold_up_the_others(store: everstep.Store) -> None:
    old = [True]

    async def give(n: int) -> int:
        return n

    @everstep.workflow
    async def flow() -> list[int]:
        run = everstep.current()
        names = [f"old {n}" if old[0] else f"new {n}" for n in range(30)]
        found = await asyncio.gather(
            *(run.step(name, give, n) for n, name in enumerate(names)), *(run.step(f"same {n}", give, n) for n in range(30))
        )
        await everstep.gate("ok")
        return list(found)

    assert store.start(flow, id="r").status == "waiting"
    old[0] = False
    store.answer("r", "ok", 1)
    again = store.resume("r")
    assert again.result == [*range(30), *range(30)]
    assert again.report.executed == 30
    assert again.report.seconds < 20

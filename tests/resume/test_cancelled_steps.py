"""A step that the program cancelled is recorded as such: a resume takes the same way, and does not call it again."""

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import everstep
from everstep.errors import NonDeterminism
from everstep.runtime.tasks import completions

calls: list[Any] = []


class Killed(BaseException):
    """Stands for a process that died: nothing of it is recorded as an error."""


@pytest.fixture
def store() -> Iterator[everstep.Store]:
    calls.clear()
    with everstep.open("memory://") as store:
        yield store
        assert store.verify("full").ok


async def work(name: str, seconds: float = 0.0) -> str:
    calls.append(name)
    await asyncio.sleep(seconds)
    return name


def resumed(store: everstep.Store, flow: Any) -> Any:
    """Drive a workflow to its gate, answer it, and resume; nothing may be called that was called before."""
    first = store.start(flow, id="r")
    assert first.status == "waiting", first.error or first.result
    called = list(calls)
    store.answer("r", "ok", "yes")
    again = store.resume("r")
    assert again.status == "succeeded", again.error
    assert calls == called
    return again.result


def test_a_timeout_around_a_step_is_replayed(store: everstep.Store) -> None:
    @everstep.workflow
    async def flow() -> str:
        run = everstep.current()
        try:
            async with asyncio.timeout(0.1):
                found = await run.step("slow", work, "slow", 30)
        except TimeoutError:
            found = await run.step("other", work, "other")
        await everstep.gate("ok")
        return str(found)

    assert resumed(store, flow) == "other"
    (slow, _) = store.steps("r")
    assert (slow.address, slow.status) == ("slow#0", "failed")
    assert slow.error is not None
    assert slow.error["type"] == "asyncio.CancelledError"


def test_wait_for_is_replayed_too(store: everstep.Store) -> None:
    @everstep.workflow
    async def flow() -> str:
        try:
            found = await asyncio.wait_for(everstep.current().step("slow", work, "slow", 30), 0.1)
        except TimeoutError:
            found = "late"
        await everstep.gate("ok")
        return str(found)

    assert resumed(store, flow) == "late"


def test_the_loser_of_a_race_loses_again_and_is_not_paid_twice(store: everstep.Store) -> None:
    @everstep.workflow
    async def flow() -> str:
        run = everstep.current()
        tasks = [asyncio.ensure_future(run.step(name, work, name, seconds)) for name, seconds in (("a", 30), ("b", 0.05), ("c", 30))]
        done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)
        await everstep.gate("ok")
        return str(done.pop().result())

    assert resumed(store, flow) == "b"


def test_a_step_that_ended_when_it_was_cancelled_stays_cancelled(store: everstep.Store) -> None:
    """The result was on its way to the disk; the program saw the cancellation."""

    @everstep.workflow
    async def flow() -> str:
        run = everstep.current()
        task = asyncio.ensure_future(run.step("a", work, "a"))
        while not calls:
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        found = await asyncio.gather(task, return_exceptions=True)
        await run.step("after", work, "after")
        await everstep.gate("ok")
        return type(found[0]).__name__

    store.start(flow, id="r")
    called = list(calls)
    seen = "str" if store.steps("r")[-2].status == "succeeded" else "CancelledError"
    store.answer("r", "ok", "yes")
    assert store.resume("r").result == seen
    assert calls == called


@pytest.mark.parametrize("group", ["gather", "TaskGroup"])
def test_a_gate_beside_a_step_lets_it_finish(store: everstep.Store, group: str) -> None:
    @everstep.workflow
    async def flow() -> list[Any]:
        run = everstep.current()
        if group == "gather":
            return list(await asyncio.gather(run.step("model", work, "model", 0.2), everstep.gate("ok")))
        async with asyncio.TaskGroup() as tasks:
            both = [tasks.create_task(run.step("model", work, "model", 0.2)), tasks.create_task(everstep.gate("ok"))]
        return [task.result() for task in both]

    assert resumed(store, flow) == ["model", "yes"]
    assert calls == ["model"]


def test_the_question_can_be_answered_while_another_step_runs(store: everstep.Store) -> None:
    @everstep.workflow
    async def flow() -> list[Any]:
        async def answer() -> str:
            while not store.gates("r"):
                await asyncio.sleep(0.01)
            await asyncio.to_thread(store.answer, "r", "ok", "now")
            await asyncio.sleep(1.5)
            return "answered"

        return list(await asyncio.gather(everstep.gate("ok"), everstep.current().step("answer", answer)))

    assert store.start(flow, id="r").unwrap() == ["now", "answered"]


def test_steps_that_a_failed_sibling_cancelled_run_again_with_it(store: everstep.Store) -> None:
    broken = [True]

    async def fail() -> str:
        await asyncio.sleep(0.01)
        if broken:
            raise OSError("down")
        return "up"

    @everstep.workflow
    async def flow() -> list[str]:
        run = everstep.current()
        async with asyncio.TaskGroup() as tasks:
            both = [tasks.create_task(run.step("slow", work, "slow", 0.2)), tasks.create_task(run.step("fail", fail))]
        return [task.result() for task in both]

    assert store.start(flow, id="r").status == "failed"
    broken.clear()
    assert store.resume("r").unwrap() == ["slow", "up"]


def test_a_program_that_no_longer_cancels_is_refused(store: everstep.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(completions, "GRACE", 0.3)
    patient = [False]

    @everstep.workflow
    async def flow() -> str:
        try:
            async with asyncio.timeout(None if patient[0] else 0.05):
                return str(await everstep.current().step("slow", work, "slow", 30))
        except TimeoutError:
            await everstep.gate("ok")
            return "late"

    assert store.start(flow, id="r").status == "waiting"
    patient[0] = True
    store.answer("r", "ok", "yes")
    again = store.resume("r")
    assert isinstance(again.error, NonDeterminism)
    assert "cancelled" in str(again.error)
    assert calls == ["slow"]


def test_a_run_that_is_stopped_from_outside_runs_its_step_again(store: everstep.Store) -> None:
    @everstep.workflow
    async def flow() -> str:
        return str(await everstep.current().step("slow", work, "slow", 0.5 if len(calls) else 30))

    async def main() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(store.start(flow, id="r"), 0.1)

    asyncio.run(main())
    assert store.resume("r").unwrap() == "slow"
    assert calls == ["slow", "slow"]


@pytest.mark.parametrize("seconds", [0.2, 1.3])
def test_a_gate_raced_against_a_timer_ends_with_the_timer(store: everstep.Store, seconds: float) -> None:
    @everstep.workflow
    async def flow() -> str:
        gate, timer = asyncio.ensure_future(everstep.gate("ok")), asyncio.ensure_future(everstep.sleep(seconds))
        done, pending = await asyncio.wait({gate, timer}, return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()
        return str(gate.result()) if gate in done else "late"

    first = store.start(flow, id="r")
    if seconds > 1:
        assert first.status == "waiting"
        time.sleep(seconds)
        (first,) = store.wake()
    assert first.unwrap() == "late"
    (gate,) = store.gates("r")
    assert gate.cancelled
    assert not gate.answered


def test_the_answer_wins_the_race_if_it_comes_first(store: everstep.Store) -> None:
    @everstep.workflow
    async def flow() -> str:
        gate, timer = asyncio.ensure_future(everstep.gate("ok")), asyncio.ensure_future(everstep.sleep(1.2))
        done, pending = await asyncio.wait({gate, timer}, return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()
        found = str(gate.result()) if gate in done else "late"
        await everstep.gate("after")
        return found

    assert store.start(flow, id="r").status == "waiting"
    store.answer("r", "ok", "yes")
    assert store.resume("r").status == "waiting"
    time.sleep(1.3)  # the timer would be over by now
    store.answer("r", "after", 1)
    assert store.resume("r").unwrap() == "yes"


def test_a_timer_that_lost_a_race_stays_lost(store: everstep.Store) -> None:
    @everstep.workflow
    async def flow() -> str:
        run = everstep.current()
        step, timer = asyncio.ensure_future(run.step("fast", work, "fast")), asyncio.ensure_future(everstep.sleep(0.5))
        done, pending = await asyncio.wait({step, timer}, return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()
        found = "timer" if timer in done else str(step.result())
        await everstep.gate("ok")
        return found

    assert store.start(flow, id="r").status == "waiting"
    time.sleep(0.6)
    store.answer("r", "ok", 1)
    assert store.resume("r").unwrap() == "fast"


def test_children_that_wait_let_other_tasks_finish(store: everstep.Store) -> None:
    @everstep.workflow
    async def child() -> Any:
        return await everstep.gate("ok")

    @everstep.workflow
    async def flow() -> list[Any]:
        return list(await asyncio.gather(child(), everstep.current().step("model", work, "model", 0.2)))

    assert store.start(flow, id="r").status == "waiting"
    assert calls == ["model"]
    store.answer("r.child.0", "ok", "yes")
    assert store.resume("r").unwrap() == ["yes", "model"]
    assert calls == ["model"]


@pytest.mark.parametrize("wait", ["gate", "timer"])
@pytest.mark.parametrize("how", ["resume", "retry"])
def test_a_wait_that_a_failed_sibling_cancelled_begins_again_with_it(store: everstep.Store, wait: str, how: str) -> None:
    broken = [True]

    async def fail() -> str:
        await asyncio.sleep(0.02)
        if broken:
            raise OSError("down")
        return "up"

    @everstep.workflow
    async def flow() -> list[Any]:
        try:
            async with asyncio.TaskGroup() as tasks:
                waits = everstep.gate("ok") if wait == "gate" else everstep.sleep(0.2)
                both = [tasks.create_task(waits), tasks.create_task(everstep.current().step("fail", fail))]
        except* OSError:
            if how == "retry":
                await everstep.current().step("undo", work, "undo")
            raise
        return [task.result() for task in both]

    assert store.start(flow, id="r").status == "failed"
    broken.clear()
    if how == "retry":
        store.retry("r", "fail")
    again = store.resume("r")
    if wait == "gate":
        assert again.status == "waiting", again
        store.answer("r", "ok", "yes")
        again = store.resume("r")
    assert again.unwrap() == ["yes" if wait == "gate" else None, "up"]


# tasks that had not begun


def waits_by_a_step(run: Any) -> Any:
    return run.step("pre", asyncio.sleep, 0.02)


def waits_by_a_step_that_fails(run: Any) -> Any:
    return asyncio.gather(run.step("pre", fail_soon), return_exceptions=True)


def waits_by_a_timer(run: Any) -> Any:
    return run.sleep(0.02)


def waits_by_a_checkpoint(run: Any) -> Any:
    return run.checkpoint()


async def fail_soon() -> None:
    await asyncio.sleep(0.01)
    raise ValueError


WAYS_TO_WAIT = [(wait, depth) for wait in (waits_by_a_step, waits_by_a_step_that_fails, waits_by_a_timer) for depth in (0, 1, 12)]
WAYS_TO_WAIT += [(waits_by_a_checkpoint, 0), (waits_by_a_checkpoint, 1)]  # its commit may be faster than 12 tasks begin


async def long() -> None:
    await asyncio.sleep(30)


@pytest.mark.parametrize(("wait", "depth"), WAYS_TO_WAIT, ids=lambda one: getattr(one, "__name__", str(one)))
def test_a_task_that_began_while_the_program_waited_begins_again_before_the_wait_ends(
    store: everstep.Store, wait: Callable[[Any], Any], depth: int
) -> None:
    """A replayed wait takes no time. The task that the program cancels after it must all the same have begun, as it had."""
    broken, ways = [True, True], []

    @everstep.workflow(name=f"r3 begins {wait.__name__} {depth}")
    async def flow() -> None:
        run, seen = everstep.current(), []

        async def one(deep: int) -> None:
            if deep:
                return await asyncio.create_task(one(deep - 1))
            try:
                await run.step("car", long)
            except asyncio.CancelledError:
                seen.append("car")
                raise

        task = asyncio.create_task(one(depth))
        await wait(run)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await run.step(f"saw {seen}", asyncio.sleep, 0)
        ways.append(list(seen))
        await run.step("last", last)

    async def last() -> None:
        if broken:
            broken.pop()
            raise ValueError("last")

    store.start(flow, id="r")
    store.resume("r")
    assert store.resume("r").status == "succeeded"
    assert ways == [["car"]] * 3
    assert [step.name for step in store.steps("r") if step.name.startswith("saw")] == ["saw ['car']"]


def test_tasks_begin_before_a_wait_ends_that_takes_no_time(store: everstep.Store) -> None:
    """An answer that has come, a deadline that is over, a step that is skipped: live they end at once, on replay they are recorded ends."""
    broken, ways = [True], []

    @everstep.workflow(name="r3 at once")
    async def flow() -> None:
        run = everstep.current()
        for wait in (
            lambda: run.gate("ok"),
            lambda: run.gate("now", condition=True),
            lambda: run.sleep(0),
            lambda: run.step("skipped", long),
        ):
            seen: list[int] = []

            async def one(seen: list[int] = seen) -> None:
                seen.append(1)

            task = asyncio.create_task(one())
            await wait()
            await run.step(f"saw {seen}", asyncio.sleep, 0)
            await task
        ways.append([step.name for step in store.steps("r") if step.name.startswith("saw")])
        if broken:
            broken.pop()
            raise ValueError

    assert store.start(flow, id="r").status == "waiting"
    store.answer("r", "ok", 1)
    store.skip("r", "skipped")
    assert store.resume("r").status == "failed"
    assert store.resume("r").status == "succeeded"
    assert ways == [["saw [1]"] * 4] * 2


def test_a_retry_keeps_what_was_recorded_after_the_failure(store: everstep.Store) -> None:
    broken = [True]

    async def fail() -> str:
        if broken:
            raise OSError("down")
        return "up"

    async def refuse() -> None:
        await work("refuse", 0.02)
        raise ValueError("no")

    @everstep.workflow
    async def flow() -> list[Any]:
        run = everstep.current()
        steps = run.step("fail", fail), run.step("beside", work, "beside", 0.02), run.step("refuse", refuse)
        ends = await asyncio.gather(*steps, return_exceptions=True)
        for end in ends:
            if isinstance(end, OSError):
                await run.step("undo", work, "undo")
                raise end
        return [end if isinstance(end, str) else type(end).__name__ for end in ends]

    assert store.start(flow, id="r").status == "failed"
    called = ["beside", "refuse", "undo"]
    assert calls == called
    broken.clear()
    store.retry("r", "fail")
    assert store.resume("r").unwrap() == ["up", "beside", "ValueError"]
    assert calls == called, "only the step that was named ran again"

"""A child run whose caller cancels the call is cancelled, once, also if the process dies in between. It runs again only with its caller."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

import everstep
from everstep.errors import IllegalTransition, NotFound
from everstep.runtime.waits import control as operate

calls: list[str] = []
fails: list[str] = []
CHILD = "r.f1-child.0"


class Killed(BaseException):
    """Stands for a process that died: nothing of it is recorded as an error."""


@pytest.fixture(autouse=True)
def _fresh() -> None:
    calls.clear()
    fails.clear()


async def work(name: str, seconds: float = 0.0) -> str:
    calls.append(name)
    await asyncio.sleep(seconds)
    if name in fails:
        raise ValueError(name)
    return name


def wait_at_gate(name: str = "f1-child") -> Any:
    @everstep.workflow(name=name)
    async def child() -> Any:
        await everstep.current().step("before", work, "before")
        answer = await everstep.gate("ok")
        return await everstep.current().step("after", work, f"after {answer}")

    return child


def wait_for_time() -> Any:
    @everstep.workflow(name="f1-child")
    async def child() -> Any:
        await everstep.current().step("before", work, "before")
        await everstep.sleep(3600)
        return await everstep.current().step("after", work, "after the hour")

    return child


def run_long() -> Any:
    @everstep.workflow(name="f1-child")
    async def child() -> Any:
        await everstep.current().step("before", work, "before")
        await everstep.current().step("long", work, "long", 30)
        return await everstep.current().step("after", work, "after long")

    return child


def grandchild_waits() -> Any:
    inner = wait_at_gate("f1-inner")

    @everstep.workflow(name="f1-child")
    async def child() -> Any:
        return await inner()

    return child


CHILDREN = {"gate": wait_at_gate, "timer": wait_for_time, "running": run_long, "grandchild": grandchild_waits}


async def race(child: Any) -> Any:
    tasks = [asyncio.ensure_future(child()), asyncio.ensure_future(everstep.current().step("winner", work, "winner", 0.3))]
    done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()
    await asyncio.gather(*pending, return_exceptions=True)
    return done.pop().result()


async def timeout(child: Any) -> Any:
    slow = asyncio.ensure_future(everstep.current().step("slow", work, "slow", 0.6))  # keeps the run from being suspended
    try:
        async with asyncio.timeout(0.3):
            await child()
    except TimeoutError:
        await slow
        return "winner"


async def group(child: Any) -> Any:
    fails.append("bad")
    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(child())
            tasks.create_task(everstep.current().step("bad", work, "bad", 0.3))
    except* ValueError:
        fails.clear()
        await everstep.current().step("undo", work, "undo")
    return "winner"


WAYS = {"race": race, "timeout": timeout, "group": group}


def parent(child: Any, way: Callable[[Any], Any], gate: bool = True) -> Any:
    @everstep.workflow(name="f1-parent")
    async def flow() -> Any:
        found = await way(child)
        if gate:
            await everstep.gate("go")
        return found

    return flow


@pytest.mark.parametrize("kind", CHILDREN)
@pytest.mark.parametrize("way", WAYS)
def test_F1_a_child_whose_call_is_cancelled_is_cancelled(store: everstep.Store, way: str, kind: str) -> None:
    flow = parent(CHILDREN[kind](), WAYS[way])
    assert store.start(flow, id="r").status == "waiting"
    assert store.get(CHILD).status == "cancelled"
    assert store.wait(CHILD).reason == "cancel: its caller cancelled the call"
    if kind == "gate":
        with pytest.raises(NotFound, match="cancelled"):
            store.answer(CHILD, "ok", "yes")
    if kind == "grandchild":
        assert store.get(f"{CHILD}.f1-inner.0").status == "cancelled"
    with pytest.raises(IllegalTransition):
        store.resume(CHILD)
    assert store.due() == [], "the caller knows; it need not be woken"
    called, head = list(calls), store.backend.run(CHILD)
    store.answer("r", "go", "yes")
    out = store.resume("r")
    assert (out.status, out.result) == ("succeeded", "winner"), out.error
    assert calls == called, "nothing was called again"
    assert store.backend.run(CHILD) == head, "cancelled once"
    assert store.verify("full").ok


@pytest.mark.parametrize("kind", CHILDREN)
def test_F1_also_if_the_program_ends_at_once(store: everstep.Store, kind: str) -> None:
    out = store.start(parent(CHILDREN[kind](), race, gate=False), id="r")
    assert out.result == "winner"
    assert store.get(CHILD).status == "cancelled"
    assert store.start(parent(CHILDREN[kind](), race, gate=False), id="r").result == "winner"


def test_F1_in_a_loop_of_your_own(store: everstep.Store) -> None:
    async def main() -> Any:
        async with store.run("r") as run:
            found = await race(wait_at_gate())
            await run.checkpoint()
            return found

    assert asyncio.run(main()) == "winner"
    assert store.get(CHILD).status == "cancelled"


def test_F1_a_child_that_is_not_async_stops_before_its_next_step(store: everstep.Store) -> None:
    @everstep.workflow(name="f1-child")
    def child() -> Any:
        everstep.current().step("nap", lambda: time.sleep(0.8))
        return everstep.current().step("after", lambda: calls.append("after"))

    assert store.start(parent(child, race), id="r").status == "waiting"
    for _ in range(300):
        if store.get(CHILD).status == "cancelled":
            break
        time.sleep(0.01)
    assert store.get(CHILD).status == "cancelled"
    assert "after" not in calls


def test_F1_a_child_in_a_step_that_timed_out_is_cancelled(store: everstep.Store) -> None:
    child = wait_for_long_time()

    @everstep.workflow(name="f1-parent")
    async def flow() -> Any:
        async def inner() -> Any:
            return await child()

        try:
            return await everstep.current().step("around", inner, timeout=0.3)
        except everstep.errors.StepTimeout:
            return await everstep.current().step("undo", work, "undo")

    assert store.start(flow, id="r").result == "undo"
    (found,) = store.runs(parent="r")
    assert found.status == "cancelled"


def wait_for_long_time() -> Any:
    @everstep.workflow(name="f1-child")
    async def child() -> Any:
        return await everstep.current().step("long", work, "long", 30)

    return child


def test_F1_the_thread_of_a_step_that_timed_out_stops_driving_its_child(store: everstep.Store) -> None:
    @everstep.workflow(name="f1-child")
    def child() -> Any:
        everstep.current().step("nap", lambda: time.sleep(0.8))
        return everstep.current().step("after", lambda: calls.append("after"))

    @everstep.workflow(name="f1-parent")
    def flow() -> Any:
        try:
            return everstep.current().step("around", child.__call__, timeout=0.3)
        except everstep.errors.StepTimeout:
            return everstep.current().step("undo", lambda: "undo")

    assert store.start(flow, id="r").result == "undo"
    for _ in range(300):
        (found,) = store.runs(parent="r")
        if found.status == "cancelled":
            break
        time.sleep(0.01)
    assert found.status == "cancelled"
    assert "after" not in calls


@pytest.mark.parametrize("kind", CHILDREN)
@pytest.mark.parametrize("gate", [True, False])
def test_F1_a_crash_between_the_record_and_the_cancellation_is_made_up_for(
    store: everstep.Store, monkeypatch: pytest.MonkeyPatch, kind: str, gate: bool
) -> None:
    flow = parent(CHILDREN[kind](), race, gate)

    def dies(*_: Any) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(operate, "cancel_for_caller", dies)
        with pytest.raises(Killed):
            store.start(flow, id="r")
    assert store.get(CHILD).status in ("waiting", "running")
    assert [step.address for step in store.steps("r") if (step.error or {}).get("type") == "asyncio.CancelledError"] == ["f1-child#0"]
    called = list(calls)
    out = store.resume("r")
    assert out.status == ("waiting" if gate else "succeeded")
    assert store.get(CHILD).status == "cancelled"
    assert calls == called


def test_F1_a_crash_before_the_record_leaves_the_child_alone(store: everstep.Store) -> None:
    """The whole program is cancelled, not the call: the run can be resumed, and so can its child."""
    child = wait_at_gate()

    @everstep.workflow(name="f1-parent")
    async def flow() -> Any:
        return await asyncio.gather(child(), everstep.current().step("slow", work, "slow", 0.0 if "slow" in calls else 30))

    async def main() -> None:
        task = asyncio.ensure_future(store.start(flow, id="r"))
        while "slow" not in calls:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert store.get(CHILD).status == "waiting"
    store.answer(CHILD, "ok", "yes")
    assert store.resume("r").unwrap() == ["after yes", "slow"]
    assert calls.count("before") == 1


def test_F1_a_child_that_had_ended_is_left_as_it_is(store: everstep.Store) -> None:
    @everstep.workflow(name="f1-child")
    async def child() -> str:
        return await everstep.current().step("quick", work, "quick")

    async def late(child: Any) -> Any:
        task = asyncio.ensure_future(child())
        await everstep.current().step("winner", work, "winner", 0.3)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return "winner"

    store.start(parent(child, late), id="r")
    assert store.get(CHILD).status == "succeeded"


@pytest.mark.parametrize("kind", ["gate", "timer", "grandchild"])
def test_F1_a_child_that_was_cancelled_with_a_failed_sibling_runs_again_with_it(store: everstep.Store, kind: str) -> None:
    """A resume of the caller runs the failed member again, and those that were cancelled with it. The child keeps what it had finished."""
    child = CHILDREN[kind]()

    @everstep.workflow(name="f1-parent")
    async def flow() -> Any:
        async with asyncio.TaskGroup() as tasks:
            one = tasks.create_task(child())
            tasks.create_task(everstep.current().step("bad", work, "bad", 0.3))
        return one.result()

    fails.append("bad")
    assert store.start(flow, id="r").status == "failed"
    assert store.get(CHILD).status == "cancelled"
    fails.clear()
    out = store.resume("r")
    assert out.status == "waiting", (out.error, out.result)
    assert store.get(CHILD).status == "waiting"
    assert calls.count("before") == 1
    if kind != "timer":
        (gate,) = out.gates
        store.answer(gate.run, "ok", "yes")
        outcomes = {one.run: one for one in store.wake()}
        assert outcomes["r"].unwrap() == "after yes"
        assert store.get(CHILD).status == "succeeded"
    assert calls.count("before") == 1
    assert store.verify("full").ok


def test_F1_a_child_that_a_person_cancelled_does_not_run_again(store: everstep.Store) -> None:
    child = wait_at_gate()

    @everstep.workflow(name="f1-parent")
    async def flow() -> Any:
        return await child()

    store.start(flow, id="r")
    assert store.cancel(CHILD, "no budget") is True
    store.wake()
    assert store.get("r").status == "failed"
    assert store.resume("r").status == "failed"
    assert store.get(CHILD).status == "cancelled"


def test_F1_a_retried_step_runs_its_cancelled_child_again(store: everstep.Store) -> None:
    @everstep.workflow(name="f1-child")
    async def child() -> Any:
        await everstep.current().step("before", work, "before")
        return await everstep.current().step("long", work, "long", 30 if calls.count("long") == 0 else 0.0)

    @everstep.workflow(name="f1-parent")
    async def flow() -> Any:
        async def inner() -> Any:
            return await child()

        return await everstep.current().step("around", inner, timeout=0.5, retry=everstep.Retry(attempts=2, delay=0.1))

    assert store.start(flow, id="r").unwrap() == "long"
    assert calls == ["before", "long", "long"]


def test_F1_an_enqueued_run_is_independent_of_the_run_that_waits_for_it(store: everstep.Store) -> None:
    """Its caller only stops waiting: after a timeout, and when the caller is cancelled."""
    other = everstep.workflow(name="f1-other")(independent)

    @everstep.workflow(name="f1-parent")
    async def flow() -> Any:
        job = store.enqueue(other, id="other")
        early = await job.wait_async(timeout=0)
        await job.wait_async()
        return early.status

    assert store.start(flow, id="r").status == "waiting"
    assert store.cancel("r") is True
    assert store.get("other").status == "queued"


def independent() -> str:
    return "done"


@pytest.mark.parametrize("way", ["the caller", "a person"])
def test_F1_a_crash_between_two_generations_is_made_up_for(store: everstep.Store, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    """A child counts as cancelled only when its own children are: otherwise a second cancellation would not get to them."""
    flow = parent(grandchild_waits(), race)
    with monkeypatch.context() as patch:
        if way == "a person":
            patch.setattr(operate, "cancel_for_caller", lambda *_: None)
            store.start(flow, id="r")
        done, apply = [], operate._apply

        def dies_after_one(*args: Any) -> None:
            if done:
                raise Killed
            done.append(apply(*args))

        patch.setattr(operate, "_apply", dies_after_one)
        with pytest.raises(Killed):
            store.cancel(CHILD) if way == "a person" else store.start(flow, id="r")
    if way == "a person":
        assert store.cancel(CHILD) is True
    else:
        store.resume("r")
    assert [store.get(run).status for run in (CHILD, f"{CHILD}.f1-inner.0")] == ["cancelled", "cancelled"]


def test_F1_a_child_that_its_caller_leaves_behind_is_cancelled(store: everstep.Store) -> None:
    """The caller returns without waiting for it: nothing would drive the child any more."""
    child = wait_at_gate()

    @everstep.workflow(name="f1-parent")
    async def flow() -> str:
        task = asyncio.ensure_future(child())
        await everstep.current().step("winner", work, "winner", 0.3)
        assert not task.done()
        return "done"

    assert store.start(flow, id="r").result == "done"
    assert store.get(CHILD).status == "cancelled"


def test_F1_a_cancellation_that_comes_while_the_run_is_being_left_is_obeyed(store: everstep.Store) -> None:
    """The lease is still held, and no later step would read the message."""

    @everstep.workflow(name="f1-ask")
    def ask() -> Any:
        return everstep.gate("ok")

    def cancel(event: Any) -> None:
        if not calls:
            calls.append("cancelled")
            store.cancel("r", "late")

    store.on("before_checkpoint", cancel, timeout=5)
    assert store.start(ask, id="r").status == "cancelled"
    assert store.wait("r").reason == "cancel: late"

"""`run.begin`: steps that somebody else runs have the identity, replay, retries, budgets and crash semantics of `run.step`."""

import asyncio
import os
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import everstep
from everstep.errors import Interrupted, InvalidArgument, NonDeterminism, RunClosed, StepFailed, StoreFull, Unstorable


class Left(BaseException):
    """Leaves a loop without an end, so that it is played back from its beginning."""


def steps(store: everstep.Store, run: str = "r") -> list[tuple[str, str, int]]:
    return [(step.address, step.status, step.attempt) for step in store.steps(run)]


def test_a_completed_step_is_recorded_and_given_again(store: everstep.Store) -> None:
    with suppress(Left), store.run("r") as run:
        step = run.begin("ask", "hello", model="m")
        assert (step.recorded, step.again, step.attempt, step.address) == (False, False, 1, "ask#0")
        with pytest.raises(InvalidArgument, match="no recorded result"):
            _ = step.result
        step.usage(tokens=7, cost=0.5)
        step.complete({"text": "hi"})
        assert run.used["tokens"] == 7
        raise Left
    with store.run("r") as run:
        step = run.begin("ask", "hello", model="m")
        assert (step.recorded, step.result) == (True, {"text": "hi"})
        assert (run.report.kept, run.report.tokens_saved) == (1, 7)
        with pytest.raises(InvalidArgument, match="has already ended"):
            step.complete("other")
    assert steps(store) == [("ask#0", "succeeded", 1)]


def test_it_is_the_same_step_as_that_of_run_step(store: everstep.Store) -> None:
    """A program may change from one to the other: address and input are the same."""
    with suppress(Left), store.run("r") as run:
        run.begin("double", 4).complete(8)
        assert run.step("double", lambda n: n * 2, 5) == 10
        run.begin("double", 6).complete(12)
        raise Left
    with store.run("r") as run:
        assert run.step("double", pytest.fail, 4) == 8
        assert run.begin("double", 5).result == 10
        with pytest.raises(NonDeterminism):
            run.begin("double", 7)


def test_its_key_and_kind_are_those_of_a_step(store: everstep.Store) -> None:
    with store.run("r", policy="on llm") as run:
        step = run.begin("ask", "a", key="k", kind="llm")
        assert step.address == "ask@k"
        key = step.key
        step.complete(1)
        assert run.number == 1
        assert run.begin("ask", "b", key="k").result == 1
        assert run.step("see", lambda: everstep.current().step_key) != key


def test_a_failure_is_recorded_and_raised_again(store: everstep.Store) -> None:
    @everstep.workflow(name="begins")
    def flow(gate: bool) -> Any:
        run = everstep.current()
        step = run.begin("ask", 1)
        if not step.recorded:
            assert step.fail(ValueError("no")) is None
            with pytest.raises(InvalidArgument):
                step.complete(1)
        try:
            step = run.begin("more", 1)
            if not step.recorded:
                step.fail(KeyError("x"))
            else:
                _ = step.result
        except (StepFailed, KeyError):
            run.emit("handled")
        everstep.gate("go")
        return "done"

    assert store.start(flow, True, id="r").status == "waiting"
    store.answer("r", "go", "yes")
    assert store.resume("r").result == "done"
    assert [address for address, status, _ in steps(store) if status == "failed"] == ["ask#0", "more#0"]


def test_a_retry_opens_the_next_attempt(store: everstep.Store) -> None:
    with store.run("r") as run:
        step = run.begin("ask", retry=everstep.Retry(attempts=3, delay=0.25, jitter=0))
        assert step.fail(OSError("once")) == 0.25
        assert step.attempt == 2
        delay = step.fail(OSError("twice"))
        assert delay is not None
        assert delay > 0.25
        assert step.fail(OSError("for good")) is None
        with pytest.raises(InvalidArgument):
            step.fail(OSError("again"))
    assert [attempt for _, _, attempt in steps(store)][-1] == 3


def test_attempts_that_another_process_made_are_counted(store: everstep.Store) -> None:
    retry = everstep.Retry(attempts=2, delay=0.001, jitter=0)
    with suppress(Left), store.run("r") as run:
        assert run.begin("ask", retry=retry).fail(OSError("once")) == 0.001
        raise Left
    with store.run("r") as run:
        step = run.begin("ask", retry=retry)
        assert (step.recorded, step.attempt) == (False, 2)
        assert step.fail(OSError("twice")) is None


def test_a_budget_stops_the_next_step_and_the_next_attempt(store: everstep.Store) -> None:
    with store.run("r", budget=everstep.Budget(steps=1)) as run:
        run.begin("a").complete(1)
        with pytest.raises(Interrupted):
            run.begin("b")
    with store.run("q", budget=everstep.Budget(steps=1)) as run:
        step = run.begin("a", retry=everstep.Retry(attempts=5, delay=0))
        with pytest.raises(Interrupted):
            step.fail(OSError())


def test_what_was_reserved_is_given_back_when_the_run_is_left(store: everstep.Store) -> None:
    with store.run("r", budget=everstep.Budget(steps=2)) as run:
        run.begin("left open")
        run.begin("b").complete(1)
    assert store.get("r").status == "succeeded"


def test_a_result_that_cannot_be_stored_fails_the_step(store: everstep.Store) -> None:
    with pytest.raises(Unstorable), store.run("r") as run:
        run.begin("a").complete(lambda: None)
    assert steps(store)[0][1] == "failed"


@pytest.mark.parametrize("bad", [None, "text", KeyboardInterrupt()])
def test_only_an_exception_fails_a_step(store: everstep.Store, bad: Any) -> None:
    with store.run("r") as run:
        step = run.begin("a")
        with pytest.raises(InvalidArgument):
            step.fail(bad)
        step.complete(1)


def test_a_name_has_to_be_a_text(store: everstep.Store) -> None:
    with store.run("r") as run, pytest.raises(InvalidArgument, match="must be text"):
        run.begin(print)  # type: ignore[arg-type]


def test_after_the_run_was_closed_nothing_is_recorded(store: everstep.Store) -> None:
    with store.run("r") as run:
        step = run.begin("a", 1)
    for end in (lambda: step.complete(1), lambda: step.fail(OSError())):
        with pytest.raises(RunClosed, match="was closed before step a#0 ended"):
            end()
    assert steps(store) == []


def test_a_call_of_the_same_key_waits_for_it_and_not_for_ever(store: everstep.Store) -> None:
    with store.run("r") as run:
        step = run.begin("a", key="k")
        got: list[Any] = []
        thread = threading.Thread(target=lambda: got.append(run.step("a", pytest.fail, key="k")))
        thread.start()
        thread.join(0.1)
        assert thread.is_alive()
        step.complete("one")
        thread.join(10)
        assert got == ["one"]

        def late() -> None:
            try:
                run.step("b", pytest.fail, key="k")
            except RunClosed:
                got.append("closed")

        run.begin("b", key="k")
        waits = threading.Thread(target=late)
        waits.start()
        waits.join(0.1)
        assert waits.is_alive()
    waits.join(10)
    assert got == ["one", "closed"]


def test_one_of_many_threads_ends_it(store: everstep.Store) -> None:
    refused: list[str] = []
    with suppress(Left), store.run("r") as run:
        begun = [run.begin("a", n) for n in range(20)]

        def end(step: Any, n: int) -> None:
            try:
                step.complete(n)
            except InvalidArgument:
                refused.append(step.address)

        threads = [threading.Thread(target=end, args=(step, n)) for n, step in enumerate(begun) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        raise Left
    assert len(refused) == 40
    with store.run("r") as run:
        assert [run.begin("a", n).result for n in range(20)] == list(range(20))


def test_a_full_disk_leaves_it_without_an_end(store: everstep.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    with suppress(StoreFull), store.run("r") as run:
        step = run.begin("a")

        def full(commit: Any) -> None:
            raise StoreFull("no space", written="no")

        with monkeypatch.context() as patched:
            patched.setattr(store.backend, "commit", full)
            with pytest.raises(StoreFull):
                step.complete(1)
        with pytest.raises(InvalidArgument):
            step.complete(1)
        raise StoreFull("no space", written="no")
    with store.run("r") as run:
        step = run.begin("a")
        assert not step.recorded
        assert step.again


def test_skip_gives_it_a_result(store: everstep.Store) -> None:
    @everstep.workflow(name="skips")
    def flow() -> Any:
        everstep.gate("go")
        step = everstep.current().begin("a", 1)
        return step.result if step.recorded else pytest.fail("it is to be skipped")

    store.start(flow, id="r")
    store.skip("r", "a#0", "given")
    store.answer("r", "go", "yes")
    assert store.resume("r").result == "given"


def test_a_validation_compares_its_input_and_runs_nothing(store: everstep.Store) -> None:
    asked = ["a"]

    @everstep.workflow(name="compared")
    def flow() -> Any:
        step = everstep.current().begin("a", asked[0])
        if not step.recorded:
            step.complete("result")
            return "result"
        return step.result

    store.start(flow, id="r")
    assert store.resume("r", replay="validate").status == "succeeded"
    asked[0] = "b"
    out = store.resume("r", replay="validate")
    assert [(one.address, one.what) for one in out.report.differences] == [("a#0", "input")]


def test_the_async_ticket_is_awaited_and_keeps_the_order_of_ends(store: everstep.Store) -> None:
    order: list[str] = []

    @everstep.workflow(name="races")
    async def flow() -> list[str]:
        run = everstep.current()

        async def one(name: str, seconds: float) -> str:
            step = await run.begin(name, seconds)
            if not step.recorded:
                await asyncio.sleep(seconds)
                await step.complete(name)
            else:
                assert step.result == name
            order.append(name)
            return name

        tasks = [asyncio.ensure_future(one("slow", 0.05)), asyncio.ensure_future(one("quick", 0.01))]
        await asyncio.gather(*tasks)
        await everstep.gate("go")
        return list(order)

    store.start(flow, id="r")
    assert order == ["quick", "slow"]
    order.clear()
    store.answer("r", "go", "yes")
    assert store.resume("r").result == ["quick", "slow"]


def test_the_async_ticket_fails_and_retries(store: everstep.Store) -> None:
    async def main() -> None:
        async with store.run("r") as run:
            step = await run.begin("a", retry=everstep.Retry(attempts=2, delay=0, jitter=0))
            assert await step.fail(OSError()) == 0
            assert await step.fail(OSError()) is None
            with pytest.raises(InvalidArgument):
                await step.complete(1)
            done = await run.begin("b", 1)
            await done.complete(2)
            raise Left

    async def again() -> None:
        async with store.run("r") as run:
            assert (await run.begin("b", 1)).result == 2

    with pytest.raises(Left):
        asyncio.run(main())
    asyncio.run(again())


def test_a_disabled_store_records_nothing_of_it() -> None:
    store = everstep.open("memory://", enabled=False)
    with store.run("r") as run:
        step = run.begin("a", retry=everstep.Retry(attempts=2, delay=0, jitter=0))
        assert not step.recorded
        assert step.fail(OSError()) == 0
        step.complete(1)
        with pytest.raises(InvalidArgument):
            step.complete(1)
        assert run.used["steps"] == 2

    async def main() -> None:
        async with store.run("q") as run:
            await (await run.begin("a")).complete(1)

    asyncio.run(main())


CHILD = """
import os, signal, sys, everstep
with everstep.open(sys.argv[1]) as store, store.run("r") as run:
    run.begin("done", 1).complete("kept")
    step = run.begin("open", 2, retry=everstep.Retry(attempts=3, delay=0))
    step.usage(tokens=5)
    if sys.argv[2] == "failed":
        step.fail(OSError("once"))
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("how", ["open", "failed"])
def test_a_kill_between_begin_and_complete_begins_it_again(tmp_path: Path, how: str) -> None:
    path = tmp_path / "store.db"
    done = subprocess.run([sys.executable, "-c", CHILD, str(path), how], capture_output=True, text=True, env=dict(os.environ), check=False)
    assert done.returncode == -9, done.stderr
    with everstep.open(path) as store:
        with store.run("r") as run:
            assert run.begin("done", 1).result == "kept"
            step = run.begin("open", 2, retry=everstep.Retry(attempts=3, delay=0))
            assert (step.recorded, step.again) == (False, True)
            assert step.attempt == (1 if how == "open" else 2)
            step.complete("now")
        assert store.verify("full").ok
        assert [address for address, status, _ in steps(store) if status == "succeeded"] == ["done#0", "open#0"]

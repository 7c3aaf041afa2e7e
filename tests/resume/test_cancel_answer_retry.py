"""Small things that must mean what users expect: cancelling, late answers, waiting for a result, gates of children, equal calls, new tries."""

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import everstep
from everstep.errors import AnswerTooLate, EverstepError, InvalidArgument, LeaseHeld, NonDeterminism, NotFound, RunExists, StepFailed

calls: list[Any] = []


@pytest.fixture(autouse=True)
def _no_calls() -> None:
    calls.clear()


@pytest.fixture
def store(places: Any) -> Iterator[everstep.Store]:
    store = places.open()
    yield store
    assert store.verify("full").ok


def family(colour: str, handled: bool) -> Any:
    """A workflow whose child waits at a gate."""
    if colour == "sync":

        @everstep.workflow(name="r6-child")
        def child() -> Any:
            return everstep.gate("ok", ask="Go?")

        @everstep.workflow(name="r6-parent")
        def parent() -> Any:
            try:
                return child()
            except StepFailed as error:
                if not handled:
                    raise
                return f"without it: {error.type_name}"
    else:

        @everstep.workflow(name="r6-child")
        async def child() -> Any:
            return await everstep.gate("ok", ask="Go?")

        @everstep.workflow(name="r6-parent")
        async def parent() -> Any:
            try:
                return await child()
            except StepFailed as error:
                if not handled:
                    raise
                return f"without it: {error.type_name}"

    return parent


# cancel


@pytest.mark.parametrize("colour", ["sync", "async"])
@pytest.mark.parametrize("handled", [True, False])
def test_cancelling_a_child_alone_wakes_its_parent(store: everstep.Store, colour: str, handled: bool) -> None:
    assert store.start(family(colour, handled), id="p").status == "waiting"
    assert store.due() == []
    assert store.cancel("p.r6-child.0", "no budget") is True
    assert store.due() == ["p"]
    (out,) = store.wake()
    if handled:
        assert out.unwrap() == "without it: Cancelled"
    else:
        assert out.status == "failed"
        assert "no budget" in str(out.error)
    assert store.due() == []


def test_cancelling_a_parent_wakes_nothing(store: everstep.Store) -> None:
    store.start(family("sync", True), id="p")
    assert store.cancel("p") is True
    assert [store.get(run).status for run in ("p", "p.r6-child.0")] == ["cancelled", "cancelled"]
    assert store.due() == []


def test_a_child_cancelled_while_its_driver_is_dead_wakes_its_parent(store: everstep.Store) -> None:
    """The cancellation waits as a message, and is done by whoever opens the child next."""
    store.start(family("sync", True), id="p")
    row = store.backend.run("p.r6-child.0")
    assert row is not None
    from everstep.runtime.waits.control import post

    post(store, row, "cancel", "late", None, "reason")
    assert store.resume("p.r6-child.0").status == "cancelled"
    (out,) = store.wake()
    assert out.unwrap() == "without it: Cancelled"


def test_cancel_may_be_said_twice_and_too_late(store: everstep.Store) -> None:
    store.start(family("sync", True), id="p")
    assert store.cancel("p") is True
    head = store.backend.run("p")
    assert store.cancel("p", "again") is True
    assert store.backend.run("p") == head, "nothing was written"
    flow = everstep.workflow(name="r6-done")(done)
    store.start(flow, 1, id="d")
    assert store.cancel("d") is False
    assert store.get("d").status == "succeeded"
    assert store.start(flow, 1, id="d").result == 1


def done(x: int) -> int:
    return x


def test_cancel_that_meets_the_end_of_a_run_is_no_error(store: everstep.Store) -> None:
    @everstep.workflow(name="r6-brief")
    def brief() -> int:
        return everstep.current().step("nap", lambda: time.sleep(0.002))

    for turn in range(10):
        thread = threading.Thread(target=store.start, args=(brief,), kwargs={"id": f"r{turn}"})
        thread.start()
        while store.backend.run(f"r{turn}") is None:
            time.sleep(0.0005)
        time.sleep(0.0007 * turn)
        cancelled = store.cancel(f"r{turn}")
        thread.join()
        found = store.get(f"r{turn}").status
        assert found in ("cancelled", "succeeded")
        assert cancelled or found == "succeeded"


# gates


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_an_answer_after_the_deadline_is_refused(store: everstep.Store, colour: str) -> None:
    if colour == "sync":

        @everstep.workflow(name="r6-asks")
        def asks() -> Any:
            return everstep.gate("ok", timeout=0.1, default="default")
    else:

        @everstep.workflow(name="r6-asks")
        async def asks() -> Any:
            return await everstep.gate("ok", timeout=0.1, default="default")

    assert store.start(asks, id="r").status == "waiting"
    time.sleep(0.15)
    with pytest.raises(AnswerTooLate, match="deadline") as found:
        store.answer("r", "ok", "late")
    assert "from_step" in found.value.remedy
    assert store.due() == ["r"], "the deadline wakes the run"
    assert store.wake()[0].unwrap() == "default"


def test_a_late_answer_that_an_older_version_took_does_not_win(store: everstep.Store) -> None:
    @everstep.workflow(name="r6-older")
    def asks() -> Any:
        return everstep.gate("ok", timeout=0.05, default="default")

    store.start(asks, id="r")
    time.sleep(0.1)
    row = store.backend.run("r")
    assert row is not None
    from everstep.runtime.waits.control import post

    post(store, row, "answer:ok#0", {"value": "late", "by": None}, 0, "answer")
    assert store.resume("r").unwrap() == "default"


def test_answers_that_race_the_deadline_are_taken_or_refused_never_both(store: everstep.Store) -> None:
    @everstep.workflow(name="r6-races")
    def asks(n: int) -> Any:
        return everstep.gate("ok", timeout=0.03, default="default")

    for n in range(12):
        run = f"r{n}"
        store.start(asks, n, id=run)
        taken: list[bool] = []

        def answer(run: str = run, taken: list[bool] = taken, n: int = n) -> None:
            time.sleep(0.024 + 0.001 * n)
            try:
                store.answer(run, "ok", "answer")
                taken.append(True)
            except EverstepError:
                taken.append(False)

        thread = threading.Thread(target=answer)
        thread.start()
        while (out := store.resume(run)).status == "waiting":
            time.sleep(0.001)
        thread.join()
        assert out.unwrap() == ("answer" if taken == [True] else "default")


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_the_gates_of_children_are_among_those_of_their_parent(store: everstep.Store, colour: str) -> None:
    out = store.start(family(colour, True), id="p")
    assert [(gate.run, gate.name, gate.ask) for gate in out.gates] == [("p.r6-child.0", "ok", "Go?")]
    (gate,) = out.gates
    store.answer(gate.run, gate.name, "yes")
    assert store.resume("p").unwrap() == "yes"


def test_gates_of_a_grandchild_are_listed_and_those_of_a_child_that_was_given_up_are_not(store: everstep.Store) -> None:
    @everstep.workflow(name="r6-low")
    async def low() -> Any:
        return await everstep.gate("low")

    @everstep.workflow(name="r6-mid")
    async def mid() -> Any:
        return await low()

    @everstep.workflow(name="r6-top")
    async def top() -> Any:
        given_up = asyncio.create_task(low())
        await everstep.current().step("nap", asyncio.sleep, 0.1)
        given_up.cancel()
        await asyncio.gather(given_up, return_exceptions=True)
        return await asyncio.gather(mid(), everstep.gate("top"))

    out = store.start(top, id="t")
    assert {(gate.run, gate.name) for gate in out.gates} == {("t", "top"), ("t.r6-mid.0.r6-low.0", "low")}


# waiting for a result


def test_a_second_caller_of_start_can_wait_for_the_result(store: everstep.Store) -> None:
    begun = threading.Event()

    def slow() -> int:
        begun.set()
        time.sleep(0.3)
        return 5

    @everstep.workflow(name="r6-slow")
    def flow() -> int:
        return everstep.current().step("slow", slow)

    thread = threading.Thread(target=store.start, args=(flow,), kwargs={"id": "r"})
    thread.start()
    begun.wait(5)
    with pytest.raises(LeaseHeld) as found:
        store.start(flow, id="r")
    assert "store.wait('r')" in found.value.remedy
    assert store.wait("r", timeout=0.02).status == "running"
    assert store.wait("r").unwrap() == 5
    thread.join()
    assert store.wait("r").unwrap() == 5


def test_waiting_in_a_loop_does_not_block_it(places: Any) -> None:
    async def main() -> Any:
        async with places.open() as store:

            async def slow(n: int) -> int:
                await asyncio.sleep(0.3)
                return n

            @everstep.workflow(name="r6-aslow")
            async def flow(n: int) -> Any:
                return await everstep.current().step("slow", slow, n)

            started = [asyncio.create_task(store.start(flow, n, id=f"r{n}")) for n in range(20)]
            while len(await store.runs()) < 20:
                await asyncio.sleep(0.01)
            waits = await asyncio.gather(*(store.wait(f"r{n}", timeout=20) for n in range(20)))
            await asyncio.gather(*started)
            return [out.unwrap() for out in waits]

    assert asyncio.run(main()) == list(range(20))


PROGRAM = """
import os, sys, time
import everstep

def slow():
    print("begun", flush=True)
    time.sleep(0.5)
    return 5

@everstep.workflow(name="r6-elsewhere")
def flow():
    return everstep.current().step("slow", slow)

with everstep.open(sys.argv[1]) as store:
    store.start(flow, id="r")
"""


def test_waiting_for_a_run_of_another_process(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    env = os.environ | {"PYTHONPATH": str(Path(everstep.__file__).parents[1])}
    with subprocess.Popen([sys.executable, "-c", PROGRAM, str(path)], stdout=subprocess.PIPE, env=env) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"begun\n"
        with everstep.open(path) as store:
            assert store.wait("r", timeout=30).unwrap() == 5
            with pytest.raises(everstep.errors.NotFound):
                store.wait("nothing")


# equal calls


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_a_step_is_the_same_however_its_arguments_are_written(store: everstep.Store, colour: str) -> None:
    ways = [lambda f: f(1, 2), lambda f: f(1, y=2), lambda f: f(x=1, y=2), lambda f: f(y=2, x=1)]
    chosen: list[int] = [0]

    def add(x: int, y: int = 0, *, z: int = 0) -> int:
        calls.append((x, y))
        return x + y

    if colour == "sync":

        @everstep.workflow(name="r6-spelled")
        def flow() -> Any:
            found = ways[chosen[0]](everstep.step(add))
            return found, everstep.gate("ok")
    else:

        async def aadd(x: int, y: int = 0, *, z: int = 0) -> int:
            return add(x, y, z=z)

        @everstep.workflow(name="r6-spelled")
        async def flow() -> Any:
            found = await ways[chosen[0]](everstep.step(aadd))
            return found, await everstep.gate("ok")

    for before in range(len(ways)):
        for now in range(len(ways)):
            calls.clear()
            chosen[0] = before
            store.start(flow, id=f"r{before}{now}")
            chosen[0] = now
            store.answer(f"r{before}{now}", "ok", 1)
            assert store.resume(f"r{before}{now}").unwrap() == (3, 1)
            assert calls == [(1, 2)]


def test_another_input_is_still_another_input(store: everstep.Store) -> None:
    given: dict[str, Any] = {"x": 1}

    @everstep.workflow(name="r6-other")
    def flow() -> Any:
        everstep.current().step("done", done, **given)
        return everstep.gate("ok")

    store.start(flow, id="r")
    store.answer("r", "ok", 1)
    given["x"] = 2
    assert isinstance(store.resume("r").error, NonDeterminism)


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_start_with_the_same_input_written_otherwise_is_the_same_run(store: everstep.Store, colour: str) -> None:
    if colour == "sync":

        @everstep.workflow(name="r6-same")
        def flow(x: int, y: int = 5) -> Any:
            return x, everstep.gate("ok")
    else:

        @everstep.workflow(name="r6-same")
        async def flow(x: int, y: int = 5) -> Any:
            return x, await everstep.gate("ok")

    assert store.start(flow, 1, id="r").status == "waiting"
    assert store.start(flow, x=1, id="r").status == "waiting"
    store.answer("r", "ok", 2)
    assert store.start(flow, x=1, id="r").unwrap() == (1, 2)
    assert store.start(flow, 1, id="r").unwrap() == (1, 2)
    with pytest.raises(RunExists):
        store.start(flow, x=2, id="r")
    store.enqueue(flow, 1, id="q")
    assert store.enqueue(flow, x=1, id="q").new is False


def test_a_child_is_the_same_however_its_arguments_are_written(store: everstep.Store) -> None:
    named = [False]

    @everstep.workflow(name="r6-kid")
    def kid(x: int) -> Any:
        return x, everstep.gate("ok")

    @everstep.workflow(name="r6-mum")
    def mum() -> Any:
        return kid(x=1) if named[0] else kid(1)

    store.start(mum, id="m")
    named[0] = True
    assert store.resume("m").status == "waiting"
    store.answer("m.r6-kid.0", "ok", 2)
    assert store.resume("m").unwrap() == (1, 2)
    named[0] = False
    assert store.resume("m").unwrap() == (1, 2)


# methods


def test_a_workflow_on_a_method_says_what_to_do() -> None:
    with pytest.raises(InvalidArgument, match=r"Shop\.order") as found:

        class Shop:
            @everstep.workflow
            def order(self, item: str) -> str:
                return item

    assert "function" in found.value.remedy
    with pytest.raises(InvalidArgument, match=r"Shop2\.order"):

        class Shop2:
            @everstep.workflow(name="order")
            async def order(self, item: str) -> str:
                return item

    class Fine:
        @staticmethod
        @everstep.workflow
        def order(item: str) -> str:
            return item

    assert Fine.order("tea") == "tea"


# dead letters


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_a_resume_after_a_dead_letter_has_new_tries(store: everstep.Store, colour: str) -> None:
    def body() -> None:
        calls.append(1)
        raise OSError("down")

    if colour == "sync":

        @everstep.workflow(name="r6-dead", retry=everstep.Retry(attempts=2, delay=0))
        def flow() -> None:
            body()
    else:

        @everstep.workflow(name="r6-dead", retry=everstep.Retry(attempts=2, delay=0))
        async def flow() -> None:
            body()

    store.start(flow, id="r")
    store.wake()
    assert (len(calls), store.get("r").tags, store.due()) == (2, ("dead-letter",), [])
    store.resume("r")
    assert (len(calls), store.get("r").tags, store.due()) == (3, (), ["r"])
    store.wake()
    assert (len(calls), store.get("r").tags, store.due()) == (4, ("dead-letter",), [])


def test_the_gates_of_a_cancelled_run_are_not_open(store: everstep.Store) -> None:
    @everstep.workflow(name="r6 cancelled at a gate")
    def child() -> Any:
        return everstep.gate("ok")

    @everstep.workflow(name="r6 caller of that")
    def flow() -> Any:
        return child()

    store.start(flow, id="r")
    (run,) = (one.id for one in store.runs(parent="r"))
    store.cancel("r")
    (gate,) = store.gates(run)
    assert (gate.open, gate.cancelled, gate.answered) == (False, True, False)
    with pytest.raises(NotFound, match="was cancelled and has no open gate"):
        store.answer(run, "ok", 1)


def test_an_answer_after_the_default_was_taken_is_too_late(store: everstep.Store) -> None:
    """It hears the same as one that comes before a process has looked at the run; the default is called no answer."""

    @everstep.workflow(name="r6 default taken")
    def flow() -> Any:
        return everstep.gate("ok", timeout=0.05, default="none")

    store.start(flow, id="r")
    time.sleep(0.1)
    with pytest.raises(AnswerTooLate):
        store.answer("r", "ok", 1)
    assert store.resume("r").unwrap() == "none"
    with pytest.raises(AnswerTooLate, match="the deadline of gate 'ok#0' of run 'r' passed at"):
        store.answer("r", "ok", 1)

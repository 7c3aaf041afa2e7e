"""A budget holds: under concurrency, over children, and after kill -9. A caller's timeout reaches its children."""

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Lock
from typing import Any

import pytest

import everstep
from everstep import Budget

calls: list[Any] = []
lock = Lock()


@pytest.fixture(autouse=True)
def _no_calls() -> None:
    calls.clear()


@pytest.fixture
def store() -> Iterator[everstep.Store]:
    with everstep.open("memory://") as store:
        yield store
        assert store.verify("full").ok


async def awork(n: int, seconds: float = 0.01) -> int:
    calls.append(n)
    await asyncio.sleep(seconds)
    return n


def work(n: int, seconds: float = 0.01) -> int:
    with lock:
        calls.append(n)
    time.sleep(seconds)
    return n


def spend(tokens: int, cost: float = 0.0) -> int:
    calls.append(tokens)
    everstep.current().usage(tokens=tokens, cost=cost)
    return tokens


def test_a_gather_of_500_steps_runs_as_many_as_the_budget_has(store: everstep.Store) -> None:
    @everstep.workflow(budget=Budget(steps=10))
    async def flow() -> int:
        run = everstep.current()
        return sum(await asyncio.gather(*(run.step("work", awork, n) for n in range(500))))

    out = store.start(flow, id="r")
    assert (out.status, out.reason) == ("waiting", "budget: 10 steps of 10")
    assert len(calls) == 10
    assert len(store.steps("r")) == 10, "steps that had begun are recorded before the run stops"
    out = store.resume("r", budget=Budget(steps=500))
    assert out.unwrap() == sum(range(500))
    assert sorted(calls) == list(range(500)), "no finished step ran again"


@pytest.mark.parametrize("concurrency", [1, 8, 64])
def test_a_map_on_threads_runs_as_many_as_the_budget_has(store: everstep.Store, concurrency: int) -> None:
    @everstep.workflow(budget=Budget(steps=10))
    def flow() -> int:
        return sum(everstep.current().map(work, range(50), concurrency))

    out = store.start(flow, id="r")
    assert (out.status, len(calls), len(store.steps("r"))) == ("waiting", 10, 10)
    assert store.resume("r", budget=Budget(steps=17)).status == "waiting"
    assert len(calls) == 17
    assert store.resume("r", budget=Budget(steps=50)).unwrap() == sum(range(50))
    assert len(calls) == 50


def test_a_map_of_tasks_runs_as_many_as_the_budget_has(store: everstep.Store) -> None:
    @everstep.workflow(budget=Budget(steps=10))
    async def flow() -> int:
        return sum(await everstep.current().map(awork, range(50), 20))

    out = store.start(flow, id="r")
    assert (out.status, out.reason, len(calls), len(store.steps("r"))) == ("waiting", "budget: 10 steps of 10", 10, 10)


def test_a_loop_of_ones_own_is_held_to_its_budget(store: everstep.Store) -> None:
    with pytest.raises(everstep.errors.Interrupted), store.run("r", budget=Budget(steps=10)) as run:
        run.map(work, range(50), 32)
    assert (len(calls), len(store.steps("r")), store.get("r").status) == (10, 10, "waiting")


def test_steps_inside_steps_are_reserved_too(store: everstep.Store) -> None:
    @everstep.workflow(budget=Budget(steps=3))
    def flow() -> int:
        run = everstep.current()
        return run.step("outer", lambda: sum(run.step("inner", work, n) for n in range(5)))

    assert store.start(flow, id="r").reason == "budget: 3 steps of 3"
    assert len(calls) == 2, "the outer step is one of the three"


def test_tokens_stop_the_next_step_and_no_more_begin(store: everstep.Store) -> None:
    async def think(n: int) -> int:
        calls.append(n)
        await asyncio.sleep(0.01 * n)
        everstep.current().usage(tokens=100)
        return n

    @everstep.workflow(budget=Budget(tokens=100))
    async def flow() -> Any:
        run = everstep.current()
        await asyncio.gather(*(run.step("think", think, n) for n in range(3)))
        return await run.step("more", think, 9)

    out = store.start(flow, id="r")
    assert (out.status, out.reason) == ("waiting", "budget: 300 tokens of 100"), "three ran at once: their use was not known before"
    assert sorted(calls) == [0, 1, 2]


def test_a_retry_begins_no_attempt_beyond_the_budget(store: everstep.Store) -> None:
    def dear() -> None:
        calls.append(1)
        everstep.current().usage(tokens=60)
        raise OSError("busy")

    @everstep.workflow(budget=Budget(tokens=100))
    def flow() -> None:
        everstep.current().step("dear", dear, retry=everstep.Retry(attempts=9, delay=0))

    assert store.start(flow, id="r").reason == "budget: 120 tokens of 100"
    assert len(calls) == 2
    assert store.resume("r", budget=Budget(tokens=200)).reason == "budget: 240 tokens of 200"
    assert len(calls) == 4
    assert store.resume("r", budget=Budget(tokens=10_000)).status == "failed"
    assert len(calls) == 9, "attempts count on"


def test_a_step_that_was_cancelled_gives_its_place_back(store: everstep.Store) -> None:
    @everstep.workflow(budget=Budget(steps=3))
    async def flow() -> Any:
        run = everstep.current()
        slow = asyncio.create_task(run.step("slow", awork, 1, 30))
        await asyncio.sleep(0.02)
        slow.cancel()
        await asyncio.gather(slow, return_exceptions=True)
        return [await run.step("work", awork, n) for n in (2, 3, 4)]

    assert store.start(flow, id="r").unwrap() == [2, 3, 4]


# children


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_the_steps_of_children_count_for_their_caller(store: everstep.Store, colour: str) -> None:
    if colour == "sync":

        @everstep.workflow(name="r5-child")
        def child(n: int) -> int:
            return sum(everstep.current().step("work", work, i) for i in range(n))

        @everstep.workflow(name="r5-parent", budget=Budget(steps=10))
        def parent() -> int:
            return sum(child(4) for _ in range(4))
    else:

        @everstep.workflow(name="r5-child")
        async def child(n: int) -> int:
            return sum([await everstep.current().step("work", awork, i) for i in range(n)])

        @everstep.workflow(name="r5-parent", budget=Budget(steps=10))
        async def parent() -> int:
            return sum([await child(4) for _ in range(4)])

    out = store.start(parent, id="p")
    assert (out.status, out.reason) == ("waiting", "budget: 10 steps of 10")
    assert len(calls) == 8, "two children with four steps each, and the two children are steps, too"
    before = len(calls)
    assert store.resume("p").reason == "budget: 10 steps of 10"
    assert len(calls) == before, "what children used is remembered"
    assert store.resume("p", budget=Budget(steps=20)).unwrap() == 24
    assert len(calls) == 16


def test_tokens_and_cost_of_a_child_count_while_it_runs_and_after_a_resume(store: everstep.Store) -> None:
    @everstep.workflow(name="r5-spender")
    def child() -> int:
        for _ in range(5):
            everstep.current().step("spend", spend, 10, 0.5)
        return 1

    @everstep.workflow(name="r5-payer", budget=Budget(tokens=30))
    def parent() -> int:
        return child()

    out = store.start(parent, id="p")
    assert (out.status, out.reason, calls) == ("waiting", "budget: 30 tokens of 30", [10] * 3)
    assert store.get("p.r5-spender.0").status == "waiting"
    assert store.resume("p", budget=Budget(cost=2)).reason == "budget: cost 2 of 2"
    assert len(calls) == 4
    out = store.resume("p", budget=Budget(tokens=1000))
    assert (out.status, len(calls)) == ("succeeded", 5)


def test_a_child_may_have_a_smaller_budget_of_its_own(store: everstep.Store) -> None:
    @everstep.workflow(name="r5-small", budget=Budget(steps=2))
    def child() -> int:
        return sum(everstep.current().step("work", work, i) for i in range(5))

    @everstep.workflow(name="r5-big", budget=Budget(steps=100))
    def parent() -> int:
        return child()

    out = store.start(parent, id="p")
    assert (out.status, len(calls)) == ("waiting", 2)
    assert "budget: 2 steps of 2" in (out.reason or "")


def test_children_in_parallel_share_the_budget_of_their_caller(store: everstep.Store) -> None:
    @everstep.workflow(name="r5-one")
    async def child(n: int) -> int:
        return sum(await asyncio.gather(*(everstep.current().step("work", awork, i) for i in range(n))))

    @everstep.workflow(name="r5-many", budget=Budget(steps=20))
    async def parent() -> int:
        return sum(await asyncio.gather(*(child(10) for _ in range(8))))

    out = store.start(parent, id="p")
    assert out.status == "waiting"
    recorded = sum(len(store.steps(run.id)) for run in store.runs())
    assert len(calls) <= 20
    assert recorded <= 20
    assert store.resume("p", budget=Budget(steps=88)).unwrap() == 8 * 45
    assert len(calls) == 80


def test_a_child_that_was_resumed_by_itself_counts_for_its_caller(store: everstep.Store) -> None:
    @everstep.workflow(name="r5-asker")
    def child() -> int:
        everstep.gate("ok")
        return sum(everstep.current().step("spend", spend, 10) for _ in range(5))

    @everstep.workflow(name="r5-caller", budget=Budget(tokens=40))
    def parent() -> int:
        child()
        return everstep.current().step("spend", spend, 1)

    store.start(parent, id="p")
    store.answer("p.r5-asker.0", "ok", 1)
    store.resume("p.r5-asker.0")
    assert store.resume("p").reason in ("budget: 40 tokens of 40", "budget: 50 tokens of 40")
    assert 1 not in calls


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_a_callers_timeout_reaches_its_child(store: everstep.Store, colour: str) -> None:
    if colour == "sync":

        @everstep.workflow(name="r5-long")
        def child() -> int:
            return sum(everstep.current().step("work", work, i, 0.05) for i in range(60))

        @everstep.workflow(name="r5-patient", timeout=0.2)
        def parent() -> int:
            return child()
    else:

        @everstep.workflow(name="r5-long")
        async def child() -> int:
            return sum([await everstep.current().step("work", awork, i, 0.05) for i in range(60)])

        @everstep.workflow(name="r5-patient", timeout=0.2)
        async def parent() -> int:
            return await child()

    began = time.monotonic()
    out = store.start(parent, id="p")
    assert time.monotonic() - began < 2
    assert out.status == "waiting"
    assert (out.reason or "").startswith("timeout: ")
    found = store.get("p.r5-long.0")
    assert found.status == "waiting"
    assert len(calls) == len(store.steps("p.r5-long.0")) < 60


# kill -9

PROGRAM = """
import os, sys, time
import everstep

def work(n):
    print(n, flush=True)
    time.sleep(0.25)
    if os.environ.get("DIE") == str(n):
        os.kill(os.getpid(), 9)
    return n

@everstep.workflow(name="r5-steps")
def steps():
    return sum(everstep.current().step("work", work, n) for n in range(8))

@everstep.workflow(name="r5-child")
def child():
    return steps()

@everstep.workflow(name="r5-killed", budget=everstep.Budget(seconds=0.4))
def flow():
    if sys.argv[2] == "0":
        return steps.function()
    return steps() if sys.argv[2] == "1" else child()

with everstep.open(sys.argv[1]) as store:
    out = store.start(flow, id="r")
    print(out.status, out.reason, flush=True)
"""


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_a_budget_of_seconds_survives_kill_9(tmp_path: Path, depth: int) -> None:
    """Also if the steps are those of a child, or of a child of it: then the run itself records nothing before the kill."""
    import os

    path = tmp_path / "s.db"
    environment = os.environ | {"PYTHONPATH": str(Path(everstep.__file__).parents[1])}

    def program(die: int | None) -> str:
        env = environment | ({} if die is None else {"DIE": str(die)})
        return subprocess.run(
            [sys.executable, "-c", PROGRAM, str(path), str(depth)], capture_output=True, text=True, env=env, check=False
        ).stdout

    assert program(1) == "0\n1\n", "0.25 s are recorded"
    last = program(None)
    assert last.startswith("1\nwaiting budget: "), last
    assert program(None).startswith("waiting budget: ")
    with everstep.open(path) as store:
        assert sum(step.name == "work" for run in store.runs() for step in store.steps(run.id)) == 2


def test_seconds_of_children_that_run_at_the_same_time_count_once(store: everstep.Store) -> None:
    """The journals of two children tell of killed attempts: 2 s and 3 s, of which the caller itself recorded 1 s, and 1 s is that of both."""
    from everstep.runtime.limits.running_time import Attempt, seconds_in

    own = [Attempt(0, 1_000_000, False)]
    killed = [Attempt(500_000, 2_500_000, False), Attempt(1_500_000, 4_500_000, False)]
    assert seconds_in([*own, *killed]) - seconds_in(own) == 3.5


def test_seconds_of_attempts_without_a_budget_count(store: everstep.Store) -> None:
    @everstep.workflow(name="r5-later")
    def flow() -> int:
        run = everstep.current()
        run.step("work", work, 1, 0.2)
        everstep.gate("ok")
        return run.step("work", work, 2)

    store.start(flow, id="r")
    time.sleep(0.3)
    store.answer("r", "ok", 1)
    assert (store.resume("r", budget=Budget(seconds=0.15)).reason or "").startswith("budget: 0.2")
    assert store.resume("r", budget=Budget(seconds=0.45)).status == "succeeded", "the time at the gate does not count"


def test_a_child_that_waits_at_a_gate_is_not_taken_for_one_that_the_budget_stopped(store: everstep.Store) -> None:
    @everstep.workflow(name="r5-gated")
    def child() -> Any:
        return everstep.gate("ok")

    @everstep.workflow(name="r5-last", budget=Budget(steps=1))
    def parent() -> Any:
        return child()

    assert "gate" in (store.start(parent, id="p").reason or "")
    store.answer("p.r5-gated.0", "ok", 7)
    assert store.resume("p").unwrap() == 7


def test_what_a_run_has_used_includes_its_children_also_after_a_resume(store: everstep.Store) -> None:
    used: list[dict[str, float]] = []

    @everstep.workflow(name="r5-below")
    def child() -> Any:
        return everstep.current().step("spend", spend, 10)

    @everstep.workflow(name="r5-above")
    def parent() -> Any:
        child()
        used.append(everstep.current().used)
        everstep.gate("ok")
        return everstep.current().step("spend", spend, 5)

    store.start(parent, id="p")
    store.answer("p", "ok", 1)
    store.resume("p")
    assert [(one["steps"], one["tokens"]) for one in used] == [(2, 10), (2, 10)]

"""`worker.run(until_idle=True)` returns only when nothing that it could take is due: also outside of queues."""

from __future__ import annotations

import time
from typing import Any

import pytest

import everstep
from everstep.errors import DamagedRun
from everstep.runtime.run import attempt_of
from everstep.runtime.waits import control as operate

calls: list[str] = []


@pytest.fixture(autouse=True)
def _fresh() -> None:
    calls.clear()


@everstep.workflow(name="f2-job")
def job(n: int) -> int:
    time.sleep(0.02)
    return n * n


@everstep.workflow(name="f2-chain")
def chain(depth: int) -> int:
    """A run that a program started, and that becomes due again and again: each time a run of a queue has ended."""
    store = attempt_of(everstep.current()).store
    return sum(store.enqueue(job, n).wait().unwrap() for n in range(depth))


@everstep.workflow(name="f2-flaky", retry=everstep.Retry(attempts=3, delay=0))
def flaky() -> str:
    calls.append("try")
    if len(calls) < 3:
        raise OSError("down")
    return "up"


@everstep.workflow(name="f2-child")
def child(n: int) -> Any:
    return everstep.gate("ok")


@everstep.workflow(name="f2-parent")
def parent() -> Any:
    return [child(n) for n in range(3)]


@everstep.workflow(name="f2-asleep")
def asleep() -> None:
    everstep.sleep(3600)


def test_F2_a_started_run_that_becomes_due_while_the_worker_works_is_driven_to_its_end(store: everstep.Store) -> None:
    assert store.start(chain, 4, id="c").status == "waiting"
    store.worker().run(until_idle=True)
    assert store.get("c").status == "succeeded"
    assert store.due() == []


def test_F2_a_failed_run_that_is_to_be_tried_again_now_is_tried(store: everstep.Store) -> None:
    assert store.start(flaky, id="f").status == "failed"
    store.worker().run(until_idle=True)
    assert store.get("f").status == "succeeded"
    assert len(calls) == 3


def test_F2_a_parent_whose_children_were_answered(store: everstep.Store) -> None:
    store.start(parent, id="p")
    for n in range(3):
        store.answer(f"p.f2-child.{n}", "ok", n)
        store.worker().run(until_idle=True)
    assert store.get("p").status == "succeeded"
    assert store.resume("p").result == [0, 1, 2]


def test_F2_more_runs_are_due_than_fit_at_once(store: everstep.Store) -> None:
    for n in range(12):
        store.start(child, n, id=f"r{n}")
        store.answer(f"r{n}", "ok", n)
    store.worker(concurrency=2).run(until_idle=True)
    assert {run.status for run in store.runs()} == {"succeeded"}


def test_F2_runs_that_this_worker_cannot_take_hold_up_neither_it_nor_others(store: everstep.Store) -> None:
    """As many as it has slots, and due before the others."""
    for n in range(3):
        flow = everstep.workflow(name="f2-unknown")(lambda: everstep.gate("ok"))
        store.start(flow, id=f"u{n}")
        store.answer(f"u{n}", "ok", n)
    from everstep.runtime import workflow

    del workflow._known["f2-unknown"]
    store.start(child, 1, id="mine")
    store.answer("mine", "ok", 1)
    began = time.monotonic()
    store.worker(concurrency=2).run(until_idle=True)
    assert time.monotonic() - began < 20
    assert store.get("mine").status == "succeeded"
    assert store.get("u0").status == "waiting"


def test_F2_a_time_in_the_future_outside_of_queues_does_not_hold_it(store: everstep.Store) -> None:
    store.start(asleep, id="s")
    began = time.monotonic()
    store.worker().run(until_idle=True)
    assert time.monotonic() - began < 20
    assert store.get("s").status == "waiting"


def test_F2_without_recover_it_leaves_runs_outside_of_queues_alone_and_ends(store: everstep.Store) -> None:
    store.start(child, 1, id="mine")
    store.answer("mine", "ok", 1)
    began = time.monotonic()
    store.worker(recover=False).run(until_idle=True)
    assert time.monotonic() - began < 20
    assert store.get("mine").status == "waiting"


def test_F2_a_damaged_run_that_is_due_keeps_no_other_asleep(store: everstep.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    for run in ("a", "b"):
        store.start(child, 1, id=run)
        store.answer(run, "ok", 1)
    looked = operate._worth_waking

    def is_damaged(host: Any, run: str, now: int) -> bool:
        if run == "a":
            raise DamagedRun("run 'a' has a message for another run")
        return looked(host, run, now)

    monkeypatch.setattr(operate, "_worth_waking", is_damaged)
    store.worker().run(until_idle=True)
    assert store.get("b").status == "succeeded"

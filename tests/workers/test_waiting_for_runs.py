"""A workflow that waits for a run that it enqueued gives its worker's slot back."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest
import worker_programs
from worker_helpers import Hand, Notes, Working

import everstep
from everstep.errors import InvalidArgument
from everstep.queues import awaiting
from everstep.runtime.waits import wake_callers
from everstep.testing.waiting import until

Start = Callable[..., Hand]
ONE = {"concurrency": 1}


@pytest.mark.parametrize("flow", ["gather", "agather"])
def test_one_place_is_enough_for_a_parent_and_twenty_children(store: everstep.Store, hands: Start, notes: Notes, flow: str) -> None:
    job = store.enqueue(flow, 20)
    hands(flow, "leaf", worker=ONE)
    assert job.wait(60).unwrap() == sum(n * n for n in range(20))
    assert [notes.count(what) for what in ("gather begins", "leaf", "gather ends")] == [1, 20, 1]
    assert len(store.runs(limit=100)) == 21


def test_workers_that_are_killed_in_between_cost_no_result(store: everstep.Store, hands: Start, notes: Notes) -> None:
    job = store.enqueue("gather", 8, 3)
    deaths = 0
    while not job.is_over():
        hand = hands("gather", "leaf", worker=ONE)
        until(lambda hand=hand: not hand.actor._process.is_alive() or job.is_over())
        deaths += not job.is_over()
    assert job.wait(0).unwrap() == sum(n * n for n in range(8))
    assert (deaths, notes.count("gather begins"), notes.count("gather ends")) == (3, 1, 1)
    assert notes.count("leaf") == 8 + 3


def test_the_parent_is_waiting_and_says_for_what(store: everstep.Store, hands: Start) -> None:
    job = store.enqueue("watch", "asks", id="parent")
    hands("watch", "leaf", worker=ONE)
    until(lambda: store.get("parent-leaf").status == "waiting" if store.backend.run("parent-leaf") else False)
    until(lambda: job.status == "waiting")
    assert job.wait(0).reason == "the end of run 'parent-leaf'"
    assert store.backend.queue_entry("parent").worker is None  # type: ignore[union-attr]
    store.answer("parent-leaf", "leaf", "go")
    assert job.wait(60).unwrap()[:2] == ["succeeded", 1]


@pytest.mark.parametrize(
    ("fate", "expected"),
    [("", ["succeeded", 1, "NoneType", "None", None]), ("fails", ["failed", None, "ValueError", "leaf 1", None])],
)
def test_the_outcome_is_that_of_the_run(store: everstep.Store, hands: Start, fate: str, expected: list[Any]) -> None:
    job = store.enqueue("watch", fate)
    hands("watch", "leaf", worker=ONE)
    assert job.wait(60).unwrap() == expected


def test_a_run_that_is_cancelled_ends_the_wait(store: everstep.Store, hands: Start) -> None:
    job = store.enqueue("watch", "asks", id="parent")
    hands("watch", "leaf", worker=ONE)
    until(lambda: store.backend.run("parent-leaf") is not None and store.get("parent-leaf").status == "waiting" == job.status)
    store.cancel("parent-leaf", "no more")
    began = time.monotonic()
    assert job.wait(60).unwrap() == ["cancelled", None, "NoneType", "None", "cancel: no more"]
    assert time.monotonic() - began < 4, "it was woken, and did not have to look by itself"


def test_a_wait_times_out_and_a_replay_gives_the_same(store: everstep.Store, notes: Notes) -> None:
    worker_programs._store[:] = [store]
    flows = worker_programs.know(notes.path, "watch", "leaf")
    began = time.monotonic()
    out = store.start(flows["watch"], "asks", 0.3, id="parent")
    assert out.status == "waiting"
    while out.status == "waiting":
        time.sleep(0.05)
        out = next(iter(store.wake()), out)
    assert 0.3 <= time.monotonic() - began < 30
    assert out.unwrap()[:2] == ["queued", None]
    store.worker(concurrency=1).run(until_idle=True)
    store.answer("parent-leaf", "leaf", "go")
    store.worker(concurrency=1).run(until_idle=True)
    assert store.get("parent-leaf").status == "succeeded"
    forked = store.resume("parent", replay="normal")
    assert forked.unwrap()[:2] == ["queued", None]
    row = store.backend.run("parent")
    assert row is not None
    assert store.backend.messages("parent") == []


def test_a_lost_wake_up_is_made_up_for(store: everstep.Store, hands: Start, notes: Notes, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the worker had died between recording the end of the child and posting the wake-up."""
    worker_programs._store[:] = [store]
    flows = worker_programs.know(notes.path, "watch", "leaf")
    monkeypatch.setattr(wake_callers, "_wake", lambda *_: None)
    monkeypatch.setattr(awaiting, "_SOONEST", 300_000)
    assert store.start(flows["watch"], "", id="parent").status == "waiting"
    store.worker(concurrency=1, recover=False).run(until_idle=True)
    assert store.get("parent-leaf").status == "succeeded"
    until(lambda: store.due() == ["parent"])
    (out,) = store.wake()
    assert out.unwrap()[:2] == ["succeeded", 1]


def test_outside_of_a_workflow_and_inside_a_step_it_blocks(store: everstep.Store, working: Callable[..., Working], notes: Notes) -> None:
    worker_programs._store[:] = [store]
    worker_programs.know(notes.path, "leaf")

    @everstep.workflow(name="blocks")
    def blocks() -> int:
        return everstep.current().step("all", lambda: store.enqueue("leaf", 3).wait(60).unwrap())  # type: ignore[no-any-return]

    working(store)
    assert store.start(blocks).unwrap() == 9
    assert store.enqueue("leaf", 4).wait(60).unwrap() == 16
    assert asyncio.run(store.enqueue("leaf", 5).wait_async(60)).unwrap() == 25
    assert asyncio.run(store.enqueue("leaf", 5, queue="none").wait_async(0.05)).status == "queued"
    with store.run("loop") as run:
        run.state["found"] = store.enqueue("leaf", 6).wait(60).unwrap()
    assert store.load("loop") == {"found": 36}


def test_a_child_that_ends_while_its_caller_is_about_to_wait_wakes_it(store: everstep.Store, hands: Start, notes: Notes) -> None:
    """Many at once: parents and children of two workers with few slots each, and no wake-up is lost."""
    jobs = store.enqueue_many([{"args": [4]} for _ in range(6)], workflow="gather")
    for _ in range(2):
        hands("gather", "leaf", worker={"concurrency": 2})
    began = time.monotonic()
    assert [job.wait(60).unwrap() for job in jobs] == [14] * 6
    assert time.monotonic() - began < 50
    assert notes.count("leaf") == 24


def test_a_run_that_is_deleted_while_it_is_awaited_fails_the_wait(store: everstep.Store, notes: Notes) -> None:
    worker_programs._store[:] = [store]
    flows = worker_programs.know(notes.path, "watch", "leaf")
    assert store.start(flows["watch"], "asks", id="parent").status == "waiting"
    store.cancel("parent-leaf")
    store.delete("parent-leaf")
    (out,) = store.wake()
    assert (out.status, type(out.error).__name__) == ("failed", "NotFound")


def test_a_timeout_that_is_no_number_is_refused(store: everstep.Store, notes: Notes) -> None:
    worker_programs._store[:] = [store]
    flows = worker_programs.know(notes.path, "watch", "leaf")
    for bad in ("x", -1, True):
        out = store.start(flows["watch"], "", bad)
        assert isinstance(out.error, InvalidArgument)


def test_sigterm_while_a_parent_waits_changes_nothing(store: everstep.Store, hands: Start, notes: Notes) -> None:
    job = store.enqueue("watch", "asks", id="parent")
    first = hands("watch", "leaf", worker=ONE)
    until(lambda: store.backend.run("parent-leaf") is not None and store.get("parent-leaf").status == "waiting" == job.status)
    first.signal(signal.SIGTERM)
    first.actor.ended()
    hands("watch", "leaf", worker=ONE)
    store.answer("parent-leaf", "leaf", "go")
    assert job.wait(60).unwrap()[:2] == ["succeeded", 1]

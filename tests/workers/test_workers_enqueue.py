"""Putting runs into queues: from inside of runs, by name, at most once, later, and in order."""

import signal
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import worker_programs
from worker_helpers import Hand, Notes

import everstep
from everstep.errors import EverstepError, InvalidArgument, RunExists, Unstorable
from everstep.testing.waiting import until

Start = Callable[..., Hand]


def test_what_a_run_enqueued_is_not_enqueued_again_after_its_worker_died(store: everstep.Store, hands: Start, notes: Notes) -> None:
    parent = store.enqueue("parent", 3)
    assert hands("parent").actor.ended() == -signal.SIGKILL
    hands("parent", "count", worker={"queues": ["default", "children"]})
    children = parent.wait(60).unwrap()
    assert len(set(children)) == 4
    for child in children:
        until(lambda child=child: store.get(child).status == "succeeded")
    assert {run.id for run in store.runs(limit=100)} == {parent.id, *children}
    assert notes.count("step 0") == 4


def test_a_run_is_enqueued_by_its_name_where_the_workflow_is_not_known(store: everstep.Store, hands: Start) -> None:
    run = store.enqueue("count", 2, id="named")
    assert (run.id, run.new, run.status, str(run)) == ("named", True, "queued", "named")
    assert store.get("named").meta == {"queue": "default"}
    one = hands("count")
    assert run.wait(60).unwrap() == [one.pid] * 2
    again = store.enqueue("count", 2, id="named")
    assert (again.new, again.wait(0).unwrap()) == (False, [one.pid] * 2)


def test_of_many_that_enqueue_the_same_at_once_one_is_made_and_all_get_it(store: everstep.Store, notes: Notes) -> None:
    worker_programs.know(notes.path, "count")
    gate = threading.Barrier(8)
    found: list[Any] = []

    def one() -> None:
        gate.wait()
        found.append(store.enqueue("count", 1, dedupe="report"))

    threads = [threading.Thread(target=one) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({run.id for run in found}) == 1
    assert sum(run.new for run in found) == 1
    assert store.enqueue("count", 1, dedupe="report", queue="other").new
    store.worker(["default", "other"]).run(until_idle=True)
    assert notes.count("step 0") == 2
    assert store.enqueue("count", 1, dedupe="report").new  # that one has ended


def test_the_highest_priority_is_driven_first_and_what_is_delayed_later(store: everstep.Store, notes: Notes) -> None:
    worker_programs.know(notes.path, "count")
    late = store.enqueue("count", 1, priority=99, delay=timedelta(seconds=0.5))
    order = [store.enqueue("count", 1, priority=priority).id for priority in (0, -1, 5, 0)]
    store.worker(concurrency=1).run(until_idle=True)
    driven = [line["run"] for line in notes.all("step 0")]
    assert sorted(driven) == sorted([*order, late.id])
    assert [run for run in driven if run != late.id] == [order[2], order[0], order[3], order[1]]


def test_a_delay_is_kept(store: everstep.Store, notes: Notes) -> None:
    import time

    worker_programs.know(notes.path, "count")
    before = time.monotonic_ns()
    store.enqueue("count", 1, delay=0.6)
    store.worker().run(until_idle=True)
    assert notes.all("step 0")[0]["at"] - before >= 0.6e9


@pytest.mark.parametrize(
    ("arguments", "options", "code"),
    [
        ((1,), {"queue": ""}, "E104"),
        ((1,), {"queue": "a b"}, "E104"),
        ((1,), {"queue": 7}, "E104"),
        ((1,), {"priority": 1.5}, "E104"),
        ((1,), {"priority": True}, "E104"),
        ((1,), {"priority": 2**31}, "E104"),
        ((1,), {"delay": -1}, "E104"),
        ((1,), {"delay": "soon"}, "E104"),
        ((1,), {"delay": float("nan")}, "E104"),
        ((1,), {"key": 5}, "E104"),
        ((1,), {"dedupe": "x" * 300}, "E104"),
        ((1,), {"id": "with space"}, "E104"),
        ((lambda: 1,), {}, "E101"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_made(
    store: everstep.Store, arguments: tuple[Any, ...], options: dict[str, Any], code: str
) -> None:
    with pytest.raises(EverstepError) as caught:
        store.enqueue("count", *arguments, **options)
    assert caught.value.code == code
    assert store.runs() == []


def test_an_input_that_a_known_workflow_cannot_take_is_refused(store: everstep.Store, notes: Notes) -> None:
    flow = worker_programs.know(notes.path, "count")["count"]
    with pytest.raises(InvalidArgument):
        store.enqueue(flow)
    with pytest.raises(Unstorable):
        store.enqueue(flow, threading.Lock())
    store.enqueue(flow, 1, id="r")
    with pytest.raises(RunExists) as caught:
        store.enqueue(flow, 2, id="r")
    assert caught.value.code == "E203"


@pytest.mark.parametrize(
    "options",
    [{"concurrency": 0}, {"concurrency": 1.5}, {"per_key": -1}, {"rate": 5}, {"rate": (0, 1)}, {"rate": (1, 0)}, {"rate": ("1", 1)}],
)
def test_limits_that_make_no_sense_are_refused(store: everstep.Store, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument):
        store.limit("q", **options)


@pytest.mark.parametrize("options", [{"queues": []}, {"queues": [""]}, {"concurrency": 0}, {"concurrency": True}, {"max_deaths": 0}])
def test_workers_that_make_no_sense_are_refused(store: everstep.Store, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument):
        store.worker(**options)

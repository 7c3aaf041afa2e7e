"""Runs that wait in queues: how they get there, what they are until somebody drives them, and what is refused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import everstep
from everstep.backends.contract.queues import Limits
from everstep.errors import InvalidArgument, NotFound, RunExists
from everstep.queues.enqueue import limits_of

ran: list[Any] = []


@everstep.step
def note(what: Any) -> Any:
    ran.append(what)
    return what


@everstep.workflow
def queued_double(number: int) -> int:
    return int(note(number)) * 2


@everstep.workflow
def ask_first() -> Any:
    return everstep.gate("boss", ask="Go on?")


@everstep.workflow
def breaks() -> None:
    raise ValueError("no")


@everstep.workflow(retry=everstep.Retry(attempts=3, delay=0.05, jitter=0))
def third_time(name: str) -> int:
    ran.append(name)
    if ran.count(name) < 3:
        raise OSError("not yet")
    return ran.count(name)


@everstep.workflow
def delegates(store_key: str, count: int) -> list[str]:
    made = [stores[store_key].enqueue(queued_double, number, queue="inner") for number in range(count)]
    everstep.gate("boss", ask="Go on?")
    return [one.id for one in made]


@everstep.workflow
def delegates_at_once(store_key: str, count: int) -> list[str]:
    made = stores[store_key].enqueue_many([{"args": [number]} for number in range(count)], workflow=queued_double, queue="inner")
    everstep.gate("boss", ask="Go on?")
    return [one.id for one in made]


@everstep.workflow
async def delegates_at_once_async(store_key: str, count: int) -> list[str]:
    made = stores[store_key].enqueue_many([{"args": [number]} for number in range(count)], workflow=queued_double, queue="inner")
    await everstep.gate("boss", ask="Go on?")
    return [one.id for one in made]


stores: dict[str, everstep.Store] = {}


@pytest.fixture(autouse=True)
def _nothing_ran() -> None:
    ran.clear()


def test_a_run_that_was_enqueued_waits_and_can_be_looked_at(store: everstep.Store) -> None:
    handle = store.enqueue(queued_double, 4, queue="mail", priority=3, key="k", dedupe="d")
    assert (handle.status, handle.new, handle.queue, str(handle)) == ("queued", True, "mail", handle.id)
    (info,) = store.runs(status="queued")
    assert (info.id, info.workflow, info.meta) == (handle.id, "queued_double", {"queue": "mail"})
    entry = store.backend.queue_entry(handle.id)
    assert entry is not None
    assert (entry.task.queue, entry.task.priority, entry.task.key, entry.task.dedupe) == ("mail", 3, "k", "d")
    assert handle.wait(0).status == "queued"
    assert ran == []


def test_a_worker_drives_it_and_its_outcome_is_there(store: everstep.Store, work: Any) -> None:
    work(store)
    outcome = store.enqueue(queued_double, 4).wait(30)
    assert (outcome.status, outcome.result) == ("succeeded", 8)
    (queue,) = store.queues()
    assert (queue.name, queue.taken, queue.ended, queue.failed, queue.freed, queue.oldest) == ("default", 1, 1, 0, 0, None)
    store.enqueue("nobody has this")
    (queue,) = store.queues(1)
    assert queue.oldest is not None
    assert abs((datetime.now(UTC) - queue.oldest).total_seconds()) < 60


def test_an_async_workflow_is_driven_too(store: everstep.Store, work: Any) -> None:
    @everstep.workflow(name="async double")
    async def adouble(number: int) -> int:
        return number * 2

    work(store)
    assert store.enqueue(adouble, 4).wait(30).result == 8


def test_the_same_id_and_input_is_the_same_run_and_another_input_is_refused(store: everstep.Store) -> None:
    first = store.enqueue(queued_double, 4, id="one")
    again = store.enqueue(queued_double, 4, id="one")
    assert (first.new, again.new, again.id) == (True, False, "one")
    with pytest.raises(RunExists):
        store.enqueue(queued_double, 5, id="one")
    with pytest.raises(RunExists):
        store.enqueue(ask_first, id="one")


def test_a_double_gives_the_run_that_waits_until_that_has_ended(store: everstep.Store, work: Any) -> None:
    first = store.enqueue(queued_double, 4, dedupe="four")
    second = store.enqueue(queued_double, 5, dedupe="four")
    assert (second.id, second.new) == (first.id, False)
    work(store)
    first.wait(30)
    third = store.enqueue(queued_double, 5, dedupe="four")
    assert third.new
    assert third.wait(30).result == 10


def test_a_workflow_may_be_named_and_its_input_is_looked_at_by_who_has_it(store: everstep.Store, work: Any) -> None:
    work(store)
    assert store.enqueue("queued_double", 4).wait(30).result == 8
    assert store.enqueue("queued_double", 1, 2, 3).wait(30).status == "failed"
    with pytest.raises(InvalidArgument):
        store.enqueue(queued_double, 1, 2, 3)


@pytest.mark.parametrize(
    "options",
    [
        {"queue": ""}, {"queue": "a b"}, {"queue": 5}, {"priority": "high"}, {"priority": True}, {"priority": 2**40}, {"delay": -1},
        {"delay": "soon"}, {"delay": float("nan")}, {"key": 7}, {"dedupe": b"x"}, {"id": "a b"},
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused_and_leaves_nothing(store: everstep.Store, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument):
        store.enqueue(queued_double, 4, **options)
    assert list(store.runs()) == []


def test_a_delay_is_kept_and_others_go_past(store: everstep.Store, work: Any) -> None:
    late = store.enqueue(queued_double, 1, delay=timedelta(seconds=0.6), priority=9)
    soon = store.enqueue(queued_double, 2)
    work(store)
    assert soon.wait(30).result == 4
    assert late.status == "queued"
    assert late.wait(30).result == 2
    assert ran == [2, 1]


def test_a_run_that_waits_for_an_answer_goes_on_with_it(store: everstep.Store, work: Any) -> None:
    worker = work(store, concurrency=1)
    handle = store.enqueue(ask_first)
    while handle.status != "waiting":
        pass
    assert store.enqueue(queued_double, 4).wait(30).result == 8  # the only entry of the worker is free meanwhile
    store.answer(handle.id, "boss", "yes")
    assert handle.wait(30).result == "yes"
    assert worker.counts.waiting == 1


def test_a_failed_run_is_tried_again_as_its_retry_says(store: everstep.Store, work: Any) -> None:
    work(store)
    assert store.enqueue(third_time, "t").wait(30).result == 3
    failed = store.enqueue(breaks).wait(30)
    assert (failed.status, type(failed.error)) == ("failed", ValueError)
    assert store.backend.queue_entries() == []


def test_cancelling_and_pausing_a_run_that_waits_in_a_queue(store: everstep.Store, work: Any) -> None:
    gone, held = store.enqueue(queued_double, 1), store.enqueue(queued_double, 2)
    store.cancel(gone.id)
    store.pause(held.id)
    work(store)
    assert store.enqueue(queued_double, 3).wait(30).result == 6
    assert (gone.status, held.status, ran) == ("cancelled", "waiting", [3])
    assert store.resume(held.id).result == 4


@pytest.mark.parametrize("flow", [delegates, delegates_at_once, delegates_at_once_async])
def test_inside_a_run_it_is_a_step_and_is_not_done_again(flow: Any, store: everstep.Store, work: Any) -> None:
    stores["s"] = store
    outer = store.start(flow, "s", 3, id="outer")
    assert outer.status == "waiting"
    inner = sorted(entry.run for entry in store.backend.queue_entries("inner"))
    assert len(inner) == 3
    store.answer("outer", "boss", "yes")
    assert sorted(store.resume("outer").result) == inner
    assert len(list(store.runs(workflow="queued_double"))) == 3


def test_limits_are_set_read_and_taken_away(store: everstep.Store) -> None:
    store.limit("mail", concurrency=1, per_key=2, rate=(10, 60))
    assert [queue.name for queue in store.queues()] == ["mail"]
    store.limit("mail", concurrency=None, per_key=None, rate=None)
    assert store.queues() == []
    year = 366 * 86_400
    for good in ((1, 60), (2**31 - 1, 60), (1, year)):
        store.limit("mail", rate=good)
    too_much = [{"rate": (2**31, 60)}, {"rate": (1, year + 1)}]
    for bad in ({"concurrency": 0}, {"per_key": 1.5}, {"rate": 5}, {"rate": (0, 1)}, {"rate": (1, 0)}, *too_much):
        with pytest.raises(InvalidArgument):
            store.limit("mail", **bad)  # type: ignore[arg-type]


def test_a_limit_that_is_left_out_does_not_change_and_none_removes_it(store: everstep.Store) -> None:
    store.limit("mail", concurrency=1, per_key=2)
    store.limit("mail", rate=(10, 60))
    assert limits_of(store, "mail") == Limits(1, 2, 10, 60_000_000)
    store.limit("mail", concurrency=3)
    assert limits_of(store, "mail") == Limits(3, 2, 10, 60_000_000)
    store.limit("mail", rate=None)
    assert limits_of(store, "mail") == Limits(3, 2)
    store.limit("mail", per_key=None, concurrency=None)
    assert store.queues() == []
    with pytest.raises(InvalidArgument, match="no limit was given for the queue 'mail'"):
        store.limit("mail")


def test_a_worker_that_makes_no_sense_is_refused(store: everstep.Store) -> None:
    for bad in (
        {"queues": []},
        {"queues": ["a b"]},
        {"queues": 3},
        {"concurrency": 0},
        {"max_deaths": 0},
        {"orders_in": "app.db"},
        {"orders_in": 3},
    ):
        with pytest.raises(InvalidArgument):
            store.worker(**bad)  # type: ignore[arg-type]


def test_a_worker_ends_by_itself_when_nothing_is_left(store: everstep.Store) -> None:
    handles = [store.enqueue(queued_double, number) for number in range(5)]
    store.worker(concurrency=2).run(until_idle=True)
    assert [handle.status for handle in handles] == ["succeeded"] * 5


def test_what_is_waited_for_and_not_there_says_so(store: everstep.Store) -> None:
    handle = store.enqueue(queued_double, 1)
    store.delete(handle.id)
    assert handle.wait(0).status == "queued"
    with pytest.raises(NotFound):
        store.unschedule("nobody")


def test_runs_outside_of_queues_are_woken_and_taken_over(store: everstep.Store, work: Any) -> None:
    store.start(ask_first, id="plain")
    store.answer("plain", "boss", "yes")
    work(store)
    while store.backend.run("plain").status != "succeeded":  # type: ignore[union-attr]
        pass
    assert store.resume("plain").result == "yes"


def test_wake_leaves_the_runs_of_queues_to_workers_who_keep_their_limits(store: everstep.Store) -> None:
    store.limit("default", concurrency=1)
    queued = [store.enqueue(ask_first) for _ in range(2)]
    assert store.wake() == []
    store.worker().run(until_idle=True)
    for one in queued:
        store.answer(one.id, "boss", True)
    assert sorted(store.due()) == sorted(one.id for one in queued)
    assert store.wake() == []
    store.worker().run(until_idle=True)
    assert [one.wait(0).result for one in queued] == [True, True]

"""A run that sleeps or waits for an answer needs no worker meanwhile."""

from collections.abc import Callable

import pytest
import worker_programs
from worker_helpers import Notes, Working

import everstep
from everstep.testing.waiting import until

Start = Callable[..., Working]


@pytest.fixture(autouse=True)
def known(notes: Notes) -> None:
    worker_programs.know(notes.path)


def test_others_run_while_one_sleeps_and_it_goes_on_by_itself(store: everstep.Store, working: Start, notes: Notes) -> None:
    one = working(store, concurrency=1)
    sleeper = store.enqueue("sleeper", 2.0)
    one_waits = until(lambda: one.seen("waiting", run=sleeper.id))
    assert one_waits
    for _ in range(3):
        assert store.enqueue("count", 1).wait(60).status == "succeeded"
    assert notes.count("after") == 0
    assert sleeper.status == "waiting"
    assert sleeper.wait(60).unwrap() == "slept"
    before, after = notes.all("before")[0], notes.all("after")[0]
    assert after["at"] - before["at"] >= 2e9
    assert (notes.count("before"), notes.count("after")) == (1, 1)


def test_others_run_while_one_waits_for_an_answer_which_wakes_it(store: everstep.Store, working: Start, notes: Notes) -> None:
    one = working(store, concurrency=1)
    asker = store.enqueue("asker")
    until(lambda: one.seen("waiting", run=asker.id))
    assert store.enqueue("count", 1).wait(60).status == "succeeded"
    (depth,) = store.queues()
    assert (depth.waiting, depth.running, depth.ready) == (1, 0, 0)
    store.answer(asker.id, "ok", "yes")
    assert asker.wait(60).unwrap() == "yes"
    assert len(one.seen("taken", run=asker.id)) == 2
    assert (notes.count("before"), notes.count("after")) == (1, 1)


def test_an_answer_that_comes_before_the_question_is_found(store: everstep.Store, working: Start) -> None:
    asker = store.enqueue("asker")
    store.answer(asker.id, "ok", "early")
    working(store, concurrency=1)
    assert asker.wait(60).unwrap() == "early"


def test_a_run_that_waits_can_be_cancelled_and_paused_and_leaves_its_queue(store: everstep.Store, working: Start) -> None:
    one = working(store, concurrency=1)
    first, second = store.enqueue("asker"), store.enqueue("asker")
    until(lambda: one.seen("waiting", run=first.id) and one.seen("waiting", run=second.id))
    store.cancel(first.id)
    assert first.wait(60).status == "cancelled"
    store.pause(second.id)
    store.answer(second.id, "ok", 1)
    assert store.enqueue("count", 1).wait(60).status == "succeeded"
    assert second.status == "waiting"
    assert [entry.run for entry in store.backend.queue_entries()] == [second.id]
    assert store.resume(second.id).unwrap() == 1
    assert store.backend.queue_entries() == []


def test_until_idle_ends_when_nothing_goes_on_by_itself(store: everstep.Store, notes: Notes) -> None:
    asker, sleeper = store.enqueue("asker"), store.enqueue("sleeper", 0.3)
    later = store.enqueue("count", 1, delay=0.3)
    store.worker().run(until_idle=True)
    assert (asker.status, sleeper.status, later.status) == ("waiting", "succeeded", "succeeded")
    store.answer(asker.id, "ok", 1)
    store.worker().run(until_idle=True)
    assert asker.wait(0).unwrap() == 1


def test_until_idle_does_not_wait_for_others_to_do_what_this_worker_cannot(store: everstep.Store, notes: Notes) -> None:
    foreign, known = store.enqueue("nobody knows it", 1), store.enqueue("count", 1, delay=0.2)
    store.worker().run(until_idle=True)
    assert (foreign.status, known.status) == ("queued", "succeeded")

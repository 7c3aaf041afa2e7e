"""A hundred at once that start or enqueue one id."""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import worker_programs
from worker_helpers import Notes

import everstep
from everstep.errors import EverstepError, LeaseHeld
from harness.faults.actor import Actor

PROCESSES, THREADS = 10, 10


def try_it(how: str, store: everstep.Store, flow: Any) -> str:
    try:
        if how == "start":
            outcome = store.start(flow, 3, id="one")
            return "ran" if outcome.report.executed else outcome.status
        return f"new {store.enqueue(flow, 3, id='one').new}"
    except LeaseHeld:
        return "held"
    except EverstepError as error:
        return repr(error)


def crowd(pipe: Any, url: str, notes: Path, how: str) -> None:
    """Ten threads of a process that all start the same run at a sign."""
    flow = worker_programs.know(notes, "count")["count"]
    with everstep.open(url) as store:
        gate = threading.Barrier(THREADS + 1)
        found: list[str] = []

        def one() -> None:
            gate.wait()
            found.append(try_it(how, store, flow))

        threads = [threading.Thread(target=one) for _ in range(THREADS)]
        for thread in threads:
            thread.start()
        pipe.send("ready")
        pipe.recv()
        gate.wait()
        for thread in threads:
            thread.join()
        pipe.send(found)


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def together(actors: list[Actor]) -> list[Any]:
    for actor in actors:
        assert actor.hear() == "ready"
    for actor in actors:
        actor.tell("go")
    return [actor.hear() for actor in actors]


def test_of_a_hundred_starts_of_one_id_exactly_one_runs(url: str, notes: Notes, stack: ExitStack) -> None:
    found = together([stack.enter_context(Actor(crowd, url, notes.path, "start")) for _ in range(PROCESSES)])
    said = Counter(word for words in found for word in words)
    assert said["ran"] == 1
    assert set(said) <= {"ran", "held", "succeeded"}
    assert said.total() == PROCESSES * THREADS
    assert [notes.count(f"step {n}") for n in range(3)] == [1, 1, 1]
    with everstep.open(url) as store:
        assert store.get("one").status == "succeeded"
        assert store.verify("full").ok


def test_of_a_hundred_that_enqueue_one_id_one_makes_it_and_it_runs_once(url: str, notes: Notes, stack: ExitStack) -> None:
    found = together([stack.enter_context(Actor(crowd, url, notes.path, "enqueue")) for _ in range(PROCESSES)])
    assert Counter(word for words in found for word in words) == {"new True": 1, "new False": PROCESSES * THREADS - 1}
    worker_programs.know(notes.path, "count")
    with everstep.open(url) as store:
        store.worker().run(until_idle=True)
        assert store.get("one").status == "succeeded"
        assert [notes.count(f"step {n}") for n in range(3)] == [1, 1, 1]
        assert store.verify("full").ok

"""The queue entries of runs are proven against the runs, and one that is lost or wrong is put right. On every kind of store."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import apsw
import psycopg
import pytest

import everstep
from everstep.backends.contract.queues import QueueEntry, Task
from everstep.records import RunRow, Status
from everstep.store.queue_entries import restore_entries
from everstep.testing.queued import beginning, ending, enqueue, message, take
from everstep.testing.rows import new_worker

HOUR = 3_600_000_000
Tamper = Callable[..., None]


@pytest.fixture
def tamper(places: Any, store: everstep.Store) -> Tamper:
    """Changes, behind the store's back, the queue entry of a run; with nothing to set, it is lost."""

    def change(run: str, **values: Any) -> None:
        if places.kind == "memory":
            entry = store.backend._data.runs[run]  # type: ignore[attr-defined]
            entry.waiting = _changed(entry.waiting, values) if values else None
            return
        home, _, schema = places._url.partition("schema=")
        prefix = f'"{schema}".' if schema else ""
        mark = "%s" if schema else "?"
        sets = ", ".join(f"{name} = {mark}" for name in values)
        head = f"UPDATE {prefix}tasks SET {sets}" if values else f"DELETE FROM {prefix}tasks"
        sql, bound = f"{head} WHERE run = (SELECT pk FROM {prefix}runs WHERE id = {mark})", (*values.values(), run)
        if schema:
            with psycopg.connect(home.rstrip("?&"), autocommit=True) as server:
                server.execute(sql.encode(), bound)
        else:
            connection = apsw.Connection(str(places.path))
            connection.set_busy_timeout(5000)
            connection.execute(sql, bound)
            connection.close()

    return change


def _changed(waiting: Any, values: dict[str, Any]) -> Any:
    for name, value in values.items():
        if hasattr(waiting, name):
            setattr(waiting, name, value)
        else:
            waiting.task = Task(**{field: getattr(waiting.task, field) for field in ("queue", "priority", "key", "dedupe")} | {name: value})
    return waiting


def begun(store: everstep.Store, run: str, worker: Any = None) -> RunRow:
    """A run that a worker has taken and begun."""
    (taken,) = take(store.backend, worker or new_worker())
    assert taken.row is not None
    assert taken.run == run
    commit = beginning(taken.row)
    store.backend.commit(commit)
    return commit.run


def complaints(store: everstep.Store) -> list[str]:
    found = store.verify("records").problems
    assert store.verify("quick").ok
    assert [str(problem) for problem in store.verify("full").problems] == [str(problem) for problem in found]
    return [f"{problem.where}: {problem.what.partition(';')[0]}" for problem in found]


def one_of_everything(store: everstep.Store) -> dict[str, QueueEntry | None]:
    """Runs in all the ways in which one can wait in a queue, or not wait any more."""
    backend = store.backend
    for name, status, messages in (
        ("succeeded", Status.SUCCEEDED, ()),
        ("failed", Status.FAILED, ()),
        ("cancelled", Status.CANCELLED, ()),
        ("retried", Status.FAILED, ("retry",)),
        ("gate", Status.WAITING, ()),
        ("timer", Status.WAITING, ("timer:sleep#0",)),
    ):
        enqueue(backend, name, Task("q", 1, "key", f"once {name}"))
        row = begun(store, name)
        backend.commit(ending(row, status, tuple(message(row, n, HOUR) for n in messages)))
    enqueue(backend, "paused", Task("q"))
    row = backend.run("paused")
    assert row is not None
    backend.post(message(row, "pause", None), "paused")
    enqueue(backend, "given back")
    backend.release(begun(store, "given back"))
    enqueue(backend, "held", Task("q", 5))
    begun(store, "held")
    enqueue(backend, "dead", Task("q", 6))
    worker = new_worker()
    begun(store, "dead", worker)
    assert backend.free([worker.id]) == 1
    enqueue(backend, "later", Task("q"), HOUR)
    enqueue(backend, "ready", Task("other", -3))
    with store.run("loop", state={"n": 1}):
        pass
    return {name: backend.queue_entry(name) for name in (row.id for row in store.runs())}


def test_the_queue_entries_of_runs_in_every_condition_are_right(store: everstep.Store) -> None:
    found = one_of_everything(store)
    assert {name for name, entry in found.items() if entry is None} == {"succeeded", "failed", "cancelled", "loop"}
    assert complaints(store) == []
    assert restore_entries(store.backend, thorough=True) == []


def test_a_lost_entry_is_told_and_put_back_as_it_was(store: everstep.Store, tamper: Tamper) -> None:
    before = one_of_everything(store)
    for name, entry in before.items():
        if entry is None:
            continue
        tamper(name)
        assert complaints(store) == [f"run {name}: it has no entry in queue {entry.task.queue!r}, so no worker will take it"]
        assert restore_entries(store.backend, thorough=name == "retried") == [name]
        now = store.backend.queue_entry(name)
        assert now is not None
        assert now.task == entry.task
        if name == "dead":  # who looks after the dead finds it once more
            assert (now.ready, now.worker is None) == (None, False)
        elif name == "given back":
            assert now.ready is not None
        else:
            assert (now.ready, now.worker) == (entry.ready, entry.worker)
        assert complaints(store) == []


def test_all_lost_entries_are_put_back_at_once(store: everstep.Store, tamper: Tamper) -> None:
    before = {name: entry for name, entry in one_of_everything(store).items() if entry is not None}
    for name in before:
        tamper(name)
    assert len(complaints(store)) == len(before)
    assert set(restore_entries(store.backend)) == set(before) - {"retried"}
    assert restore_entries(store.backend, thorough=True) == ["retried"]
    assert {entry.run for entry in store.backend.queue_entries()} == set(before)
    assert complaints(store) == []


@pytest.mark.parametrize(
    ("name", "wrong", "what"),
    [
        ("later", {"queue": "elsewhere"}, "its entry in queue 'elsewhere' differs from what its first record requests"),
        ("later", {"priority": 7}, "its entry in queue 'q' differs from what its first record requests"),
        ("later", {"key": "x"}, "its entry in queue 'q' differs from what its first record requests"),
        ("timer", {"dedupe": "x"}, "its entry in queue 'q' differs from what its first record requests"),
        ("later", {"ready": None}, "its entry in queue 'q' has another time than the run waits for"),
        ("timer", {"ready": 5}, "its entry in queue 'q' has another time than the run waits for"),
        ("gate", {"ready": 5}, "its entry in queue 'q' has another time than the run waits for"),
        ("paused", {"ready": 5}, "its entry in queue 'q' has another time than the run waits for"),
        ("ready", {"worker": "w"}, "its entry in queue 'other' names worker w, but no worker holds the run"),
    ],
)
def test_a_wrong_entry_is_told_and_put_right(store: everstep.Store, tamper: Tamper, name: str, wrong: dict[str, Any], what: str) -> None:
    before = one_of_everything(store)[name]
    tamper(name, **wrong)
    assert complaints(store) == [f"run {name}: {what}"]
    assert restore_entries(store.backend, thorough=True) == [name]
    assert store.backend.queue_entry(name) == before
    assert complaints(store) == []


@pytest.mark.parametrize("wrong", [{"worker": None}, {"worker": "another"}, {"ready": 5}])
def test_an_entry_that_does_not_know_its_worker_is_told_and_put_right(store: everstep.Store, tamper: Tamper, wrong: dict[str, Any]) -> None:
    enqueue(store.backend, "held")
    row = begun(store, "held")
    tamper("held", **wrong)
    assert complaints(store) == [f"run held: its entry in queue 'q' does not name worker {row.worker}, which holds the run"]
    assert restore_entries(store.backend, thorough=True) == ["held"]
    entry = store.backend.queue_entry("held")
    assert entry is not None
    assert (entry.worker, entry.ready) == (row.worker, None)
    store.backend.commit(ending(row))  # whoever has it goes on
    assert complaints(store) == []


def test_an_entry_of_a_run_that_was_never_put_into_a_queue_is_told(store: everstep.Store) -> None:
    from everstep.backends.contract.core import Commit

    with store.run("loop", state={"n": 1}):
        pass
    with store.run("open", state={"n": 1}) as run:
        run.checkpoint()
        row = store.backend.run("open")
        assert row is not None
        store.backend.commit(Commit(row, row, task=Task("q")))
        assert complaints(store) == ["run open: its entry in queue 'q' is not requested by its first record"]
    assert complaints(store) == []  # it went with the end of the run


def test_a_run_that_failed_for_good_and_is_driven_again_needs_no_entry(store: everstep.Store) -> None:
    enqueue(store.backend, "again")
    store.backend.commit(ending(begun(store, "again"), Status.FAILED))
    row = store.backend.acquire("again", new_worker())
    commit = beginning(row)
    store.backend.commit(commit)
    assert store.backend.queue_entry("again") is None
    assert complaints(store) == []
    assert restore_entries(store.backend, thorough=True) == []


def test_an_entry_that_is_put_back_leaves_a_double_that_came_meanwhile_alone(store: everstep.Store, tamper: Tamper) -> None:
    enqueue(store.backend, "first", Task("q", dedupe="once"))
    tamper("first")
    enqueue(store.backend, "second", Task("q", dedupe="once"))
    assert restore_entries(store.backend) == ["first"]
    first, second = store.backend.queue_entry("first"), store.backend.queue_entry("second")
    assert first is not None
    assert second is not None
    assert (first.task.dedupe, second.task.dedupe) == (None, "once")
    assert complaints(store) == []


@everstep.workflow(name="placed plain")
def plain(n: int) -> int:
    return n


@everstep.workflow(name="placed asking")
def asking() -> str:
    return str(everstep.gate("boss", ask="Go on?"))


@everstep.workflow(name="placed failing", retry=everstep.Retry(attempts=2, delay=3600, max_delay=3600))
def failing() -> None:
    raise OSError("down")


def _drive(store: everstep.Store, **until: str) -> None:
    """Have a worker drive the queue until runs have a status and nobody drives them."""
    worker = store.worker(queues=["q"])
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        while any((str(store.get(run).status), _held(store, run)) != (status, False) for run, status in until.items()):
            time.sleep(0.02)
    finally:
        worker.stop()
        thread.join()


def _held(store: everstep.Store, run: str) -> bool:
    row = store.backend.run(run)
    return row is not None and row.worker is not None


def test_what_programs_enqueue_and_workers_drive_has_the_right_entries_all_the_way(store: everstep.Store, tamper: Tamper) -> None:
    for name, flow, args in (("plain", plain, (1,)), ("asking", asking, ()), ("failing", failing, ())):
        store.enqueue(flow, *args, id=name, queue="q", priority=2, dedupe=name)
    store.enqueue(plain, 2, id="later", queue="q", delay=3600)
    assert complaints(store) == []
    for name in ("plain", "asking"):
        tamper(name)
    assert len(complaints(store)) == 2
    assert sorted(restore_entries(store.backend)) == ["asking", "plain"]
    assert complaints(store) == []
    _drive(store, plain="succeeded", asking="waiting", failing="failed")
    assert store.get("later").status == "queued"
    assert complaints(store) == []
    store.answer("asking", "boss", "yes")
    assert complaints(store) == []
    _drive(store, asking="succeeded")
    store.pause("later")
    assert complaints(store) == []
    store.cancel("later")
    assert complaints(store) == []

"""Repair and queues: a run that waits in a queue waits there in the new store, whatever became of its old entry."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import apsw
import pytest

import everstep
from everstep.backends.contract.queues import LIMITS, Limits, QueueEntry, Task
from everstep.records import Status
from everstep.store.store import first_commit
from everstep.testing.queued import beginning, ending, enqueue, message, take
from everstep.testing.rows import new_worker

HOUR = 3_600_000_000


@everstep.workflow
def nightly() -> None:
    """What a schedule starts."""


@pytest.fixture
def made(tmp_path: Path) -> tuple[Path, dict[str, QueueEntry]]:
    """A store with runs in a queue, and where they stand."""
    path = tmp_path / "s.db"
    with everstep.open(path) as store:
        backend = store.backend
        for name in ("done", "failed", "retried", "asleep", "held"):
            enqueue(backend, name, Task("q", 3, "k", name))
            (taken,) = take(backend, new_worker())
            assert taken.row is not None
            commit = beginning(taken.row)
            backend.commit(commit)
            row = commit.run
            if name == "done":
                backend.commit(ending(row))
            elif name in ("failed", "retried"):
                backend.commit(ending(row, Status.FAILED, (message(row, "retry", HOUR),) if name == "retried" else ()))
            elif name == "asleep":
                backend.commit(ending(row, Status.WAITING, (message(row, "timer:sleep#0", HOUR),)))
        enqueue(backend, "later", Task("other", -1, None, "once"), HOUR)
        enqueue(backend, "deleted", Task("q"))
        store.delete("deleted")
        backend.set_property(LIMITS + "q", Limits(concurrency=3).text())
        store.schedule("nightly", nightly, cron="0 3 * * *", queue="other")
        assert store.verify("full").ok
        return path, {entry.run: entry for entry in backend.queue_entries()}


def change(path: Path, statement: str) -> None:
    connection = apsw.Connection(str(path))
    connection.execute(statement).fetchall()
    connection.close()


def headless(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[:4096] = bytes(4096)
    path.write_bytes(data)


@pytest.mark.parametrize(
    "damage",
    [
        None,
        "DELETE FROM tasks",
        "UPDATE tasks SET queue = 'x', priority = 9, key = NULL, ready = 1, worker = 'w'",
        "INSERT INTO tasks VALUES (77, 'q', 0, NULL, NULL, 5, NULL, 0, 0)",
        "UPDATE manifest SET total = zeroblob(32)",
        "headless",
    ],
)
def test_every_run_that_waits_in_a_queue_has_its_entry_in_the_new_store(
    made: tuple[Path, dict[str, QueueEntry]], damage: str | None
) -> None:
    path, expected = made
    assert set(expected) == {"retried", "asleep", "held", "later"}
    if damage == "headless":
        headless(path)
    elif damage is not None:
        change(path, damage)
    done = everstep.repair(path, path.with_name("new.db"))
    assert [loss.what for loss in done.lost] == (["manifest"] if damage is not None and "manifest" in damage else [])
    with everstep.open(path.with_name("new.db")) as store:
        assert {entry.run: entry for entry in store.backend.queue_entries()} == expected
        assert store.backend.properties(LIMITS) == {LIMITS + "q": Limits(concurrency=3).text()}
        assert [(one.name, one.cron) for one in store.schedules()] == [("nightly", "0 3 * * *")]
        assert store.verify("full").ok


def test_the_run_of_a_worker_that_is_gone_is_given_to_another_one_in_the_new_store(made: tuple[Path, dict[str, QueueEntry]]) -> None:
    everstep.repair(made[0], made[0].with_name("new.db"))
    with everstep.open(made[0].with_name("new.db")) as store:
        assert store.backend.free() == 1
        assert [taken.run for taken in take(store.backend, new_worker(), 5, ("q", "other"))] == ["held"]
        assert store.verify("full").ok


def test_a_run_whose_past_is_in_doubt_waits_paused(made: tuple[Path, dict[str, QueueEntry]]) -> None:
    path, _ = made
    change(path, "DELETE FROM records WHERE kind = 'status' AND id >> 31 = (SELECT pk FROM runs WHERE id = 'asleep')")
    connection = apsw.Connection(str(path))
    connection.execute("VACUUM").fetchall()  # nothing of them is left in free space
    connection.close()
    done = everstep.repair(path, path.with_name("new.db"))
    assert done.paused == ["asleep"]
    with everstep.open(path.with_name("new.db")) as store:
        entry = store.backend.queue_entry("asleep")
        assert entry is not None
        assert (entry.task, entry.ready, entry.worker) == (Task("q", 3, "k", "asleep"), None, None)
        assert store.verify("full").ok


def test_a_task_that_makes_no_sense_is_none(tmp_path: Path) -> None:
    tasks: list[Any] = [["q"], ["q", 1 << 63, None, None], ["q", "0", None, None], "q", {"queue": "q"}, ["q", 0, 1, 2]]
    path = tmp_path / "s.db"
    with everstep.open(path) as store:
        for n, task in enumerate(tasks):
            store.backend.commit(first_commit(store, f"r{n}", {}, {"task": task}, ()))
        assert store.verify("full").ok
    assert everstep.repair(path, tmp_path / "new.db").ok
    with everstep.open(tmp_path / "new.db") as store:
        assert store.backend.queue_entries() == []
        assert store.verify("full").ok

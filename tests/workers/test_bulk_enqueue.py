"""Many runs enqueued at once, and the list of live workers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import warm
import worker_programs
from worker_helpers import Hand, Notes, Working

import everstep
from everstep.errors import InvalidArgument, RunExists
from everstep.testing.waiting import until

Start = Callable[..., Hand]


def test_hundreds_are_enqueued_at_once_and_all_run(store: everstep.Store, working: Callable[..., Working], notes: Notes) -> None:
    worker_programs.know(notes.path, "count")
    made = store.enqueue_many([{"args": [1]} for _ in range(300)], workflow="count", queue="bulk")
    assert len({job.id for job in made}) == 300
    assert all(job.new and job.queue == "bulk" for job in made)
    assert store.queues()[0].ready == 300
    assert store.verify("full").ok
    store.worker(["bulk"]).run(until_idle=True)
    assert {job.status for job in made} == {"succeeded"}


def test_each_item_has_its_own_options_and_dedupe(store: everstep.Store) -> None:
    first = store.enqueue("count", 1, id="there", queue="a", dedupe="x")
    made = store.enqueue_many(
        [
            {"workflow": "count", "args": [1], "queue": "a", "dedupe": "x"},
            {"workflow": "count", "kwargs": {"steps": 2}, "id": "mine", "priority": 5, "key": "k", "dedupe": "y"},
            {"workflow": "count", "args": [2], "dedupe": "y"},
            {"workflow": "count", "kwargs": {"steps": 2}, "id": "mine"},
            {"workflow": "count", "args": [1], "id": "there", "queue": "a"},
            {"workflow": "count", "args": [3], "delay": 60},
        ],
        queue="b",
    )
    assert [(job.id, job.new) for job in made[:5]] == [
        (first.id, False),
        ("mine", True),
        ("mine", False),
        ("mine", False),
        ("there", False),
    ]
    entry = store.backend.queue_entry("mine")
    assert entry is not None
    assert entry.task == ("b", 5, "k", "y")
    later = store.backend.queue_entry(made[5].id)
    assert later is not None
    assert later.ready is not None
    assert later.ready > entry.ready  # type: ignore[operator]
    assert store.enqueue_many([]) == []


def test_one_item_that_cannot_be_enqueued_leaves_all_out(store: everstep.Store) -> None:
    store.enqueue("count", 1, id="taken")
    good: list[dict[str, Any]] = [{"workflow": "count", "args": [n], "id": f"n{n}"} for n in range(5)]
    bad: list[tuple[dict[str, Any], type[Exception]]] = [
        ({"workflow": "count", "args": [9], "id": "taken"}, RunExists),
        ({"workflow": "count", "args": [9], "id": "n1"}, RunExists),
        ({"workflow": "count", "args": [object()]}, Exception),
        ({"workflow": "count", "args": 5}, InvalidArgument),
        ({"workflow": "count", "prio": 5}, InvalidArgument),
        ({"args": [5]}, InvalidArgument),
        ({"workflow": "count", "id": "a b\n"}, InvalidArgument),
    ]
    for item, error in bad:
        with pytest.raises(error):
            store.enqueue_many([*good, item])
        assert [run.id for run in store.runs(limit=100)] == ["taken"], item
    with pytest.raises(InvalidArgument, match="item 5: unknown key prio"):
        store.enqueue_many([*good, bad[4][0]])
    with pytest.raises(InvalidArgument):
        store.enqueue_many({"workflow": "count"})  # type: ignore[arg-type]


def test_two_who_enqueue_the_same_ids_at_once_make_each_run_once(store: everstep.Store, url: str) -> None:
    items = [{"workflow": "count", "args": [n], "id": f"r{n}"} for n in range(40)]
    found: list[list[Any]] = []
    gate = threading.Barrier(4)

    def one() -> None:
        with everstep.open(url) as mine:
            gate.wait()
            found.append(mine.enqueue_many(items))

    threads = [threading.Thread(target=one) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert [sum(made[n].new for made in found) for n in range(40)] == [1] * 40
    assert len(store.runs(limit=100)) == 40


def test_inside_a_run_it_is_one_step_and_a_crash_makes_no_second_run(store: everstep.Store, hands: Start, notes: Notes) -> None:
    parent = store.enqueue("fan_out", 30)
    assert hands("fan_out").actor.ended() == -signal.SIGKILL
    hands("fan_out", "count", worker={"queues": ["default", "children"]})
    assert len(set(parent.wait(60).unwrap())) == 30
    until(lambda: notes.count("step 0") == 30)
    assert len(store.runs(limit=100)) == 31


def test_the_command_reads_lines_and_enqueues_all_or_none(url: str, store: everstep.Store) -> None:
    def enqueue(lines: str, *more: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "everstep", "enqueue", "--store", url, "--batch", *more]
        return warm.run(command, input=lines, capture_output=True, text=True, timeout=60, check=False)

    good = '{"workflow": "count", "args": [1], "id": "a"}\n\n{"args": [2], "queue": "other"}\n'
    done = enqueue(good, "count", "--queue", "lines")
    assert done.returncode == 0, done.stderr
    ids = done.stdout.split()
    assert ids[0] == "a"
    assert [store.backend.queue_entry(id).task.queue for id in ids] == ["lines", "other"]  # type: ignore[union-attr]
    for bad in ('{"workflow": "count", "id": "b"}\nnonsense\n', '{"workflow": "count", "id": "b"}\n[]\n', '{"id": "b", "queues": 1}\n'):
        refused = enqueue(bad)
        assert refused.returncode == 2, refused.stderr
        assert "line" in refused.stderr
    assert len(store.runs(limit=10)) == 2


def test_live_workers_are_listed_and_dead_ones_disappear(store: everstep.Store, hands: Start, notes: Notes, tmp_path: Path) -> None:
    assert store.workers() == []
    one = hands("held", worker={"queues": ["a", "b"], "concurrency": 3}, _version="7")
    job = store.enqueue("held", str(tmp_path / "go"), queue="b")
    until(lambda: notes.count("waits") == 1)
    (found,) = store.workers()
    assert (found.pid, found.queues, found.concurrency, found.workflows) == (one.pid, ["a", "b"], 3, {"held": "7"})
    assert found.runs == [job.id]
    assert found.host == os.uname().nodename
    assert found.last_seen is not None
    assert 0 <= (found.last_seen - found.since).total_seconds() < 60
    one.signal(signal.SIGKILL)
    one.actor.ended()
    assert store.workers() == []
    two = hands("held", worker={"queues": ["b"]})
    until(lambda: [worker.pid for worker in store.workers()] == [two.pid])
    until(lambda: len(store.backend.properties("worker:")) == 1)
    two.signal(signal.SIGTERM)
    (tmp_path / "go").touch()
    two.actor.ended()
    assert store.workers() == []
    assert store.backend.properties("worker:") == {}


def test_an_idle_worker_stays_listed_and_a_vanished_machine_leaves_with_its_lease(
    store: everstep.Store, hands: Start, notes: Notes
) -> None:
    hands("held", lease_seconds=1.0, _host="elsewhere")
    until(lambda: [worker.host for worker in store.workers()] == ["elsewhere"])
    started = store.workers()[0]
    until(lambda: store.workers()[0].last_seen > started.last_seen)  # type: ignore[operator]
    hand = store.workers()[0]
    os.kill(hand.pid, signal.SIGKILL)
    until(lambda: store.workers() == [])


def test_a_program_that_drives_a_run_is_listed_without_queues(store: everstep.Store, url: str) -> None:
    with everstep.open(url) as other, other.run("mine"):
        (found,) = store.workers()
        assert (found.runs, found.queues, found.workflows) == (["mine"], [], {})
    assert store.workers() == []


def test_a_worker_is_listed_with_its_queues_before_it_claims_its_first_run(store: everstep.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise `workers` shows a process without queues for a moment, and `queues --stranded` a queue without workers."""
    seen: list[list[str]] = []
    claim = store.keeper.claim

    def look(*args: object) -> object:
        seen.extend(worker.queues for worker in store.workers())
        return claim(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(store.keeper, "claim", look)
    store.worker(queues=["a", "b"]).run(until_idle=True)
    assert seen[0] == ["a", "b"]

"""Rolling deploys. The version that counts is that of the code that drove a run, whoever enqueued it."""

from __future__ import annotations

import itertools
import json
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import warm
import worker_programs
from worker_helpers import Hand, Notes

import everstep
from everstep.errors import OtherVersion
from everstep.runtime.workflow import Workflow
from everstep.testing.waiting import until

Start = Callable[..., Hand]


def code(version: str | None) -> Any:
    """The workflow as the program of one version has it: it asks, so that each driver records something and lets go."""

    def flow() -> list[Any]:
        run = everstep.current()
        first = run.step("first", lambda: version)
        return [first, everstep.gate("one"), run.step("second", lambda: version), everstep.gate("two")]

    return Workflow(flow, name="deployed", version=version)


def work(store: everstep.Store, version: str | None) -> list[dict[str, Any]]:
    """Have a worker of a version look for work until it finds none; gives what it told."""
    code(version)
    told: list[dict[str, Any]] = []
    store.worker(tell=told.append).run(until_idle=True)
    return told


ENQUEUED = {"by v1": "1", "by v2": "2", "by name": None, "unversioned": ""}
DRIVEN: dict[str, list[str | None]] = {
    "never": [], "v1": ["1"], "v2": ["2"], "v1 then v2": ["1", "2"], "unversioned": [None], "v1 then unversioned": ["1", None]
}  # fmt: skip
MAY_TAKE = {  # who may take it, of the workers of v1, of v2 and without a version
    "never": ["1", "2", None], "v1": ["1", None], "v2": ["2", None], "v1 then v2": ["2", None],
    "unversioned": ["1", "2", None], "v1 then unversioned": ["1", None],
}  # fmt: skip


@pytest.mark.parametrize("enqueued", ENQUEUED)
@pytest.mark.parametrize("driven", DRIVEN)
def test_who_may_take_a_run(tmp_path: Path, enqueued: str, driven: str) -> None:
    version = ENQUEUED[enqueued]
    for worker in ("1", "2", None):
        with everstep.open(tmp_path / f"{worker}.db") as store:
            job = store.enqueue("deployed" if version is None else code(version or None), id="job")
            for n, driver in enumerate(DRIVEN[driven]):
                if n == 0:
                    work(store, driver)
                else:  # another version takes over by hand
                    code(driver)
                    store.answer("job", "one", n)
                    store.resume("job")
            if DRIVEN[driven]:
                assert job.status == "waiting"
                store.answer("job", "two" if len(DRIVEN[driven]) > 1 else "one", 9)
            told = work(store, worker)
            took = job.status != "queued" and any(one["event"] in ("waiting", "succeeded") for one in told)
            assert took == (worker in MAY_TAKE[driven]), (worker, told)
            stranded = [] if took else store.stranded()
            assert store.verify("full").ok, stranded


def test_what_was_enqueued_by_v1_and_driven_by_v2_is_finished_by_v2_and_not_by_v1(store: everstep.Store) -> None:
    job = store.enqueue(code("1"))
    work(store, "2")
    store.answer(job.id, "one", "yes")
    left = [one for one in work(store, "1") if one["event"] == "left"]
    assert "version 2 of deployed executed run" in left[0]["reason"]
    work(store, "2")
    store.answer(job.id, "two", "too")
    work(store, "2")
    assert job.wait(0).unwrap() == ["2", "yes", "2", "too"]


def test_what_was_driven_and_recorded_nothing_may_be_taken_by_any_version(store: everstep.Store, hands: Start, notes: Notes) -> None:
    job = store.enqueue("deadly", 0)
    assert hands("deadly", _version="1").actor.ended() == -signal.SIGKILL
    two = hands("deadly", _version="2")
    assert two.actor.ended() == -signal.SIGKILL
    assert job.status == "running"


def test_a_worker_leaves_runs_outside_of_queues_to_their_version(store: everstep.Store) -> None:
    code("2")
    store.start(code("2"), id="mine")
    store.answer("mine", "one", "yes")
    assert [one["event"] for one in work(store, "1") if one.get("run") == "mine"][-1] == "left"
    assert store.get("mine").status == "waiting"
    code("1")
    assert store.resume("mine").status == "waiting"  # a person decided so
    work(store, "2")
    assert store.get("mine").status == "waiting"
    store.answer("mine", "two", "yes")
    left = [one for one in work(store, "2") if one["event"] == "left"]
    assert "version 1 of deployed executed run" in left[0]["reason"]


def test_a_fork_has_the_version_of_the_driver(store: everstep.Store) -> None:
    job = store.enqueue(code("1"))
    work(store, "2")
    fork = store.fork(f"{job.id}@1", id="fork")
    store.answer(str(fork.id if hasattr(fork, "id") else fork), "one", "yes", early=True)
    from everstep.runtime.workflow import recover

    code("1")
    with pytest.raises(OtherVersion):
        recover(store, "fork", 5)


def test_stranded_runs_are_listed_with_the_reason(url: str, store: everstep.Store, hands: Start, notes: Notes, tmp_path: Path) -> None:
    flows = worker_programs.know(notes.path, "asker", version="1")
    driven = store.enqueue(flows["asker"], id="driven")
    store.enqueue("asker", id="fresh", delay=600)
    store.enqueue("unheard", id="unheard")
    store.enqueue("asker", id="elsewhere", queue="other")
    assert {one.run: one.reason for one in store.stranded()}["driven"] == "no live worker serves queue 'default'"
    one = hands("asker", _version="1")
    until(lambda: driven.status == "waiting")
    until(lambda: {one.run for one in store.stranded()} == {"unheard", "elsewhere"})  # a worker may take a run before it announces itself
    one.signal(signal.SIGKILL)
    one.actor.ended()
    hands("asker", _version="2")
    until(lambda: len(store.workers()) == 1)
    until(lambda: {one.run for one in store.stranded()} == {"driven", "unheard", "elsewhere"})
    found = {one.run: one for one in store.stranded()}
    assert found.keys() == {"driven", "unheard", "elsewhere"}
    assert (found["driven"].version, found["driven"].queue, found["driven"].status) == ("1", "default", "waiting")
    assert found["driven"].reason == "version 1 of 'asker' executed it last; live workers of queue 'default' have version 2"
    assert found["unheard"].reason == "no live worker of queue 'default' has the workflow 'unheard'"
    assert found["elsewhere"].reason == "no live worker serves queue 'other'"
    command = [sys.executable, "-m", "everstep", "queues", "--store", url, "--stranded", "--json"]
    said = json.loads(warm.run(command, capture_output=True, text=True, timeout=60, check=True).stdout)
    assert {one["run"] for one in said["data"]} == found.keys()
    store.pause("driven")
    store.cancel("unheard")
    store.cancel("elsewhere")
    assert store.stranded() == []


def test_runs_outside_of_queues_are_listed_where_no_worker_recovers_them(store: everstep.Store, hands: Start, notes: Notes) -> None:
    worker_programs.know(notes.path, "asker")
    _here = worker_programs._here
    assert _here
    out = store.start(everstep.workflow(worker_programs.FLOWS["asker"], name="asker"), id="outside")
    assert out.status == "waiting"
    with store.run("loop"):
        pass
    assert [one.reason for one in store.stranded()] == ["no live worker takes runs outside of queues"]
    hands("asker", worker={"recover": False})
    until(lambda: len(store.workers()) == 1)
    assert [one.run for one in store.stranded()] == ["outside"]
    hands("asker")
    until(lambda: len(store.workers()) == 2)
    assert store.stranded() == []


def test_the_table_has_a_line_for_each_case() -> None:
    assert set(DRIVEN) == set(MAY_TAKE)
    assert len(list(itertools.product(ENQUEUED, DRIVEN, ("1", "2", None)))) == 72

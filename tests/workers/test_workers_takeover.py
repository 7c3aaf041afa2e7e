"""What becomes of runs whose worker died, sleeps, was told to stop, or does not know them."""

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import worker_programs
from worker_helpers import Hand, Notes, Working

import everstep
from everstep.errors import WorkerDied
from everstep.queues import worker
from everstep.runtime.engine import leases
from everstep.testing.postgres import Server
from everstep.testing.waiting import PATIENCE, until
from harness.faults.kills import takeovers

Start = Callable[..., Hand]


@pytest.mark.parametrize("flow", ["held", "aheld"])
def test_runs_of_a_killed_worker_are_taken_over_at_once_on_its_machine(
    store: everstep.Store, hands: Start, notes: Notes, tmp_path: Path, flow: str
) -> None:
    first = hands(flow)
    run = store.enqueue(flow, str(tmp_path / "go"))
    until(lambda: notes.count("waits") == 1)
    second = hands(flow)
    first.signal(signal.SIGKILL)
    taken = second.hear("taken", run=run.id)  # its lease has 12 s left: nobody waits for that
    assert taken["before"] is not None
    (tmp_path / "go").touch()
    assert run.wait(60).unwrap() == [first.pid, second.pid, second.pid]
    assert [notes.count(what) for what in ("first", "waits", "last 0")] == [1, 2, 1]


def test_a_machine_that_vanished_is_noticed_by_its_lease_alone(store: everstep.Store, hands: Start, notes: Notes, tmp_path: Path) -> None:
    gone = hands("held", _host="elsewhere", lease_seconds=1.5)
    run = store.enqueue("held", str(tmp_path / "go"))
    until(lambda: notes.count("waits") == 1)
    gone.signal(signal.SIGKILL)
    heir = hands("held")
    (tmp_path / "go").touch()
    assert run.wait(60).unwrap() == [gone.pid, heir.pid, heir.pid]
    assert notes.count("first") == 1


def test_unconfigured_that_takes_less_than_fifteen_seconds() -> None:
    assert leases.TTL_SECONDS + worker.LOOK_SECONDS + 1.0 <= 15.0


@pytest.mark.skipif("EVERSTEP_DEEP" not in os.environ, reason="takes 15 seconds for each store; EVERSTEP_DEEP=1 runs it")
def test_the_default_lease_of_a_vanished_machine_ends_in_time(store: everstep.Store, hands: Start, notes: Notes, tmp_path: Path) -> None:
    gone = hands("held", _host="elsewhere")
    run = store.enqueue("held", str(tmp_path / "go"))
    until(lambda: notes.count("waits") == 1)
    heir = hands("held")
    gone.signal(signal.SIGKILL)
    began = time.monotonic()
    heir.hear("taken", run=run.id)
    print(f"taken over after {time.monotonic() - began:.1f} s")
    (tmp_path / "go").touch()
    assert run.wait(60).unwrap()[0] == gone.pid


def _see_overtaken(slow: Hand, heir: Hand, run: str) -> None:
    """One that was stopped in the middle of a transaction keeps a store in SQLite locked, and is let go on for a moment."""
    limit = time.monotonic() + PATIENCE
    while not heir.listen().seen("taken", run=run):
        assert time.monotonic() < limit, heir.told
        if heir.actor.silent(2.0) or heir.listen().seen("trouble"):
            slow.actor.resume()
            time.sleep(0.002)
            slow.actor.stop()


def test_a_worker_that_was_stopped_and_overtaken_writes_nothing_when_it_wakes(
    store: everstep.Store, hands: Start, notes: Notes, tmp_path: Path
) -> None:
    times = int(os.environ.get("EVERSTEP_TAKEOVERS", "6"))
    slow = hands("held", lease_seconds=0.5, worker={"recover": False})
    for n in range(times):
        go = tmp_path / f"go{n}"
        run = store.enqueue("held", str(go), id=f"r{n}")
        slow.hear("taken", run=run.id)
        until(lambda n=n: notes.count("waits") == 2 * n + 1)
        slow.actor.stop()
        heir = hands("held", worker={"queues": "default"})
        _see_overtaken(slow, heir, run.id)
        go.touch()
        assert run.wait(60).unwrap() == [slow.pid, heir.pid, heir.pid]
        heir.signal(signal.SIGKILL)
        before = store.get(run.id), list(store.events(run=run.id))
        slow.actor.resume()
        slow.hear("lost", run=run.id)
        assert (store.get(run.id), list(store.events(run=run.id))) == before
    assert notes.count("first") == times
    assert notes.count("waits") == 2 * times
    assert notes.count("last 0") == times


def test_on_a_server_too_nothing_of_an_overtaken_writer_is_accepted(server: Server, tmp_path: Path) -> None:
    urls = server.database(), server.database()
    try:
        count = takeovers.on_server(urls, tmp_path, 20)
    finally:
        for url in urls:
            server.drop(url)
    assert count.ok, str(count)


@pytest.mark.parametrize("flow", ["held", "aheld"])
def test_sigterm_lets_the_step_finish_and_others_go_on_at_once(
    store: everstep.Store, hands: Start, notes: Notes, tmp_path: Path, flow: str
) -> None:
    first = hands(flow)
    run = store.enqueue(flow, str(tmp_path / "go"), 6)
    waiting = store.enqueue("count", 1)
    until(lambda: notes.count("waits") == 1)
    first.signal(signal.SIGTERM)
    assert first.hear("stopping")["signal"] == "SIGTERM"
    second = hands(flow, "count")
    assert waiting.wait(60).unwrap() == [second.pid]  # nothing new is taken by the first
    (tmp_path / "go").touch()
    assert run.wait(60).unwrap() == [first.pid, first.pid, *[second.pid] * 4]
    assert first.hear("given back")["run"] == run.id
    assert "before" not in second.listen().seen("taken", run=run.id)[0]
    assert first.actor.ended() == 0
    assert all(notes.count(what) == 1 for what in ("first", "waits", "goes on", "last 0", "last 3"))


def test_the_second_sigterm_ends_a_worker_at_once(store: everstep.Store, hands: Start, notes: Notes, tmp_path: Path) -> None:
    first = hands("held")
    run = store.enqueue("held", str(tmp_path / "go"))
    until(lambda: notes.count("waits") == 1)
    first.signal(signal.SIGTERM)
    first.hear("stopping")
    first.signal(signal.SIGTERM)
    assert first.actor.ended() == 128 + signal.SIGTERM
    (tmp_path / "go").touch()
    second = hands("held")
    assert run.wait(60).unwrap() == [first.pid, second.pid, second.pid]
    assert [notes.count(what) for what in ("first", "waits", "last 0")] == [1, 2, 1]


def test_a_run_that_kills_five_workers_goes_to_dead_letter_and_the_others_go_on(store: everstep.Store, hands: Start, notes: Notes) -> None:
    deadly = store.enqueue("deadly", id="deadly")
    others = [store.enqueue("count", 2) for _ in range(10)]
    for death in range(1, 6):
        one = hands("deadly", "count")
        assert one.actor.ended() == -signal.SIGKILL
        assert notes.count("dies") == death
    last = hands("deadly", "count")
    said = last.hear("dead-letter", run=deadly.id)
    assert said["deaths"] == 5
    out = deadly.wait(60)
    assert (out.status, type(out.error)) == ("failed", WorkerDied)
    assert "5 processes in a row died" in str(out.error)
    assert "dead-letter" in store.get(deadly.id).tags
    for other in others:
        assert len(other.wait(60).unwrap()) == 2
    assert (notes.count("dies"), notes.count("before 0")) == (5, 1)
    assert store.backend.queue_entries() == []


def test_deaths_are_counted_anew_when_a_run_got_on(store: everstep.Store, hands: Start, notes: Notes) -> None:
    run = store.enqueue("deadly", id="deadly")
    for _ in range(2):
        assert hands("deadly", worker={"max_deaths": 3}).actor.ended() == -signal.SIGKILL
    until(lambda: store.backend.free() or store.backend.queue_entry(run.id).worker is None)  # type: ignore[union-attr]
    store.skip(run.id, "die", None)
    one = hands("deadly", worker={"max_deaths": 3})
    assert run.wait(60).unwrap() == "lived"
    assert one.listen().seen("dead-letter") == []


def test_what_a_worker_does_not_know_is_left_to_another(store: everstep.Store, hands: Start, notes: Notes) -> None:
    foreign, own = store.enqueue("busy", "k", 0.0), store.enqueue("count", 1)
    first = hands("count")
    assert own.wait(60).unwrap() == [first.pid]
    assert foreign.status == "queued"
    second = hands("busy")
    assert foreign.wait(60).unwrap() == second.pid
    assert first.listen().seen("taken", run=foreign.id) == []


def test_a_begun_run_of_another_version_is_left_to_a_worker_of_that_version(
    store: everstep.Store, hands: Start, notes: Notes, tmp_path: Path
) -> None:
    flows = worker_programs.know(notes.path, version=1)
    run = store.enqueue(flows["held"], str(tmp_path / "go"), id="begun")
    old = hands("held", _version=1)
    until(lambda: notes.count("waits") == 1)
    old.signal(signal.SIGKILL)
    assert old.actor.ended() == -signal.SIGKILL
    fresh = store.enqueue(flows["count"], 1, id="fresh")
    new = hands("held", "count", _version=2)
    assert "version 1" in new.hear("left", run=run.id)["reason"]
    assert fresh.wait(60).unwrap() == [new.pid]  # what has not begun begins with what is there
    (tmp_path / "go").touch()
    heir = hands("held", _version=1)
    assert run.wait(60).unwrap() == [old.pid, heir.pid, heir.pid]
    assert notes.count("first") == 1
    assert [line["again"] for line in notes.all("waits")] == [False, True]  # that its worker died was not forgotten by who left it


def test_a_signal_that_comes_while_a_worker_tells_something_is_told_afterwards(store: everstep.Store, notes: Notes) -> None:
    """A handler runs in the midst of whatever the main thread does: what tells is not called from there."""
    worker_programs.know(notes.path, "count")
    store.enqueue("count", 1)
    told: list[str] = []
    busy = threading.Lock()

    def tell(said: dict[str, Any]) -> None:
        assert busy.acquire(timeout=5), "told while telling"
        try:
            if said["event"] == "taken":
                signal.raise_signal(signal.SIGTERM)
            told.append(said["event"])
        finally:
            busy.release()

    store.worker(tell=tell).run()
    assert "stopping" in told
    assert told.index("taken") < told.index("stopping")
    assert told[-1] == "stopped"


def test_two_workers_of_one_store_leave_each_others_runs_alone(
    store: everstep.Store, working: Callable[..., Working], notes: Notes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "LOOK_SECONDS", 0.05)
    worker_programs.know(notes.path, "held", "count")
    one = working(store, queues="one")
    run = store.enqueue("held", str(tmp_path / "go"), queue="one")
    until(lambda: notes.count("waits") == 1)
    other = working(store, queues="other")
    for _ in range(5):
        assert store.enqueue("count", 1, queue="other").wait(60).status == "succeeded"
        time.sleep(0.1)  # it looks after others meanwhile
    (tmp_path / "go").touch()
    assert run.wait(60).status == "succeeded"
    assert (one.worker.counts.lost, other.worker.counts.taken_over) == (0, 0)
    assert [notes.count(what) for what in ("first", "waits", "last 0")] == [1, 1, 1]


def test_a_worker_leaves_alone_what_a_program_of_its_process_drives(
    store: everstep.Store, working: Callable[..., Working], notes: Notes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "LOOK_SECONDS", 0.05)
    flows = worker_programs.know(notes.path, "held", "count")
    run = store.enqueue("held", str(tmp_path / "go"), queue="nobody's")
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(store.start(flows["held"], str(tmp_path / "go"), id=run.id)))
    thread.start()
    until(lambda: notes.count("waits") == 1)
    working(store, queues="other")
    for _ in range(3):
        assert store.enqueue("count", 1, queue="other").wait(60).status == "succeeded"
        time.sleep(0.1)
    (tmp_path / "go").touch()
    thread.join(60)
    assert found[0].status == "succeeded"
    assert [notes.count(what) for what in ("first", "waits", "last 0")] == [1, 1, 1]


@pytest.mark.parametrize("flow", ["held", "aheld"])
def test_a_worker_that_is_told_to_stop_stops_no_run_of_another_or_of_the_program(
    store: everstep.Store, working: Callable[..., Working], notes: Notes, tmp_path: Path, flow: str
) -> None:
    flows = worker_programs.know(notes.path, flow)
    go, gone = tmp_path / "go", tmp_path / "gone"
    stays, leaves = store.enqueue(flow, str(go), queue="one"), store.enqueue(flow, str(gone), queue="other")
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(store.start(flows[flow], str(go))))
    thread.start()
    one, other = working(store, queues="one"), working(store, queues="other")
    until(lambda: notes.count("waits") == 3)
    other.worker.stop()
    go.touch()
    assert stays.wait(60).status == "succeeded"
    thread.join(60)
    assert found[0].status == "succeeded"
    gone.touch()
    other.ended()
    assert (one.worker.counts.succeeded, other.worker.counts.given_back, leaves.wait(0).status) == (1, 1, "running")
    assert [notes.count(what) for what in ("first", "goes on", "last 0")] == [3, 3, 2]


def test_a_worker_that_is_stopped_when_it_has_ended_or_not_begun_stops_nothing_else(store: everstep.Store, notes: Notes) -> None:
    flows = worker_programs.know(notes.path, "count")
    ended = store.worker()
    ended.run(until_idle=True)
    ended.stop()
    assert store.start(flows["count"], 2).status == "succeeded"
    early, waiting = store.worker(), store.enqueue("count", 1)
    early.stop()
    early.run()
    assert waiting.status == "queued"
    store.worker().run(until_idle=True)
    assert waiting.status == "succeeded"


def test_a_worker_does_not_take_what_it_is_driving(store: everstep.Store, working: Callable[..., Working]) -> None:
    """It slept for longer than its lease, and another one has put its runs back into their queue; then it is the first to ask for them."""
    go, begun = threading.Event(), []

    def wait() -> bool:
        begun.append("wait")
        return go.wait(PATIENCE)

    @everstep.workflow(name="slept")
    def slept() -> bool:
        return everstep.current().step("wait", wait)

    @everstep.workflow(name="awake")
    def awake() -> None:
        everstep.current().step("work", lambda: begun.append("work"))

    run = store.enqueue("slept")
    one = working(store, concurrency=3)
    until(lambda: begun)
    assert store.backend.free([store.keeper.worker.id]) == 1
    store.enqueue("awake", priority=-1).wait(60)  # which it takes behind the other one
    assert begun == ["wait", "work"]
    go.set()
    assert run.wait(60).unwrap() is True
    assert len(one.seen("taken", run=run.id)) == 1

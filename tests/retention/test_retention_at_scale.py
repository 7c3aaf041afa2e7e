"""Retention keeps up. Many runs go in one transaction, their feed entries go too, and a kill at any slice leaves a store that verifies."""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import psycopg
import pytest

import everstep
from everstep.backends.postgres.connections.connect import Address
from everstep.backends.postgres.connections.readers import Readers
from everstep.records import RunRow
from everstep.testing.rows import new_worker

GONE = everstep.Retention(keep_within=0.001, completed="delete")
RUNS = 120


@everstep.workflow
def w5_short(n: int) -> int:
    return w5_step(n)


@everstep.step
def w5_step(n: int) -> int:
    return n + 1


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[everstep.Store]:
    kind = request.param
    url = request.getfixturevalue("place") if kind == "postgres" else str(tmp_path / "s.db") if kind == "sqlite" else "memory://"
    with everstep.open(url) as store:
        yield store


def fill(store: everstep.Store, runs: int, first: int = 0) -> None:
    for n in range(first, first + runs):
        store.start(w5_short, n, id=f"r{n}")


class Killed(BaseException):
    """Stands for a kill: nothing after it is done."""


def test_what_is_deleted_is_what_was_deleted_one_by_one(store: everstep.Store) -> None:
    """Forks, children, protected tags and open runs stay or go as before."""
    fill(store, 5)
    with store.run("loop", state={"n": 1}, tags=["t"], meta={"k": 1}) as run:
        run.checkpoint(tags=["milestone"])
    with store.run("parent", state={"n": 1}) as run:
        run.checkpoint()
    store.fork("parent@1", "fork")  # not ended: it stays, and so does its parent
    with store.run("large", state={"text": "x" * 50_000}, tags=["t"], meta={"k": 2}) as run:
        run.checkpoint()
    time.sleep(0.01)
    with store.run("open", state={"n": 1}):
        foreseen = store.cleanup(GONE, dry_run=True)
        done = store.cleanup(GONE)
    assert [one.run for one in done.deleted] == [one.run for one in foreseen.deleted] == ["large", *(f"r{n}" for n in range(4, -1, -1))]
    assert done.freed == foreseen.freed
    assert {info.id for info in store.runs()} == {"loop", "parent", "fork", "open"}
    assert [info.id for info in store.runs(tag="t")] == ["loop"]
    report = store.verify("full")
    assert report.ok, report


def test_a_fork_and_its_parent_go_in_one_clean_up(store: everstep.Store) -> None:
    with store.run("parent", state={"n": 1}) as run:
        run.checkpoint()
    store.fork("parent@1", "fork")
    store.cancel("fork")
    time.sleep(0.01)
    assert [one.run for one in store.cleanup(GONE).deleted] == ["fork", "parent"]
    assert store.verify("full").ok


def test_a_run_that_moved_on_stays(store: everstep.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(store, 3)
    real, worker = store.backend.delete_many, new_worker()

    def late(rows: Sequence[RunRow]) -> set[bytes]:
        store.backend.acquire("r1", worker)
        return real(rows)

    time.sleep(0.01)
    with monkeypatch.context() as patch:
        patch.setattr(store.backend, "delete_many", late)
        assert {one.run for one in store.cleanup(GONE).deleted} == {"r0", "r2"}
    assert store.backend.run("r1") is not None
    assert store.verify("full").ok


@pytest.mark.parametrize("at", [0, 1, 2])
def test_a_kill_at_a_slice_leaves_a_store_that_verifies(store: everstep.Store, monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    fill(store, 60)
    time.sleep(0.01)
    real, calls = store.backend.delete_many, []

    def dying(rows: Sequence[RunRow]) -> set[bytes]:
        calls.append(len(rows))
        if len(calls) > at:
            raise Killed
        return real(rows)

    with monkeypatch.context() as patch:
        patch.setattr(store.backend, "delete_many", dying)
        with pytest.raises(Killed):
            store.cleanup(GONE)
    report = store.verify("full")
    assert report.ok, report
    store.cleanup(GONE)
    assert list(store.runs()) == []
    assert store.verify("full").ok


def test_events_of_deleted_runs_go_from_the_feed_and_positions_stay(place: str, database: str, tmp_path: Path) -> None:
    schema = Address(place).schema
    with everstep.open(place) as store:
        fill(store, 20)
        with store.run("kept", state={"n": 1}) as run:
            run.checkpoint(tags=["milestone"])
        fill(store, 20, first=20)
        kept = [event for event in store.events() if event.run == "kept"]
        end = store.backend.feed_end()
        time.sleep(0.01)
        store.cleanup(GONE)
        assert list(store.events()) == kept
        assert store.backend.feed_end() == end
        with psycopg.connect(database) as connection:
            assert connection.execute(f'SELECT count(DISTINCT run) FROM "{schema}".feed').fetchone() == (1,)
        with store.run("new", state={"n": 1}):
            pass
        assert min(event.position for event in store.events() if event.run == "new") == end + 1
        assert store.verify("full").ok
    mended = tmp_path / "mended.db"
    everstep.repair(place, mended)
    with everstep.open(mended) as store:
        assert [event.position for event in store.events() if event.run == "kept"] == [event.position for event in kept]
        assert store.verify("full").ok


@pytest.mark.parametrize("what", ["quick", "records", "full", "gc", "cleanup"])
def test_upkeep_of_many_runs_asks_the_server_a_few_times_a_page(place: str, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    with everstep.open(place) as store:
        fill(store, RUNS)
        time.sleep(0.01)
        asked = []
        real = Readers.ask
        monkeypatch.setattr(Readers, "ask", lambda self, sql, values: asked.append(sql) or real(self, sql, values))
        if what == "gc":
            assert store.gc().families == RUNS
        elif what == "cleanup":
            assert len(store.cleanup(GONE).deleted) == RUNS
        else:
            report = store.verify(what)
            assert (report.ok, report.runs) == (True, RUNS)
        assert len(asked) < RUNS / 2

"""A commit whose connection is lost ends in yes, no or unknown, and never in two."""

import threading
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest
from pg_proxy import Proxy

from everstep.backends.contract.core import Backend, Commit, Committed, Outcome, Query
from everstep.backends.contract.queues import START, Task
from everstep.backends.registry import open_backend
from everstep.errors import Conflict, InvalidArgument, LostLease, RunExists, StoreUnreachable
from everstep.records import ZERO, Pruned, RunRow, record_fault
from everstep.testing.conformance.reclaim import cut
from everstep.testing.conformance.suite import Suite
from everstep.testing.postgres import Server
from everstep.testing.rows import new_message, new_run, new_worker, next_commit

create, advance = Suite.create, Suite.advance


@pytest.fixture
def backend(wire: Proxy) -> Iterator[Backend]:
    backend = open_backend(wire.url)
    yield backend
    backend.close()


def prove(backend: Backend, row: RunRow) -> None:
    """The run is where its writer believes it to be, its chain holds, and the manifest fits."""
    assert backend.run(row.id) == row
    before = ZERO
    for record in backend.records(row.id, 0, 2**31 - 1):
        assert record_fault(before, record, row.key) is None
        before = record.digest
    assert before == row.head_digest
    census = backend.census()
    assert (census.total, census.runs) == (census.found_total, census.found_runs)
    assert backend.check() == []


@pytest.mark.parametrize("where", ["request", "reply"])
def test_a_commit_whose_wire_is_cut_happens_once(backend: Backend, wire: Proxy, where: str) -> None:
    row = create(backend, "r", checkpoints=1)
    for n in range(5):
        wire.cut = where
        row = advance(backend, row, bytes([n]), tags=(f"t{n}",), messages=(new_message(row, f"{n}"),), chunks=((bytes([n]) * 32, b"c"),))
    assert wire.cuts == 5
    prove(backend, row)
    assert [record.body for record in backend.records("r", 2, 9)] == [bytes([n]) for n in range(5)]
    assert len(backend.feed(0, 99)) == 6


@pytest.mark.parametrize("where", ["request", "reply"])
def test_a_run_whose_creation_lost_its_wire_exists_once_and_is_ours(backend: Backend, wire: Proxy, where: str) -> None:
    create(backend, "first")
    wire.cut = where
    row = create(backend, "r")
    prove(backend, row)
    assert backend.manifest().created == 2
    with pytest.raises(RunExists):
        create(backend, "r")


@pytest.mark.parametrize("where", ["request", "reply"])
def test_a_commit_without_records_is_settled_too(backend: Backend, wire: Proxy, where: str) -> None:
    row = create(backend, "r", checkpoints=1)
    wire.cut = where
    after = row.sealed(status="failed", note="why")
    backend.commit(Commit(after, row))
    prove(backend, after)


@pytest.mark.parametrize("where", ["request", "reply"])
def test_a_whole_batch_is_settled(backend: Backend, wire: Proxy, where: str) -> None:
    rows = [create(backend, f"r{n}") for n in range(10)]
    stale = create(backend, "stale")
    advance(backend, stale)
    commits = [next_commit(row) for row in rows]
    plain = Commit(commits[0].run.sealed(note="n"), commits[0].run)
    follows = next_commit(plain.run)
    errors: dict[int, Outcome] = {}
    left = threading.Semaphore(0)

    def done(n: int, error: Outcome) -> None:
        errors[n] = error
        left.release()

    wire.cut = where
    asked = [*commits, plain, follows, next_commit(stale)]
    for n, commit in enumerate(asked):
        backend.submit(commit, lambda error, n=n: done(n, error))  # type: ignore[misc]
    for _ in asked:
        assert left.acquire(timeout=30)
    assert [type(errors[n]) for n in range(13)] == [Committed] * 12 + [Conflict]
    prove(backend, follows.run)
    for commit in commits[1:]:
        prove(backend, commit.run)


@pytest.mark.parametrize("where", ["request", "reply"])
def test_everything_else_that_writes_is_done_once_as_well(backend: Backend, wire: Proxy, where: str) -> None:
    row = create(backend, "r", checkpoints=3)
    wire.cut = where
    assert backend.post(new_message(row, "a"), "r") is True
    wire.cut = where
    row = backend.acquire("r", new_worker())
    assert row.epoch == 1
    wire.cut = where
    backend.release(row)
    wire.cut = where
    asked = cut(row, 1)
    backend.prune(asked)
    assert backend.pruned("r") == asked.now
    wire.cut = where
    backend.set_property("f", "1")
    wire.cut = where
    now = backend.run("r")
    assert now is not None
    backend.delete(now)
    assert (backend.run("r"), len(backend.tombstones()), backend.get_property("f")) == (None, 1, "1")
    assert wire.cuts == 6
    census = backend.census()
    assert census.total == census.found_total


def test_one_who_was_overtaken_meanwhile_still_learns_that_its_commit_happened(place: str, wire: Proxy) -> None:
    backend, other = open_backend(wire.url), open_backend(place)
    row = create(backend, "r")
    leased = backend.acquire("r", new_worker(seconds=-1))
    commit = next_commit(leased)
    taken: list[RunRow] = []

    def overtake() -> None:
        while other.run("r") == leased:
            time.sleep(0.01)
        taken.append(other.acquire("r", new_worker()))
        wire.refuse = False

    wire.cut, wire.refuse = "reply", True
    thread = threading.Thread(target=overtake)
    thread.start()
    backend.commit(commit)
    thread.join()
    assert taken[0].head_digest == commit.run.head_digest
    with pytest.raises(LostLease):
        advance(backend, commit.run)
    assert [r.digest for r in other.records(row.id, 0, 9)] == [commit.records[0].digest]
    backend.close()
    other.close()


@pytest.mark.parametrize(("where", "written"), [("request", "unknown"), ("reply", "unknown"), (None, "no")])
def test_a_server_that_stays_away_is_said_to_and_whether_the_write_happened(
    place: str, wire: Proxy, where: str | None, written: str
) -> None:
    backend = open_backend(wire.url, patience=0.5)
    row = create(backend, "r")
    if where is None:
        wire.cut, wire.refuse = "reply", True
        with pytest.raises(StoreUnreachable):
            backend.release(row)
    wire.cut, wire.refuse = where, True
    with pytest.raises(StoreUnreachable) as caught:
        advance(backend, row)
    assert caught.value.written == written
    wire.refuse = False
    stored = backend.run("r")
    assert stored is not None
    assert (stored.head_seq == 1) == (where == "reply")
    row = advance(backend, stored)
    prove(backend, row)
    backend.close()


def test_a_read_whose_connection_is_lost_is_read_again(backend: Backend, wire: Proxy) -> None:
    row = create(backend, "r", checkpoints=1)
    for where in ("request", "reply"):
        wire.cut = where
        assert backend.run("r") == row
    assert wire.cuts == 2


def test_a_commit_is_one_round_trip_and_so_are_many(backend: Backend, wire: Proxy) -> None:
    row = create(backend, "r", checkpoints=1)
    before = wire.requests
    for n in range(10):
        row = advance(backend, row, b"x", tags=("t",), messages=(new_message(row, f"{n}"),), chunks=((bytes([n]) * 32, b"c"),))
    assert wire.requests == before + 10
    assert backend._writer._lock.take(backend)  # type: ignore[attr-defined]
    left = threading.Semaphore(0)
    for _ in range(100):
        commit = next_commit(row)
        backend.submit(commit, lambda error: left.release())
        row = commit.run
    before = wire.requests
    backend._writer._release(backend)  # type: ignore[attr-defined]
    for _ in range(100):
        assert left.acquire(timeout=30)
    assert wire.requests <= before + 2  # large ones may be sent in parts, while the answers to the first come back
    prove(backend, row)


def test_sessions_that_an_operator_ends_cost_nothing(server: Server, place: str, database: str) -> None:
    backend = open_backend(place)
    row = create(backend, "r")
    stop = threading.Event()

    def terminate() -> None:
        while not stop.wait(0.05):
            server.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'everstep'")

    thread = threading.Thread(target=terminate)
    thread.start()
    try:
        for n in range(150):
            row = advance(backend, row, bytes([n]))
            assert backend.run("r") == row
    finally:
        stop.set()
        thread.join()
    prove(backend, row)
    assert row.head_seq == 150
    backend.close()


@pytest.mark.parametrize("how", ["halt", "kill"])
def test_what_was_saved_is_there_after_the_server_ended_and_writers_go_on(how: str) -> None:
    with Server.start(fsync=True) as server:
        if not server.own:
            pytest.skip("TEST_POSTGRES_URL names a server that is not ours to stop")
        url = server.database()
        backend = open_backend(url, patience=60)
        saved: dict[str, RunRow] = {}
        stop = threading.Event()

        def drive(name: str) -> None:
            row = saved[name] = create(backend, name)
            while not stop.is_set():
                row = saved[name] = advance(backend, row, name.encode())

        threads = [threading.Thread(target=drive, args=(f"r{n}",)) for n in range(4)]
        for thread in threads:
            thread.start()
        for _ in range(3):
            time.sleep(0.5)
            getattr(server, how)()
            server.start_again()
        time.sleep(0.5)
        stop.set()
        for thread in threads:
            thread.join()
        for row in saved.values():
            assert row.head_seq > 10
            prove(backend, row)
        assert len(backend.runs(Query())) == 4
        backend.close()


def test_a_prune_by_somebody_else_is_a_conflict_also_when_asked_twice(backend: Backend, wire: Proxy) -> None:
    row = create(backend, "r", checkpoints=3)
    backend.prune(cut(row, 1))
    wire.cut = "request"
    with pytest.raises(Conflict):
        backend.prune(cut(row, 2, was=Pruned.make(row.key, ((3, 3),), 5, 1)))


def test_a_refused_creation_is_refused_also_when_asked_twice(backend: Backend, wire: Proxy) -> None:
    create(backend, "r")
    for where in ("request", "reply"):
        wire.cut = where
        with pytest.raises(RunExists):
            backend.commit(Commit(new_run("r"), None))
    assert backend.manifest().created == 1


@pytest.mark.parametrize("text", ["a\x00b", "\ud800"], ids=["refused-by-the-server", "refused-by-the-driver"])
@pytest.mark.parametrize("bad", [0, 5, 10])
def test_a_value_that_cannot_be_stored_fails_its_own_commit_and_no_other_of_its_batch(backend: Backend, bad: int, text: str) -> None:
    rows = [create(backend, f"r{n}") for n in range(11)]
    commits = [next_commit(row) if n % 3 else Commit(row.sealed(note="n"), row) for n, row in enumerate(rows)]
    commits[bad] = Commit(replace(rows[bad], note=text), rows[bad])
    errors: dict[int, Outcome] = {}
    left = threading.Semaphore(0)

    def done(n: int, error: Outcome) -> None:
        errors[n] = error
        left.release()

    assert backend._writer._lock.take(backend)  # type: ignore[attr-defined]
    for n, commit in enumerate(commits):
        backend.submit(commit, lambda error, n=n: done(n, error))  # type: ignore[misc]
    backend._writer._release(backend)  # type: ignore[attr-defined]
    for _ in commits:
        assert left.acquire(timeout=30)
    assert {n: type(error) for n, error in errors.items() if not isinstance(error, Committed)} == {bad: InvalidArgument}
    for n, commit in enumerate(commits):
        prove(backend, rows[n] if n == bad else commit.run)


def wanted(name: str) -> Commit:
    row = new_run(name, status="queued", workflow="w")
    return Commit(row, None, messages=[new_message(row, START, 1)], task=Task("q"))


def test_hundreds_of_runs_are_created_in_one_round_trip(backend: Backend, wire: Proxy) -> None:
    create(backend, "r", checkpoints=1)
    before = wire.requests
    assert backend.create([wanted(f"n{n}") for n in range(300)]) == [True] * 300
    assert wire.requests <= before + 20  # sent without waiting: large ones go in parts, while the answers to the first come back
    assert len(backend.queue_entries()) == 300


@pytest.mark.parametrize("where", ["request", "reply"])
def test_runs_whose_creation_lost_its_connection_are_created_once(backend: Backend, wire: Proxy, where: str) -> None:
    create(backend, "r", checkpoints=1)
    for n in range(5):
        wire.cut = where
        assert backend.create([wanted(f"{where}{n}.{m}") for m in range(20)]) == [True] * 20
    assert wire.cuts == 5
    assert len(backend.queue_entries()) == 100
    assert backend.manifest().runs == 101

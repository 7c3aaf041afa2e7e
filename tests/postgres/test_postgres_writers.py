"""Many who write one store in PostgreSQL: processes, threads, handles; owners that die, sleep and are overtaken."""

import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from children import Child

from everstep.backends.contract.core import Backend, Commit, Committed, Outcome, Query
from everstep.backends.postgres.leases import process_name
from everstep.backends.postgres.writer import Writer
from everstep.backends.registry import open_backend
from everstep.errors import Conflict, LeaseHeld, LostLease, RunExists
from everstep.records import RunRow
from everstep.testing.conformance.suite import Suite
from everstep.testing.postgres import Server
from everstep.testing.rows import new_message, new_run, new_worker, next_commit

create, advance = Suite.create, Suite.advance

WRITE = """
backend = open_backend(sys.argv[1])
row = new_run(sys.argv[2]); backend.commit(Commit(row, None))
for i in range(int(sys.argv[3])):
    commit = next_commit(row, os.urandom(200), chunks=((os.urandom(32), b"frame"),)); backend.commit(commit); row = commit.run
say("done"); backend.close()
"""

HOLD = """
backend = open_backend(sys.argv[1])
row = new_run("r"); backend.commit(Commit(row, None))
row = backend.acquire("r", new_worker(float(sys.argv[2]), pid=os.getpid()))
say("held"); sys.stdin.readline()
try: backend.commit(next_commit(row)); say("written")
except Exception as error: say(type(error).__name__)
"""


def whole(backend: Backend) -> None:
    census = backend.census()
    assert (census.total, census.runs) == (census.found_total, census.found_runs)
    assert census.created == census.found_runs + census.tombstones
    assert backend.check() == []


def test_processes_write_their_own_runs_at_the_same_time(place: str, child: Child) -> None:
    for process in [child(WRITE, place, f"r{n}", 40) for n in range(6)]:
        assert process.communicate(timeout=120)[0] == "done\n"
    backend = open_backend(place)
    assert sorted(row.head_seq for _, row in backend.runs(Query())) == [40] * 6
    assert [position for position, _ in backend.feed(0, 999)] == list(range(1, 241))
    whole(backend)
    backend.close()


def test_one_who_follows_many_handles_sees_every_record_once_and_each_run_in_order(place: str) -> None:
    handles = [open_backend(place) for _ in range(6)]
    reader = open_backend(place)
    total = 6 * 40
    seen: list[tuple[int, str, int]] = []
    ends: list[int] = []

    def drive(n: int) -> None:
        row = create(handles[n], f"r{n}")
        for _ in range(40):
            row = advance(handles[n], row)

    with ThreadPoolExecutor(6) as pool:
        drivers = [pool.submit(drive, n) for n in range(6)]
        while not all(driver.done() for driver in drivers) or len(seen) < total:
            ends.append(reader.feed_end())
            seen += [(position, r.run, r.seq) for position, r in reader.feed(seen[-1][0] if seen else 0, 17)]
    assert ends == sorted(ends)
    assert [position for position, _, _ in seen] == list(range(1, total + 1))
    for n in range(6):
        assert [seq for _, run, seq in seen if run == f"r{n}"] == list(range(1, 41))
    assert [(p, r.run, r.seq) for p, r in handles[0].feed(0, 999)] == seen
    for handle in (*handles, reader):
        handle.close()


def test_runs_become_visible_in_the_order_of_their_places(place: str) -> None:
    handles = [open_backend(place) for _ in range(4)]
    reader = open_backend(place)
    seen: list[int] = []
    with ThreadPoolExecutor(4) as pool:
        drivers = [pool.submit(lambda h=h: [create(h) for _ in range(30)]) for h in handles]  # type: ignore[misc]
        while not all(driver.done() for driver in drivers) or len(seen) < 120:
            seen += [p for p, _ in reader.runs(Query(oldest_first=True, after=seen[-1] if seen else 0, limit=50))]
    assert seen == list(range(1, 121))
    for handle in (*handles, reader):
        handle.close()


def test_handles_that_race_for_one_run_have_one_winner_each_time(place: str) -> None:
    handles = [open_backend(place) for _ in range(4)]
    row = create(handles[0], "r")
    for _ in range(10):
        barrier = threading.Barrier(4)

        def race(n: int, row: RunRow = row, barrier: threading.Barrier = barrier) -> RunRow | None:
            commit = next_commit(row, bytes([n]))
            barrier.wait()
            try:
                handles[n].commit(commit)
            except Conflict:
                return None
            return commit.run

        with ThreadPoolExecutor(4) as pool:
            won = [row for row in pool.map(race, range(4)) if row is not None]
        assert len(won) == 1
        row = won[0]
    assert handles[0].run("r") == row
    whole(handles[0])
    for handle in handles:
        handle.close()


def test_exactly_one_of_a_hundred_creates_an_id(place: str) -> None:
    handles = [open_backend(place) for _ in range(5)]
    barrier = threading.Barrier(100)

    def race(n: int) -> bool:
        barrier.wait()
        try:
            handles[n % 5].commit(Commit(new_run("r"), None))
        except RunExists:
            return False
        return True

    with ThreadPoolExecutor(100) as pool:
        assert sum(pool.map(race, range(100))) == 1
    assert handles[0].manifest().created == 1
    whole(handles[0])
    for handle in handles:
        handle.close()


def test_a_killed_owner_is_known_to_be_dead_at_once(place: str, child: Child) -> None:
    owner = child(HOLD, place, 3600)
    assert owner.stdout is not None
    owner.stdout.readline()
    backend = open_backend(place)
    with pytest.raises(LeaseHeld) as caught:
        backend.acquire("r", new_worker())
    assert caught.value.pid == owner.pid
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    assert backend.acquire("r", new_worker()).epoch == 2
    backend.close()


def test_a_sleeping_owner_is_overtaken_when_its_lease_ends_and_writes_no_more(place: str, child: Child) -> None:
    owner = child(HOLD, place, 1.0)
    assert owner.stdout is not None
    owner.stdout.readline()
    owner.send_signal(signal.SIGSTOP)
    backend = open_backend(place)
    with pytest.raises(LeaseHeld):
        backend.acquire("r", new_worker())
    threading.Event().wait(1.1)
    row = backend.acquire("r", new_worker())
    owner.send_signal(signal.SIGCONT)
    assert owner.communicate("\n", timeout=60)[0] == "LostLease\n"
    assert backend.run("r") == row
    backend.close()


def test_an_owner_on_another_machine_lives_until_its_lease_ends_by_the_servers_clock(server: Server, place: str, database: str) -> None:
    backend = open_backend(place)
    create(backend, "r")
    far = new_worker(3600, host="elsewhere", boot="another", expires_at=0)
    leased = backend.acquire("r", far)
    with pytest.raises(LeaseHeld):
        backend.acquire("r", new_worker())
    assert backend.holder(leased) is not None
    schema = place.rpartition("schema=")[2]
    server.execute(f'UPDATE "{schema}".workers SET ends = ends - 3600000000', url=database)
    assert backend.holder(leased) is None
    assert backend.acquire("r", new_worker()).epoch == 2
    with pytest.raises(LostLease):
        advance(backend, leased)
    backend.close()


def test_a_process_is_not_taken_for_another_one_that_has_its_pid(child: Child) -> None:
    process = child("say(1); sys.stdin.readline()")
    assert process.stdout is not None
    process.stdout.readline()
    name = process_name(process.pid)
    assert name == process_name(process.pid) != ""
    assert name.split()[:2] == [process_name(1).split()[0], str(process.pid)]
    process.kill()
    process.wait()
    assert process_name(process.pid) == ""


def test_whoever_posts_does_not_wait_for_whoever_commits(server: Server, place: str, database: str) -> None:
    import psycopg

    backend = open_backend(place)
    row = create(backend, "r", checkpoints=1)
    schema = place.rpartition("schema=")[2]
    with psycopg.connect(database) as other:
        other.execute(f'UPDATE "{schema}".runs SET stored = stored WHERE id = %s'.encode(), ("r",))
        assert backend.post(new_message(row), "r") is True
        other.rollback()
    backend.close()


def test_two_that_delete_the_last_runs_of_a_family_leave_no_chunk(place: str) -> None:
    one, two = open_backend(place), open_backend(place)
    for _ in range(10):
        parent = advance(one, create(one), chunks=((b"d" * 32, b"frame"),))
        fork = create(one, family=parent.family, parent=parent.id)
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda pair: pair[0].delete(pair[1]), [(one, parent), (two, fork)]))
        assert one.families() == []
    whole(one)
    one.close()
    two.close()


def test_a_sweep_leaves_what_others_wrote_since(place: str) -> None:
    mine, other = open_backend(place), open_backend(place)
    row = advance(mine, create(mine), chunks=((b"a" * 32, b"aaa"), (b"b" * 32, b"bb")))
    stamp = mine.manifest().writes
    row = advance(other, row, chunks=((b"a" * 32, b"aaa"),))
    assert mine.sweep(row.family, [b"a" * 32, b"b" * 32], stamp) == 2
    assert other.sweep(row.family, [b"a" * 32], stamp) == 0, "a stamp that it cannot know frees nothing"
    assert mine.chunk_sizes(row.family) == {b"a" * 32: 3}
    mine.close()
    other.close()


@pytest.mark.parametrize("sent", [False, True])
def test_ctrl_c_in_the_one_who_leads_leaves_the_others_their_commits(place: str, monkeypatch: pytest.MonkeyPatch, sent: bool) -> None:
    backend: Any = open_backend(place)
    rows = [create(backend) for _ in range(4)]
    settled = threading.Semaphore(0)
    results: list[Outcome] = []
    send = Writer._send

    def done(outcome: Outcome) -> None:
        results.append(outcome)
        settled.release()

    def interrupt_once(self: Writer, connection: Any, calls: Any) -> Any:
        monkeypatch.undo()
        if sent:
            send(self, connection, calls)
        raise KeyboardInterrupt

    monkeypatch.setattr("everstep.backends.group_commit.LeaderThread.start", lambda self: None)
    for row in rows[1:]:
        backend.submit(next_commit(row), done)
    monkeypatch.setattr(Writer, "_send", interrupt_once)
    with pytest.raises(KeyboardInterrupt):
        backend.commit(next_commit(rows[0]))
    backend.submit(Commit(new_run(), None), done)
    for _ in range(4):
        assert settled.acquire(timeout=30)
    assert results == [Committed(0)] * 4
    assert [len(backend.records(row.id, 0, 9)) for row in rows] == [int(sent), 1, 1, 1]
    whole(backend)
    backend.close()


@pytest.mark.parametrize("most", [1, 5, 10, 11])
def test_the_feed_is_given_positions_part_by_part(place: str, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    monkeypatch.setattr("everstep.backends.postgres.feed._AT_ONCE", most)
    backend = open_backend(place)
    create(backend, "r", checkpoints=10)
    assert [(position, record.seq) for position, record in backend.feed(0, 99)] == [(n, n) for n in range(1, 11)]
    advance(backend, create(backend, "s"))
    assert backend.feed_end() == 11
    backend.close()


def test_of_a_thousand_writes_of_one_who_was_overtaken_none_happens(place: str) -> None:
    slept, awake = open_backend(place), open_backend(place)
    create(slept, "r")
    old = slept.acquire("r", new_worker(seconds=-1))
    row = advance(awake, awake.acquire("r", new_worker()))
    before = awake.manifest()
    commit = next_commit(old, b"stale")
    errors: list[Outcome] = []
    for _ in range(1000):
        slept.submit(commit, errors.append)
    slept.close()
    assert [type(error) for error in errors] == [LostLease] * 1000
    assert (awake.run("r"), awake.manifest()) == (row, before)
    awake.close()

"""The short way of a commit: prepared where the session is the server's own, and what goes wrong on it is told as on the ordinary way."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from children import Child

from everstep.backends.contract.core import Backend
from everstep.backends.postgres.backend import PostgresBackend
from everstep.backends.postgres.commit import ADVANCE, arguments
from everstep.backends.registry import open_backend
from everstep.errors import Conflict, InvalidArgument, LostLease, StoreBusy
from everstep.records import ZERO, RunRow, record_fault
from everstep.testing.conformance.suite import Suite
from everstep.testing.rows import new_worker, next_commit

create, advance = Suite.create, Suite.advance


@pytest.fixture
def backend(place: str) -> Iterator[PostgresBackend]:
    backend = open_backend(place)
    assert isinstance(backend, PostgresBackend)
    yield backend
    backend.close()


def prove(backend: Backend, row: RunRow) -> None:
    before = ZERO
    for record in backend.records(row.id, 0, 2**31 - 1):
        assert record_fault(before, record, row.key) is None
        before = record.digest
    census = backend.census()
    assert (backend.run(row.id), before, census.total, backend.check()) == (row, row.head_digest, census.found_total, [])


def prepared(backend: PostgresBackend) -> list[Any]:
    connection = backend._writer._connection
    assert connection is not None
    return connection.execute("SELECT name FROM pg_prepared_statements").fetchall()


def test_a_commit_of_one_record_goes_the_short_way_whatever_it_holds(backend: PostgresBackend) -> None:
    row = create(backend, "r")
    assert ("everstep_advance",) in prepared(backend)
    bodies = [b"", b"\x00", bytes(range(256)), b"x" * 3_000_000]
    notes = [None, "", "Grüße 🎈", "'\\; --"]
    for body, note in zip(bodies, notes, strict=True):
        for kind in ("checkpoint", "step"):
            labels = {} if note is None or kind == "step" else {"meta": '{"a": 1}', "labels": bytes(16), "own": '{"step":"ü#0"}'}
            commit = next_commit(row, body, kind=kind, note=note, **labels)
            assert len(arguments(commit, 0, False)) == ADVANCE
            backend.commit(commit)
            row = commit.run
            (found,) = backend.records("r", row.head_seq, row.head_seq)
            assert (found.body, found.note, found.number, found.kind) == (body, note, row.checkpoints, kind)
    prove(backend, row)


@pytest.mark.parametrize("field", ["at", "number", "epoch", "stored", "checkpoints"])
def test_what_does_not_follow_from_the_row_as_it_was_is_sent_in_full(backend: PostgresBackend, field: str) -> None:
    row = create(backend, "r", checkpoints=2)
    commit = next_commit(row, b"x")
    if field in ("stored", "checkpoints"):
        commit.run = commit.run.sealed(**{field: getattr(commit.run, field) + 1})
    else:
        setattr(commit.records[0], field, getattr(commit.records[0], field) + 1)
    assert len(arguments(commit, 0, False)) > ADVANCE
    backend.commit(commit)
    assert backend.run("r") == commit.run
    (found,) = backend.records("r", 3, 3)
    assert (found.at, found.number, found.epoch) == (commit.records[0].at, commit.records[0].number, commit.records[0].epoch)


def test_refusals_are_those_of_the_ordinary_way(backend: PostgresBackend, place: str) -> None:
    row = create(backend, "r", checkpoints=1)
    other = open_backend(place)
    taken = other.acquire("r", new_worker())
    with pytest.raises(LostLease):
        advance(backend, row)
    moved = advance(other, taken)
    with pytest.raises(Conflict):
        advance(backend, taken)
    for fields in ({"note": "a\x00b"}, {"note": "\ud800"}):
        commit = next_commit(moved, b"x", note="n")
        commit.records[0].note = fields["note"]
        with pytest.raises(InvalidArgument) as caught:
            backend.commit(commit)
        assert caught.value.written == "no"
    moved = advance(backend, moved)
    prove(backend, moved)
    other.close()


def test_statements_that_the_session_forgot_are_no_fault(backend: PostgresBackend) -> None:
    """As a pooler would have it that shows its clients the number of a session."""
    row = create(backend, "r")
    row = advance(backend, row)
    connection = backend._writer._connection
    assert connection is not None
    connection.execute("DEALLOCATE ALL", prepare=False)
    row = advance(backend, row)
    assert (prepared(backend), backend._writer._quick) == ([], None)
    rows = [create(backend, f"r{n}") for n in range(3)]
    for one in rows:
        advance(backend, one)
    prove(backend, advance(backend, row))


def test_a_lock_that_somebody_holds_ends_the_wait(place: str) -> None:
    joint = "&" if "?" in place else "?"
    backend = open_backend(f"{place}{joint}options=-cstatement_timeout%3D500ms")
    row = create(backend, "r", checkpoints=1)
    schema = place.rpartition("schema=")[2]
    with psycopg.connect(place.replace("schema=", "application_name=")) as other:
        other.execute(f'LOCK TABLE "{schema}".records'.encode())
        with pytest.raises(StoreBusy) as caught:
            advance(backend, row)
    assert caught.value.written == "no"
    prove(backend, advance(backend, row))
    backend.close()


def test_ctrl_c_is_heard_while_a_commit_waits(place: str, child: Child) -> None:
    code = """
backend = open_backend(sys.argv[1])
row = new_run("r"); backend.commit(Commit(row, None)); first = next_commit(row); backend.commit(first); say("ready"); sys.stdin.readline()
say("now")
try: backend.commit(next_commit(first.run))
except KeyboardInterrupt: say("heard")
backend.close()
"""
    process = child(code, place)
    assert process.stdout is not None
    assert process.stdin is not None
    assert process.stdout.readline() == "ready\n"
    schema = place.rpartition("schema=")[2]
    with psycopg.connect(place.replace("schema=", "application_name=")) as other:
        other.execute(f'LOCK TABLE "{schema}".records'.encode())
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "now\n"
        threading.Event().wait(0.3)
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "heard\n"
    process.wait(30)


def test_many_threads_share_the_short_way(backend: PostgresBackend) -> None:
    rows = {n: create(backend, f"r{n}") for n in range(8)}

    def work(n: int) -> None:
        for _ in range(30):
            rows[n] = advance(backend, rows[n])

    threads = [threading.Thread(target=work, args=(n,)) for n in rows]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for row in rows.values():
        prove(backend, row)

"""Group commit where a leader is interrupted or finds no memory: no request is lost, written twice or taken for written."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from everstep.backends import group_commit
from everstep.backends.contract.core import Backend, Commit, Committed, Outcome
from everstep.backends.postgres.backend import PostgresBackend
from everstep.backends.sqlite.backend import SqliteBackend
from everstep.backends.sqlite.transaction import Transaction
from everstep.errors import StoreClosed, StoreFailed
from everstep.records import RunRow
from everstep.testing.rows import new_run, next_commit
from everstep.testing.waiting import until

PATIENCE = 20


@pytest.fixture(params=["sqlite", "postgres"])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backend]:
    made: Backend
    made = SqliteBackend(tmp_path / "s.db") if request.param == "sqlite" else PostgresBackend(request.getfixturevalue("place"))
    yield made
    made.close()


def a_run(backend: Backend, name: str) -> RunRow:
    row = new_run(name)
    backend.commit(Commit(row, None))
    return row


class Heard(list[Outcome]):
    """What a callback was told; the first time there was no memory to tell it."""

    def __init__(self) -> None:
        self.failed = 0

    def done(self, error: Outcome) -> None:
        if not self.failed:
            self.failed = 1
            raise MemoryError
        self.append(error)


def test_a_callback_for_which_there_was_no_memory_is_made_and_the_handle_writes_no_more(backend: Backend) -> None:
    commit, heard = next_commit(a_run(backend, "r"), b"x"), Heard()
    backend.submit(commit, heard.done)
    assert until(lambda: bool(heard))
    assert (heard, heard.failed) == ([Committed(0)], 1)
    assert backend.run("r") == commit.run
    with pytest.raises(StoreFailed, match="memory ran out") as refused:
        a_run(backend, "s")
    assert refused.value.written == "no"


def test_a_callback_that_raises_is_reported_and_made_once(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    reported: list[Any] = []
    monkeypatch.setattr("sys.excepthook", lambda *problem: reported.append(problem[1]))

    def done(_error: Outcome) -> None:
        raise ValueError("mine")

    row = a_run(backend, "r")
    backend.submit(next_commit(row, b"x"), done)
    assert until(lambda: bool(reported))
    a_run(backend, "another")
    assert [str(error) for error in reported] == ["mine"]


class Full(list[Any]):
    """A list that has no room the first time that anything is added."""

    failed = 0

    def append(self, item: Any) -> None:
        if not self.failed:
            self.failed = 1
            raise MemoryError
        super().append(item)


def test_a_request_that_finds_no_room_in_the_batch_is_refused_and_not_lost(backend: Backend) -> None:
    row = a_run(backend, "r")
    backend._writer._batch.requests = Full()  # type: ignore[attr-defined]
    heard = list[Outcome]()
    backend.submit(next_commit(row, b"x"), heard.append)
    assert until(lambda: bool(heard))
    assert [type(error) for error in heard] == [StoreFailed]
    assert backend.run("r") == row


def test_a_request_that_is_in_the_queue_and_in_the_batch_is_done_once(backend: Backend) -> None:
    rows = [a_run(backend, name) for name in "ab"]
    batch = backend._writer._batch  # type: ignore[attr-defined]
    done: list[str] = []
    works = [group_commit.Request(None, None, lambda _error, name=name: done.append(name)) for name in "ab"]
    batch.waiting.extend(works)
    batch.requests.append(batch.waiting[0])  # a leader was interrupted before it took it out of the queue
    batch.put_back()
    assert list(batch.waiting) == works
    assert not batch.requests
    batch.waiting.clear()
    assert [backend.run(row.id) for row in rows] == rows


@pytest.mark.parametrize("late", [False, True], ids=["before it is written", "when it is written"])
def test_what_an_interrupted_close_did_not_write_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, late: bool) -> None:
    backend = SqliteBackend(tmp_path / "s.db")
    row = a_run(backend, "r")
    writer = backend._writer
    flush, interruptions = Transaction.flush, [KeyboardInterrupt]

    def interrupted(self: Transaction) -> None:
        if interruptions and not late:
            raise interruptions.pop()
        flush(self)

    def seen(_writes: int) -> None:
        if interruptions and late:
            raise interruptions.pop()

    heard: list[Outcome] = []
    monkeypatch.setattr(Transaction, "flush", interrupted)
    monkeypatch.setattr(writer, "_seen", seen)
    monkeypatch.setattr(writer._thread, "wake", lambda: None)
    monkeypatch.setattr(writer._thread._thread, "_every", PATIENCE)
    commit = next_commit(row, b"x")
    backend.submit(commit, heard.append)
    with pytest.raises(KeyboardInterrupt):
        writer.close()
    assert [type(error) for error in heard] == [Committed if late else StoreClosed]
    backend.close()
    with_it = SqliteBackend(tmp_path / "s.db")
    assert with_it.run("r") == (commit.run if late else row)
    with_it.close()


def test_an_interrupted_commit_of_one_acknowledges_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a batch breaks, each is written by itself: who is interrupted after one of them has not written the next."""
    backend = SqliteBackend(tmp_path / "s.db")
    rows = [a_run(backend, name) for name in "abc"]
    writer, commits = backend._writer, [next_commit(row, b"x") for row in rows]
    flush, broken, seen = Transaction.flush, [RuntimeError("the batch breaks")], writer._seen
    interruptions = [KeyboardInterrupt]

    def break_once(self: Transaction) -> None:
        if broken:
            raise broken.pop()
        flush(self)

    def interrupted(writes: int) -> None:
        seen(writes)
        if interruptions:
            raise interruptions.pop()

    monkeypatch.setattr(Transaction, "flush", break_once)
    monkeypatch.setattr(writer, "_seen", interrupted)
    monkeypatch.setattr(writer._thread, "wake", lambda: None)
    monkeypatch.setattr(writer._thread._thread, "_every", PATIENCE)
    heard: dict[str, Outcome] = {}
    for commit in commits[:2]:
        backend.submit(commit, lambda error, name=commit.run.id: heard.update({name: error}))
    with pytest.raises(KeyboardInterrupt):
        backend.commit(commits[2])
    assert heard == {"a": Committed(0)}
    assert [backend.run(row.id) for row in rows] == [commits[0].run, rows[1], rows[2]]
    a_run(backend, "d")  # who comes next leads what was left
    assert heard == {"a": Committed(0), "b": Committed(0)}
    assert [backend.run(row.id) for row in rows] == [commits[0].run, commits[1].run, rows[2]]
    backend.close()


def test_a_second_ctrl_c_while_the_first_is_dealt_with_leaves_the_lock_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = SqliteBackend(tmp_path / "s.db")
    rows = [a_run(backend, name) for name in "ab"]
    writer, commits = backend._writer, [next_commit(row, b"x") for row in rows]
    heard: list[Outcome] = []

    def interrupted(*_given: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(writer._thread, "wake", lambda: None)
        patch.setattr(writer._thread._thread, "_every", PATIENCE)
        backend.submit(commits[1], heard.append)
        patch.setattr(Transaction, "flush", interrupted)
        patch.setattr(writer, "_break_off", interrupted)
        with pytest.raises(KeyboardInterrupt):
            backend.commit(commits[0])
    a_run(backend, "c")  # the next leader undoes the transaction and writes the rest of the batch
    assert heard == [Committed(0)]
    assert [backend.run(row.id) for row in rows] == [rows[0], commits[1].run]
    backend.close()


def test_an_interrupted_sleeper_takes_its_work_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = SqliteBackend(tmp_path / "s.db")
    rows = [a_run(backend, name) for name in "ab"]
    writer, commits = backend._writer, [next_commit(row, b"x") for row in rows]

    class Interrupted(group_commit.Wakeup):
        def wait(self, _seconds: float = -1) -> bool:
            raise KeyboardInterrupt

    beside = threading.Thread(target=writer.rest)  # another thread has the lock: one that has it itself does not sleep, it is refused
    beside.start()
    beside.join()
    with monkeypatch.context() as patch:
        patch.setattr(group_commit, "Wakeup", Interrupted)
        with pytest.raises(KeyboardInterrupt):
            backend.commit(commits[0])
    writer.resume()
    backend.commit(commits[1])
    assert [backend.run(row.id) for row in rows] == [rows[0], commits[1].run]
    backend.close()


def test_threads_that_commit_beside_deferred_ones_lose_none(backend: Backend) -> None:
    rows = {f"r{i}": a_run(backend, f"r{i}") for i in range(8)}
    heard: list[Outcome] = []

    def drive(name: str) -> None:
        for i in range(25):
            commit = next_commit(rows[name], b"x")
            if i % 3:
                backend.submit(commit, heard.append)
            else:
                backend.commit(commit)
            rows[name] = commit.run

    threads = [threading.Thread(target=drive, args=(name,)) for name in rows]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert until(lambda: len(heard) == 8 * 16)
    assert set(heard) == {Committed(0)}
    assert [backend.run(name) for name in rows] == list(rows.values())


def test_a_lock_that_the_thread_could_not_let_go_is_let_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = SqliteBackend(tmp_path / "s.db")
    row = a_run(backend, "r")
    writer, release, failures = backend._writer, backend._writer._release, [MemoryError]

    def without_memory(owner: Any, waiters: Any = ()) -> None:
        if failures and owner is writer._thread:
            raise failures.pop()
        release(owner, waiters)

    monkeypatch.setattr(writer, "_release", without_memory)
    commit, heard = next_commit(row, b"x"), list[Outcome]()
    backend.submit(commit, heard.append)
    assert until(lambda: heard == [Committed(0)])
    closing = threading.Thread(target=backend.close, daemon=True)  # waits for the lock, with nothing queued
    closing.start()
    closing.join(PATIENCE)
    assert not closing.is_alive()
    assert not failures

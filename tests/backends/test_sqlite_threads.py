"""The threads behind a SQLite store: a thread that waits for the writer's lock gets it, and a lack of memory leaves none of them waiting."""

import threading
import time
from _thread import start_new_thread
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from everstep.backends import owned_lock
from everstep.backends.contract.core import Commit, Committed, Outcome
from everstep.backends.owned_lock import Guest, OwnedLock
from everstep.backends.sqlite.backend import SqliteBackend
from everstep.backends.sqlite.files.wal import GROW_AFTER, MERGE_FRAMES
from everstep.backends.sqlite.writer import Writer
from everstep.errors import StoreBusy, StoreFailed
from everstep.runtime.engine.leases import LeaseKeeper
from everstep.store.store import BaseStore
from everstep.testing.rows import new_run, next_commit
from everstep.testing.waiting import until

PATIENCE = 20


class OneFailure:
    """Fails once for lack of memory, and then does what it stands for."""

    def __init__(self, act: Callable[..., Any]):
        self.act = act
        self.failed = 0
        self.worked = 0

    def __call__(self, *args: Any, **named: Any) -> Any:
        if not self.failed:
            self.failed = 1
            raise MemoryError
        result = self.act(*args, **named)
        self.worked += 1
        return result


class Door(dict[int, Any]):
    """Where a lock notes its owner; something happens while it is freed for the first time."""

    def __init__(self, meanwhile: Callable[[], None]):
        super().__init__()
        self._meanwhile: list[Callable[[], None]] = [meanwhile]

    def pop(self, *args: Any) -> Any:
        while self._meanwhile:
            self._meanwhile.pop()()
        return super().pop(*args)


def is_free(lock: OwnedLock) -> bool:
    guest = Guest()
    return lock.take(guest) and lock.release(guest)


def idle_writer() -> Writer:
    return Writer(lambda: pytest.fail("nothing is written"), "nowhere", lambda _writes: None)


def test_a_guest_that_comes_while_the_lock_is_let_go_gets_it() -> None:
    writer = idle_writer()
    guest = threading.Thread(target=writer.rest, daemon=True)

    def arrive() -> None:
        guest.start()
        until(lambda: bool(writer._lock._guests))
        time.sleep(0.05)  # it has found the lock taken, and sleeps

    writer._lock._owner = Door(arrive)
    writer.rest()
    writer.resume()
    guest.join(PATIENCE)
    assert not guest.is_alive()
    writer.resume()
    assert is_free(writer._lock)


def test_guests_get_the_lock_one_after_the_other() -> None:
    writer = idle_writer()
    inside, most = [], []

    def visit() -> None:
        for _ in range(200):
            writer.rest()
            inside.append(1)
            most.append(len(inside))
            inside.pop()
            writer.resume()

    guests = [threading.Thread(target=visit, daemon=True) for _ in range(4)]
    for guest in guests:
        guest.start()
    for guest in guests:
        guest.join(PATIENCE)
    assert not any(guest.is_alive() for guest in guests)
    assert (max(most), len(most)) == (1, 800)
    assert is_free(writer._lock)


@pytest.mark.parametrize("handed", [False, True], ids=["before its turn", "when it was its turn"])
def test_an_interrupted_guest_leaves_the_lock_to_others(monkeypatch: pytest.MonkeyPatch, handed: bool) -> None:
    writer = idle_writer()
    interruptions = [KeyboardInterrupt]

    class Interrupted(owned_lock.Guest):
        """A guest that Ctrl-C wakes."""

        def wait(self, seconds: float = -1) -> bool:
            if interruptions:
                if handed:
                    writer.resume()
                raise interruptions.pop()
            return super().wait(seconds)

    holder = threading.Thread(target=writer.rest)  # a second rest of one thread would be refused
    holder.start()
    holder.join(PATIENCE)
    monkeypatch.setattr(owned_lock, "Guest", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        writer.rest()
    if not handed:
        writer.resume()
    assert is_free(writer._lock)


@pytest.mark.parametrize("nor_undone", [False, True])
@pytest.mark.parametrize("written", [False, True])
def test_a_lack_of_memory_inside_the_writer_ends_the_handle_and_nobody_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nor_undone: bool, written: bool
) -> None:
    backend = SqliteBackend(tmp_path / "s.db")
    row = new_run("r")
    backend.commit(Commit(row, None))
    writer = backend._writer
    if written:
        monkeypatch.setattr(writer, "_seen", OneFailure(lambda _writes: None))  # right after COMMIT
    else:
        monkeypatch.setattr(writer, "_write", OneFailure(writer._write))
    if nor_undone:
        assert writer._transaction is not None
        monkeypatch.setattr(writer._transaction, "rollback", OneFailure(lambda: None))
    settled: list[Outcome] = []
    commit = next_commit(row, b"x")
    backend.submit(commit, settled.append)
    assert until(lambda: bool(settled))
    assert [type(error) for error in settled] == [Committed if written else StoreFailed]
    assert backend.run("r") == (commit.run if written else row)
    with pytest.raises(StoreFailed, match="memory ran out inside the writer") as refused:
        backend.commit(Commit(new_run("s"), None))
    assert (refused.value.written, refused.value.lasting) == ("no", True)
    backend.close()
    again = SqliteBackend(tmp_path / "s.db")
    again.commit(Commit(new_run("s"), None))
    again.close()


def test_a_caller_that_finds_no_memory_while_it_leads_learns_that_its_save_is_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = SqliteBackend(tmp_path / "s.db")
    backend.commit(Commit(new_run("r"), None))
    monkeypatch.setattr(backend._writer, "_seen", OneFailure(lambda _writes: None))
    with pytest.raises(StoreFailed) as failed:
        backend.commit(Commit(new_run("s"), None))
    assert (failed.value.written, failed.value.lasting, type(failed.value.__cause__)) == ("unknown", True, MemoryError)
    assert is_free(backend._writer._lock)
    backend.close()


def test_the_wal_is_cared_for_after_a_moment_without_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = SqliteBackend(tmp_path / "s.db")
    failing = OneFailure(backend._wal._work)
    monkeypatch.setattr(backend._wal, "_work", failing)
    row = new_run("r")
    backend.commit(Commit(row, None))
    for _ in range(GROW_AFTER):
        commit = next_commit(row, b"x")
        backend.commit(commit)
        row = commit.run
    assert until(lambda: bool(failing.failed))
    while backend._wal._frames < MERGE_FRAMES:
        commit = next_commit(row, bytes(1 << 20))
        backend.commit(commit)
        row = commit.run
    assert until(lambda: bool(failing.worked))
    backend.close()


def test_a_commit_counts_although_no_memory_is_left_to_care_for_the_wal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = SqliteBackend(tmp_path / "s.db")
    row = new_run("r")
    backend.commit(Commit(row, None))
    failing = OneFailure(start_new_thread)
    monkeypatch.setattr("everstep.threads.background.start_new_thread", failing)
    for _ in range(GROW_AFTER + 1):
        commit = next_commit(row, b"x")
        backend.commit(commit)
        row = commit.run
    assert (failing.failed, failing.worked) == (1, 1)
    backend.close()


def test_leases_are_renewed_after_a_moment_without_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = SqliteBackend(tmp_path / "s.db")
    backend.commit(Commit(new_run("r"), None))
    failing = OneFailure(backend.renew)
    monkeypatch.setattr(backend, "renew", failing)
    keeper = LeaseKeeper(BaseStore(backend), ttl=0.06)
    row = keeper.acquire("r")
    assert until(lambda: failing.worked > 2)
    keeper.release(row)
    keeper.close()
    backend.close()


def test_a_transaction_that_cannot_be_taken_back_keeps_nobody_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backend, other = (SqliteBackend(tmp_path / "s.db", busy_ms=50) for _ in range(2))
    row = new_run("r")
    backend.commit(Commit(row, None))
    transaction = backend._writer._transaction
    assert transaction is not None
    for name in ("flush", "rollback"):
        monkeypatch.setattr(transaction, name, OneFailure(lambda: None))
    with pytest.raises(MemoryError):
        backend.commit(next_commit(row, b"x"))
    other.commit(Commit(new_run("s"), None))
    commit = next_commit(row, b"y")
    backend.commit(commit)
    assert backend.run("r") == commit.run
    other.close()
    backend.close()


def test_a_store_is_closed_although_a_part_of_it_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = SqliteBackend(tmp_path / "s.db")
    backend.commit(Commit(new_run("r"), None))
    monkeypatch.setattr(backend._wal, "close", OneFailure(lambda: None))
    with pytest.raises(MemoryError):
        backend.close()
    assert not (tmp_path / "s.db-wal").exists()


def test_where_no_thread_is_to_be_had_a_commit_was_not_made_and_the_next_one_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = SqliteBackend(tmp_path / "s.db")
    row = new_run("r")
    backend.commit(Commit(row, None))
    commit, settled = next_commit(row, b"x"), list[Outcome]()

    def no_thread(*_given: Any) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr("everstep.threads.background.start_new_thread", no_thread)
        with pytest.raises(StoreBusy, match="could not start a thread: can't start new thread") as raised:
            backend.submit(commit, settled.append)
    assert settled == []
    assert (raised.value.written, raised.value.code) == ("no", "E407")
    backend.submit(commit, settled.append)
    assert until(lambda: bool(settled))
    assert settled == [Committed(0)]
    backend.close()

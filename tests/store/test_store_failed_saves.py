"""Errors leave the former head, and the next checkpoint saves everything."""

# ruff: noqa: PT012 -- a run that raises has a block

import os
import resource
import signal
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest

import everstep
from everstep.errors import (
    Conflict,
    EverstepError,
    InvalidArgument,
    LostLease,
    NewerFormat,
    NotAStore,
    ReadOnly,
    StoreBusy,
    StoreFull,
    UnknownBackend,
    Unstorable,
)
from everstep.runtime.run import attempt_of


class Trouble:
    """Makes commits of one backend fail while it is on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, backend: Any):
        self.error: BaseException | None = None
        self._commit, self._submit = backend.commit, backend.submit
        monkeypatch.setattr(backend, "commit", self.commit)
        monkeypatch.setattr(backend, "submit", self.submit)

    def commit(self, commit: Any) -> Any:
        if self.error is not None:
            raise self.error
        return self._commit(commit)

    def submit(self, commit: Any, done: Any) -> None:
        if self.error is not None:
            done(self.error)
        else:
            self._submit(commit, done)


@pytest.mark.parametrize("error", [StoreFull("full"), StoreBusy("busy"), ReadOnly("read-only")], ids=lambda e: type(e).__name__)
def test_after_trouble_that_passes_the_next_checkpoint_saves_everything(
    store: everstep.Store, monkeypatch: pytest.MonkeyPatch, error: EverstepError
) -> None:
    trouble = Trouble(monkeypatch, store.backend)
    with store.run("r", state={"log": [], "plain": None}) as run:
        held: list[int] = []
        run.state["plain"] = held
        run.state["log"].append("one")
        run.checkpoint()
        trouble.error = error
        run.state["log"].append("two")
        held.append(2)
        for _ in range(3):
            with pytest.raises(type(error)) as caught:
                run.checkpoint()
            assert caught.value.written == "no"
        assert run.number == 1
        assert store.get("r").checkpoints == 1
        assert store.load("r") == {"log": ["one"], "plain": []}
        run.state["log"].append("three")
        held.append(3)
        trouble.error = None
        assert run.checkpoint().number == 2
        assert store.load("r") == {"log": ["one", "two", "three"], "plain": [2, 3]}
        run.state["log"].append("four")
        assert run.checkpoint().number == 3
    assert store.load("r")["log"] == ["one", "two", "three", "four"]
    assert store.verify("full").ok


@pytest.mark.parametrize("error", [StoreFull("full"), StoreBusy("busy")], ids=lambda e: type(e).__name__)
def test_a_run_whose_end_could_not_be_recorded_is_let_go(
    store: everstep.Store, monkeypatch: pytest.MonkeyPatch, error: EverstepError
) -> None:
    trouble = Trouble(monkeypatch, store.backend)
    with pytest.raises(type(error)), store.run("r", state={"a": 1}) as run:
        run.checkpoint()
        trouble.error = error
    trouble.error = None
    with store.run("r") as run:
        assert run.state == {"a": 1}


def test_an_error_in_the_block_is_not_hidden_by_trouble_at_its_end(store: everstep.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    trouble = Trouble(monkeypatch, store.backend)
    with pytest.raises(ZeroDivisionError) as caught, store.run("r") as run:
        run.checkpoint()
        trouble.error = StoreFull("full")
        1 / 0
    assert any("could not record the end of run 'r'" in note for note in caught.value.__notes__)


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
def test_an_unstorable_value_leaves_the_head_and_the_handle(store: everstep.Store, durability: Any) -> None:
    with store.run("r", state={"l": [1]}, durability=durability) as run:
        run.checkpoint()
        run.flush()
        run.state["l"].append(print)
        run.state["other"] = "kept"
        with pytest.raises(Unstorable, match=r"state\['l'\]\[1\]"):
            run.checkpoint()
        assert store.load("r") == {"l": [1]}
        run.state["l"][1] = "fine"
        assert run.checkpoint().number == 2
    assert store.load("r") == {"l": [1, "fine"], "other": "kept"}


def test_an_unstorable_initial_state_makes_no_run(store: everstep.Store) -> None:
    with pytest.raises(Unstorable, match=r"state\['f'\]"), store.run("r", state={"f": print}):
        pass
    with store.run("r", state={"fine": 1}) as run:
        assert run.state == {"fine": 1}
        run.checkpoint()


def test_a_writer_that_was_overtaken_writes_nothing_more(places: Any) -> None:
    slow = places.open(lease_seconds=0.05)
    slow.keeper.close()  # as if its machine had stopped: no renewal, and no thread is started again
    run = slow.run("r", state={"a": 1}).__enter__()
    run.checkpoint()
    import time

    time.sleep(0.1)
    fast = places.open()
    with fast.run("r") as other:
        other.state["a"] = "taken"
        other.checkpoint()
        run.state["a"] = "late"
        with pytest.raises(LostLease) as caught:
            run.checkpoint()
        assert caught.value.written == "no"
        with pytest.raises(LostLease):
            run.checkpoint()
        other.state["b"] = 1
        other.checkpoint()
    assert fast.load("r") == {"a": "taken", "b": 1}
    run.__exit__(None, None, None)
    assert fast.load("r") == {"a": "taken", "b": 1}
    assert fast.verify("full").ok


def test_a_run_that_moved_on_is_a_conflict(store: everstep.Store) -> None:
    with store.run("r", state={"a": 1}) as run:
        run.checkpoint()
        stale = attempt_of(run).row
        run.state["a"] = 2
        run.checkpoint()
        newest = attempt_of(run).row
        attempt_of(run).row = stale
        run.state["a"] = 3
        with pytest.raises(Conflict):
            run.checkpoint()
        assert store.load("r") == {"a": 2}
        attempt_of(run).row = newest
    assert store.verify("full").ok


def test_deleting_a_run_under_its_writer_is_refused(store: everstep.Store) -> None:
    with store.run("r") as run:
        run.checkpoint()
        with pytest.raises(EverstepError):
            store.delete("r")
        run.checkpoint()


@contextmanager
def file_size_limit(limit: int) -> Iterator[None]:
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, old[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)
        signal.signal(signal.SIGXFSZ, handler)


def test_a_file_that_may_not_grow_is_full_and_the_run_goes_on_when_it_may(tmp_path: Path) -> None:
    store = everstep.open(tmp_path / "s.db", wal_bytes=0)
    with store.run("r", state={"l": []}) as run:
        run.checkpoint()
        with file_size_limit(400_000), pytest.raises(StoreFull) as caught:
            for _ in range(500):
                run.state["l"].append(os.urandom(5000))
                run.checkpoint()
        assert caught.value.written == "no"
        head = run.number
        assert store.get("r").checkpoints == head
        assert len(store.load("r")["l"]) == head - 1
        assert len(run.state["l"]) == head
        assert run.checkpoint().number == head + 1
        assert store.load("r") == run.state
    assert store.verify("full").ok
    store.close()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everything")
def test_a_store_that_cannot_be_written_can_be_read(tmp_path: Path) -> None:
    folder = tmp_path / "d"
    folder.mkdir()
    with everstep.open(folder / "s.db") as store, store.run("r", state={"a": 1}) as run:
        run.checkpoint()
    folder.chmod(stat.S_IRUSR | stat.S_IXUSR)
    try:
        with everstep.open(folder / "s.db") as store:
            assert store.load("r") == {"a": 1}
            with pytest.raises(ReadOnly), store.run("r"):
                pass
    finally:
        folder.chmod(stat.S_IRWXU)


def test_files_that_are_no_stores_are_refused_and_left_alone(tmp_path: Path) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("precious")
    other = tmp_path / "other.db"
    connection = apsw.Connection(str(other))
    connection.execute("CREATE TABLE t (x)")
    connection.close()
    newer = tmp_path / "newer.db"
    everstep.open(newer).close()
    connection = apsw.Connection(str(newer))
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    for path, error in [(text, NotAStore), (other, NotAStore), (tmp_path, NotAStore), (newer, NewerFormat)]:
        with pytest.raises(error):
            everstep.open(path)
    assert text.read_text() == "precious"
    with pytest.raises(UnknownBackend):
        everstep.open("ftp://somewhere")
    with pytest.raises(InvalidArgument):
        everstep.open(tmp_path / "x.db", compression="lz4")  # type: ignore[arg-type]


def test_two_threads_that_begin_one_new_run_at_once_are_one_owner_and_one_refusal(
    store: everstep.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between looking for a run and making it another writer may have made it."""
    original = type(store.backend).run
    twin = store.run("r", state={"who": "twin"})

    def looking(self: Any, name: str) -> Any:
        found = original(self, name)
        monkeypatch.setattr(type(store.backend), "run", original)
        if found is None:
            twin.__enter__()
        return found

    monkeypatch.setattr(type(store.backend), "run", looking)
    with pytest.raises(everstep.errors.LeaseHeld), store.run("r", state={"who": "me"}):
        pass
    twin.checkpoint()
    twin.__exit__(None, None, None)
    assert store.load("r") == {"who": "twin"}

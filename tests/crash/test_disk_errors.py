"""EIO, ENOSPC and full disks: an error says what happened, and the process goes on or is told that the store is closed."""

import errno
import fcntl
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import apsw
import pace
import pytest
from shim_helpers import shim_or_skip

import everstep
from everstep.backends.sqlite.files.create import discard, remove_unfinished, unfinished
from everstep.backends.sqlite.leases import WorkerLocks
from everstep.errors import LeaseHeld, StoreError, StoreFailed, StoreFull
from everstep.runtime.engine.leases import LeaseKeeper
from harness.faults.disk import errors, full

PARTS = 3


@pytest.mark.parametrize("seed", pace.in_turn(range(PARTS)))
def test_every_call_works_or_says_what_was_written(memory_folder: Path, seed: int) -> None:
    shim_or_skip()
    points = pace.share(errors.SHORT // PARTS, 2)
    count = errors.SWEEP.part(memory_folder, points, seed, workers=1)
    assert (count.bad, count.notes) == (0, []), str(count)
    assert count.tried == count.held > points * 0.6
    assert count.detected > count.tried // 3


def test_stores_that_are_broken_on_purpose_are_caught_by_an_error(memory_folder: Path) -> None:
    shim_or_skip()
    assert errors.SWEEP.canaries(memory_folder) == {
        "a store that swallows ENOSPC": True,
        "a store that always says not written": True,
    }


@pytest.fixture
def _few_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(full, "SHORT", pace.share(full.SHORT, 2))


@pytest.mark.usefixtures("_few_sizes")
def test_a_program_goes_on_when_a_full_disk_has_space_again(memory_folder: Path) -> None:
    count = full.run(memory_folder, deep=False, seed=1)
    assert count.ok, str(count)
    assert count.tried >= full.SHORT // 3


@pytest.mark.usefixtures("_few_sizes")
def test_a_program_goes_on_when_its_files_may_grow_again(memory_folder: Path) -> None:
    count = full.run(memory_folder, deep=False, seed=2, mounts=False)
    assert count.ok, str(count)
    assert "limit" in count.harness


# a lease that cannot be given back


class Full:
    """The writes of a backend, for which there is no space now and then."""

    def __init__(self, store: everstep.Store, monkeypatch: pytest.MonkeyPatch):
        self.full = False
        for name in ("commit", "release", "renew"):
            monkeypatch.setattr(store.backend, name, self._wrapped(getattr(store.backend, name)))

    def _wrapped(self, call: Any) -> Any:
        def wrapped(*args: Any) -> Any:
            if self.full:
                raise StoreFull
            return call(*args)

        return wrapped


def leave_without_space(store: everstep.Store, disk: Full) -> None:
    with pytest.raises(StoreFull), store.run("r", state={"n": 1}) as run:  # noqa: PT012 -- the leaving is the point
        run.checkpoint()
        disk.full = True
        run.checkpoint()


def test_a_run_that_was_left_on_a_full_disk_can_be_opened_again_when_there_is_space(
    store: everstep.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Full(store, monkeypatch)
    leave_without_space(store, disk)
    with pytest.raises(StoreFull), store.run("r"):
        pass
    disk.full = False
    with store.run("r") as run:
        assert run.state == {"n": 1}
        run.checkpoint()
    assert store.get("r").status == "succeeded"


def test_a_run_that_was_left_on_a_full_disk_is_free_for_others_when_there_is_space(places: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    store, other = places.open(lease_seconds=0.3), places.open()
    disk = Full(store, monkeypatch)
    given_back = given_back_later(store, monkeypatch)
    leave_without_space(store, disk)
    with pytest.raises(LeaseHeld), other.run("r"):
        pass
    disk.full = False
    given_back()
    with other.run("r") as run:
        assert run.state == {"n": 1}


def given_back_later(store: everstep.Store, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Wait until the store has given back what it owes."""
    done = threading.Event()
    settle = LeaseKeeper._settle

    def noted(self: LeaseKeeper, run: str) -> None:
        settle(self, run)
        done.set()

    monkeypatch.setattr(LeaseKeeper, "_settle", noted)
    return lambda: (done.clear(), done.wait(30))


# files beside the store


@pytest.mark.parametrize(("number", "error"), [(errno.ENOSPC, StoreFull), (errno.EIO, StoreError)])
def test_a_lock_file_that_cannot_be_made_is_an_error_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, error: type[StoreError]
) -> None:
    def fails(path: str) -> int:
        raise OSError(number, os.strerror(number), path)

    with everstep.open(tmp_path / "s.db") as store:
        monkeypatch.setattr(WorkerLocks, "_locked", staticmethod(fails))
        with pytest.raises(error) as caught, store.run("r"):
            pass
        assert caught.value.written == "no"
        monkeypatch.undo()
        with store.run("r") as run:
            run.checkpoint()


def test_the_lock_file_of_a_dead_worker_goes_when_the_store_is_opened(tmp_path: Path) -> None:
    dies = f"""
import os, signal, everstep
store = everstep.open({str(tmp_path / "s.db")!r})
run = store.run("r").__enter__()
run.checkpoint()
os.kill(os.getpid(), signal.SIGKILL)
"""
    subprocess.run([sys.executable, "-c", dies], check=False)
    locks = tmp_path / "s.db-locks"
    assert len(list(locks.iterdir())) == 1
    with everstep.open(tmp_path / "s.db", create=False):
        assert list(locks.iterdir()) == []


def test_the_lock_file_of_a_living_worker_stays(tmp_path: Path) -> None:
    with everstep.open(tmp_path / "s.db") as store, store.run("r") as run:
        run.checkpoint()
        held = list((tmp_path / "s.db-locks").iterdir())
        looks = f"import everstep; everstep.open({str(tmp_path / 's.db')!r}).close()"
        subprocess.run([sys.executable, "-c", looks], check=True)
        with everstep.open(tmp_path / "s.db"):  # in this process, too
            assert list((tmp_path / "s.db-locks").iterdir()) == held
        subprocess.run([sys.executable, "-c", looks], check=True)
        assert list((tmp_path / "s.db-locks").iterdir()) == held
    assert list((tmp_path / "s.db-locks").iterdir()) == []


def test_a_lock_file_that_is_removed_while_it_is_being_locked_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    locks, lock = WorkerLocks(str(tmp_path / "locks")), fcntl.lockf
    removed = []

    def remove_first(descriptor: int, how: int) -> None:
        lock(descriptor, how)
        if not removed:
            removed.append((tmp_path / "locks" / "w").unlink())

    monkeypatch.setattr(fcntl, "lockf", remove_first)
    before = len(os.listdir("/dev/fd"))
    assert locks.hold("w")
    assert removed
    assert len(os.listdir("/dev/fd")) == before + 1, "the file that was removed is closed"
    assert (tmp_path / "locks" / "w").stat().st_ino == os.fstat(locks._held["w"]).st_ino
    locks.close()


def test_what_a_failed_creation_left_is_removed_by_the_next_one_in_the_same_process(tmp_path: Path) -> None:
    failed, making = unfinished(tmp_path / "s.db"), unfinished(tmp_path / "s.db")
    failed.touch()
    discard(failed)
    assert not failed.exists()
    for left in (failed, Path(f"{failed}-journal"), making, Path(f"{making}-journal")):
        left.touch()
    remove_unfinished(tmp_path / "s.db")
    assert sorted(tmp_path.iterdir()) == [making, Path(f"{making}-journal")]
    discard(making)
    assert list(tmp_path.iterdir()) == []


def test_a_store_is_opened_although_what_a_killed_process_left_cannot_be_removed_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "s.db"
    everstep.open(path).close()
    left = tmp_path / ".s.db.999999999.0123456789ab.new"
    left.hardlink_to(path)  # the process was killed between the two names

    def broken(self: Path, missing_ok: bool = False) -> None:
        raise OSError(errno.EIO, "Input/output error", str(self))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", broken)
        everstep.open(path).close()
        assert left.exists()
    everstep.open(path).close()
    assert not left.exists()


# the WAL


class Unmerged:
    """A connection on which the WAL cannot be merged."""

    system_errno = 0

    def __init__(self, error: type[apsw.Error]):
        self._error = error

    def wal_checkpoint(self, mode: int) -> None:
        raise self._error("disk")

    def close(self) -> None:
        """Nothing to close."""


@pytest.mark.parametrize("error", [apsw.FullError, apsw.BusyError])
def test_a_wal_that_cannot_be_merged_now_is_merged_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[apsw.Error]) -> None:
    with everstep.open(tmp_path / "s.db") as store:
        with store.run("r") as run:
            run.checkpoint()
        monkeypatch.setattr(store.backend._wal, "_connection", Unmerged(error))  # type: ignore[attr-defined]
        store.gc(compact=True)
        with store.run("r") as run:
            run.checkpoint()


def test_a_disk_that_fails_when_the_wal_is_merged_closes_the_handle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with everstep.open(tmp_path / "s.db") as store:
        with store.run("r") as run:
            run.checkpoint()
        monkeypatch.setattr(store.backend._wal, "_connection", Unmerged(apsw.IOError))  # type: ignore[attr-defined]
        with pytest.raises(StoreFailed):
            store.gc(compact=True)
        with pytest.raises(StoreFailed), store.run("r"):
            pass
    with everstep.open(tmp_path / "s.db") as store:
        assert store.get("r").status == "succeeded"

"""What differs by operating system, each branch of it; and Windows, which is refused in one sentence."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import everstep
from everstep import system
from everstep.backends.sqlite.files.store_file import SqliteFile
from everstep.clock import Clock
from everstep.transactions.sqlite import SqliteResults

FULL = 51  # F_FULLFSYNC of macOS


class Calls:
    """Records which sync each descriptor got."""

    def __init__(self, patch: pytest.MonkeyPatch, refuse: bool = False) -> None:
        self.made: list[str] = []
        self._refuse = refuse
        self._fcntl, self._fsync = fcntl.fcntl, os.fsync
        patch.setattr(fcntl, "fcntl", self.fcntl)
        patch.setattr(os, "fsync", self.fsync)

    def fcntl(self, descriptor: int, command: int, *args: Any) -> Any:
        if command != FULL:
            return self._fcntl(descriptor, command, *args)
        if self._refuse:
            raise OSError(errno.ENOTSUP, "not supported")
        return self.made.append("full")

    def fsync(self, descriptor: int) -> None:
        self.made.append("fsync")
        self._fsync(descriptor)


def test_on_linux_a_sync_is_an_fsync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = Calls(monkeypatch)
    system.sync_folder(tmp_path)
    assert calls.made == ["fsync"]
    assert not system.needs_full_sync()


def test_on_macos_a_sync_is_f_fullfsync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system, "_FULL_SYNC", FULL)
    calls = Calls(monkeypatch)
    system.sync_folder(tmp_path)
    assert calls.made == ["full"]
    assert system.needs_full_sync()


def test_where_the_file_system_has_no_f_fullfsync_an_fsync_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system, "_FULL_SYNC", FULL)
    calls = Calls(monkeypatch, refuse=True)
    system.sync_folder(tmp_path)
    assert calls.made == ["fsync"]


def test_on_macos_every_file_of_ours_is_synced_fully(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store is created, its WAL is grown, a damaged one is repaired: no plain fsync is left in our own calls."""
    monkeypatch.setattr(system, "_FULL_SYNC", FULL)
    calls = Calls(monkeypatch)
    with everstep.open(tmp_path / "s.db") as store, store.run("r") as run:
        for n in range(12):
            run.state["n"] = n
            run.checkpoint()
        deadline = time.monotonic() + 20
        while (tmp_path / "s.db-wal").stat().st_size < 4 << 20 and time.monotonic() < deadline:
            time.sleep(0.02)
    everstep.repair(tmp_path / "s.db", tmp_path / "t.db")
    assert calls.made.count("full") > 10
    assert "fsync" not in calls.made


@pytest.mark.parametrize("macos", [False, True])
def test_sqlite_is_told_to_sync_fully_where_fsync_does_not_reach_the_disk(
    macos: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(system, "_FULL_SYNC", FULL if macos else None)
    file = SqliteFile(tmp_path / "s.db")
    for connect in (file.writer, file.reader):  # the last connection to close merges the WAL, and that may be a reader's
        connection = connect()
        assert [connection.pragma(name) for name in ("fullfsync", "checkpoint_fullfsync")] == [int(macos)] * 2
        connection.close()
    for first in file.readers():
        first.close()
    results = SqliteResults(str(tmp_path / "own.db"))
    own = results._connect()
    assert [own.own(f"PRAGMA {name}") for name in ("fullfsync", "checkpoint_fullfsync")] == [[(int(macos),)]] * 2
    sqlite3.Connection.close(own)


def test_doctor_says_what_holds_on_this_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with everstep.open(tmp_path / "s.db") as store:
        said = {finding.name: finding for finding in store.doctor().findings}
        assert said["system"].sentence.startswith("Linux: saves are synced with fsync, each boot has an id")
        assert "only" not in said["system"].sentence
        monkeypatch.setattr(system, "_FULL_SYNC", FULL)
        monkeypatch.setattr(sys, "platform", "darwin")
        said = {finding.name: finding for finding in store.doctor().findings}
        assert said["system"].sentence.startswith("macOS: saves are synced with F_FULLFSYNC")
        assert said["system"].sentence.endswith("the test suites run only on Linux")
        assert said["sync"].level == "ok"


def test_doctor_finds_connections_that_do_not_sync_fully(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with everstep.open(tmp_path / "s.db") as store:
        monkeypatch.setattr("everstep.backends.sqlite.health.needs_full_sync", lambda: True)
        said = {finding.name: finding for finding in store.doctor().findings}
        assert (said["sync"].level, "F_FULLFSYNC" in said["sync"].sentence) == ("bad", True)


def test_the_boot_clock_runs_during_sleep_where_the_system_has_such_a_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(time, "clock_gettime_ns", lambda kind: asked.append(kind) or 5_000)
    assert Clock().boot_us() == 5
    monkeypatch.delattr(time, "CLOCK_BOOTTIME")
    system.boot_ns()
    monkeypatch.setattr(sys, "platform", "darwin")
    system.boot_ns()
    assert asked == [7, time.CLOCK_MONOTONIC, time.CLOCK_MONOTONIC_RAW]


def test_a_boot_has_the_name_that_the_system_gives_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert Clock().boot_id() == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    monkeypatch.setattr(system, "_BOOT_ID", tmp_path / "missing")
    assert system.boot_id() == system.UNKNOWN_BOOT
    monkeypatch.setattr(sys, "platform", "darwin")
    assert system.boot_id() == system.UNKNOWN_BOOT, "this C library has no sysctlbyname"

    class Library:
        def __init__(self, _: object) -> None: ...

        def sysctlbyname(self, key: bytes, value: Any, _size: Any, _new: None, _length: int) -> int:
            assert key == b"kern.bootsessionuuid"
            value.value = b"0F1E2D3C"
            return 0

    monkeypatch.setattr(ctypes, "CDLL", Library)
    assert system.boot_id() == "0F1E2D3C"


def test_an_unknown_boot_keeps_its_name_when_the_clock_is_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A name made from the wall clock would change, and a living writer would count as dead."""
    monkeypatch.setattr(system, "_BOOT_ID", tmp_path / "missing")
    before = Clock().boot_id()
    monkeypatch.setattr(time, "time_ns", lambda: 0)
    assert Clock().boot_id() == before


def test_a_process_has_a_name_on_linux_and_none_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    assert system.process_name(os.getpid()).split()[1] == str(os.getpid())

    def refused(_: Path) -> Path:
        raise FileNotFoundError

    monkeypatch.setattr(Path, "readlink", refused)
    assert system.process_name(os.getpid()) == ""


def test_a_process_is_alive_or_not_without_a_proc_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert system.is_alive(child.pid)
        child.communicate(b"\n")
    assert not system.is_alive(child.pid)
    assert not any(map(system.is_alive, (0, -1, 10**30)))

    def forbidden(_pid: int, _signal: int) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "kill", forbidden)
    assert system.is_alive(1), "a process of another user"


def test_a_lock_is_held_against_other_processes(tmp_path: Path) -> None:
    look = "import os, sys; from everstep import system; print(system.try_lock(os.open(sys.argv[1], os.O_RDWR)))"

    def other() -> str:
        return subprocess.run([sys.executable, "-c", look, str(tmp_path / "f")], capture_output=True, text=True, check=True).stdout.strip()

    descriptor = os.open(tmp_path / "f", os.O_RDWR | os.O_CREAT)
    assert other() == "True"
    system.lock(descriptor)
    assert other() == "False"
    os.close(descriptor)


@pytest.mark.parametrize("platform", ["linux", "win32"])
def test_on_windows_the_import_ends_in_one_sentence(platform: str) -> None:
    program = f"import sys; sys.platform = {platform!r}; import everstep; everstep.open"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    if platform == "linux":
        assert (done.returncode, done.stderr) == (0, "")
        return
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("ImportError: Everstep does not support Windows: use it inside WSL")
    assert done.stderr.count("File ") == 2, "the program's line and ours: nothing from deep inside"


def test_the_package_names_only_pythons_that_were_run() -> None:
    text = Path(__file__).parents[2].joinpath("pyproject.toml").read_text()
    assert "Python :: 3.13" in text
    assert "Python :: 3.14" not in text

"""The doctor finds what is unsafe, wasteful or left over, says so in a sentence with a remedy, and never fails for what it finds."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from upkeep_helpers import grow, many_bases
from verify_helpers import tamper

import everstep
from everstep.backends.sqlite.files import mounts
from everstep.clock import clock
from everstep.codec.frame import Framer
from everstep.codec.values import encode
from everstep.errors import StoreClosed
from everstep.store.verify.findings import Checkup, Finding
from everstep.store.verify.full_copy_estimate import shown_size
from everstep.testing.clock import FakeClock

NAMES = [
    "system", "engine", "journal mode", "sync", "file system", "permissions", "free space", "free pages", "rollback guard", "manifest", "clock",
    "unfinished runs", "leases", "size", "verify", "cleanup", "credentials",
]  # fmt: skip


@pytest.fixture
def local(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A system whose disks are all local, wherever the tests run."""
    table = tmp_path / "mounts"
    table.write_text("/dev/vda1 / ext4 rw 0 0\n")
    monkeypatch.setattr(mounts, "MOUNTS", table)
    return table


@pytest.fixture
def path(tmp_path: Path, local: Path) -> Path:
    folder = tmp_path / "own"
    folder.mkdir(mode=0o700)
    return folder / "s.db"


@pytest.fixture
def store(path: Path) -> Iterator[everstep.Store]:
    with everstep.open(path) as opened:
        yield opened


def checkup(store: everstep.Store, monkeypatch: pytest.MonkeyPatch, **health: Any) -> Checkup:
    """What the doctor says if the backend reports this about itself."""
    told = store.backend.health() | health
    with monkeypatch.context() as patch:
        patch.setattr(store.backend, "health", lambda: told)
        return store.doctor()


def test_a_healthy_store_has_nothing_but_good_findings(store: everstep.Store) -> None:
    grow(store, "r", 10)
    store.verify("full")
    found = store.doctor()
    assert [finding.name for finding in found] == NAMES
    assert (found.ok, found.level) == (True, "ok"), str(found)
    assert all(finding.remedy is None for finding in found)
    assert all(finding.sentence and "None" not in finding.sentence for finding in found)
    assert str(found).count("\n") == len(NAMES) - 1


def test_a_store_in_memory_is_looked_at_as_far_as_there_is_something_to_see() -> None:
    with everstep.open("memory://") as store:
        grow(store, "r", 3)
        found = store.doctor()
    assert found["file system"].level == "warn"
    assert {finding.name for finding in found} == set(NAMES) - {
        "system", "engine", "journal mode", "sync", "permissions", "free space", "free pages", "rollback guard",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "health", "level", "word"),
    [
        ("engine", {"version": "3.51.2"}, "warn", "3.51.2"),
        ("engine", {"version": "3.51.3"}, "ok", "3.51.3"),
        ("engine", {"version": "3.40.1"}, "warn", "3.40.1"),
        ("engine", {"version": "4.0.0"}, "ok", "4.0.0"),
        ("journal mode", {"journal_mode": "delete"}, "warn", "delete"),
        ("sync", {"synchronous": "normal"}, "bad", "normal"),
        ("sync", {"synchronous": "off"}, "bad", "off"),
        ("sync", {"synchronous": "extra"}, "ok", "synced"),
        ("file system", {"network": True, "file_system": "nfs4"}, "bad", "nfs4"),
        ("file system", {"volatile": True, "file_system": "tmpfs"}, "warn", "tmpfs"),
        ("file system", {"file_system": None}, "ok", "of unknown type"),
        ("permissions", {"file_mode": 0o644}, "warn", "644"),
        ("permissions", {"file_mode": 0o660}, "warn", "660"),
        ("permissions", {"folder_mode": 0o770}, "warn", "770"),
        ("permissions", {"folder_mode": 0o1777}, "ok", "owner"),
        ("permissions", {"folder_mode": 0o755}, "ok", "owner"),
        ("free space", {"disk_free": 1_000_000}, "bad", "1.0 MB"),
        ("free space", {"disk_free": 100_000_000}, "warn", "100 MB"),
        ("free pages", {"free_pages": 100_000, "pages": 200_000}, "warn", "410 MB of 819 MB"),
        ("free pages", {"free_pages": 1_000, "pages": 200_000}, "ok", "4.1 MB"),
        ("wal", {"wal_bytes": 400_000_000}, "warn", "400 MB"),
        ("rollback guard", {"seen": 12, "writes": 9}, "bad", "3 writes"),
        ("rollback guard", {"seen": None}, "ok", "has not recorded the store yet"),
        ("writing", {"read_only": "it is on a disk that is read-only"}, "warn", "read-only"),
    ],
)  # fmt: skip
def test_what_the_backend_tells_is_judged(
    store: everstep.Store, monkeypatch: pytest.MonkeyPatch, name: str, health: dict[str, Any], level: str, word: str
) -> None:
    found = checkup(store, monkeypatch, **health)[name]
    assert found.level == level
    assert word in found.sentence
    assert (found.remedy is None) == (level == "ok")


def test_permissions_are_those_of_the_file(store: everstep.Store, path: Path) -> None:
    assert store.doctor()["permissions"].level == "ok"
    path.chmod(0o640)
    assert "640" in store.doctor()["permissions"].sentence
    path.chmod(0o600)
    path.parent.chmod(0o707)
    assert "707" in store.doctor()["permissions"].sentence


@pytest.mark.parametrize(
    ("table", "kind", "network"),
    [
        ("none / ext4\nserver:/x {own} nfs4", "nfs4", True),
        ("none / nfs4\nnone {own} xfs", "xfs", False),
        ("none {own} xfs\nnone {own} fuse.sshfs", "fuse.sshfs", True),
        ("none / btrfs\nnone {own}x nfs", "btrfs", False),
        ("none / ext4\nnone {own} 9p", "9p", True),
        ("none / overlay\n\nbroken", "overlay", False),
    ],
)
def test_the_file_system_is_that_of_the_deepest_mount(path: Path, local: Path, table: str, kind: str, network: bool) -> None:
    place = str(path.parent).replace(" ", r"\040")
    local.write_text("\n".join(f"{line} rw 0 0" if line else "" for line in table.format(own=place).splitlines()) + "\n")
    assert mounts.file_system(path) == kind
    assert mounts.is_network(kind) == network
    with everstep.open(path) as store:
        found = store.doctor()["file system"]
    assert kind in found.sentence
    assert found.level == ("bad" if network else "ok")


def test_a_mount_whose_name_has_a_blank_is_found(tmp_path: Path, local: Path) -> None:
    folder = tmp_path / "with blank"
    folder.mkdir()
    local.write_text(f"none / ext4 rw 0 0\nnone {str(folder).replace(' ', chr(92) + '040')} cifs rw 0 0\n")
    assert mounts.file_system(folder / "s.db") == "cifs"


def test_where_the_system_tells_nothing_nothing_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mounts, "MOUNTS", tmp_path / "missing")
    assert mounts.file_system(tmp_path) is None
    assert not mounts.is_network(None)


def test_a_clock_that_was_set_back_is_noticed(store: everstep.Store) -> None:
    with FakeClock(now=2_000_000_000) as time:
        grow(store, "r", 2)
        assert store.doctor()["clock"].level == "ok"
        time.step(-7200)
        found = store.doctor()["clock"]
    assert found.level == "warn"
    assert "7,200 seconds" in found.sentence


def test_a_run_that_is_open_is_unfinished_and_nothing_is_wrong_with_it(store: everstep.Store) -> None:
    with store.run("open") as run:
        run.state["a"] = 1
        run.checkpoint()
        found = store.doctor()
        assert found["unfinished runs"] == Finding("ok", "unfinished runs", "1 running")
        assert found["leases"].level == "ok"
    assert store.doctor()["unfinished runs"].sentence == "none"


def test_runs_of_a_process_that_died_are_found(store: everstep.Store, path: Path) -> None:
    program = f"""
import everstep, os, signal
store = everstep.open({str(path)!r})
for name in ("a", "b"):
    run = store.run(name).__enter__()
    run.state["x"] = 1
    run.checkpoint()
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", program], timeout=60)
    assert done.returncode == -signal.SIGKILL
    found = store.doctor()
    assert found["leases"].level == found["unfinished runs"].level == "warn"
    assert "2 runs (a, b) are held by workers that have died" in found["leases"].sentence
    assert "2 crashed; 2 runs (a, b) are marked running, but no process runs them" in found["unfinished runs"].sentence
    with store.run("a"), store.run("b"):
        pass
    assert store.doctor()["leases"].level == "ok"


@everstep.workflow
def patient() -> Any:
    return everstep.gate("sure")


def test_a_run_that_waits_is_unfinished_and_nothing_is_wrong_with_it(store: everstep.Store) -> None:
    store.start(patient, id="w")
    assert store.doctor()["unfinished runs"] == Finding("ok", "unfinished runs", "1 waiting")


def naive(store: everstep.Store, run: str) -> int:
    return sum(len(Framer().wrap(encode(store.load(run, at=n)))) for n in range(1, store.get(run).checkpoints + 1))


def test_the_size_is_compared_with_full_copies(store: everstep.Store) -> None:
    assert "no checkpoint yet" in store.doctor()["size"].sentence
    with many_bases():
        grow(store, "r", 80)
    sentence = store.doctor()["size"].sentence
    exact = naive(store, "r")
    told = (
        float(sentence.partition("about ")[2].split()[0].replace(",", ""))
        * {"KB": 1e3, "MB": 1e6}[sentence.partition("about ")[2].split()[1].strip(",")]
    )
    assert 0.7 * exact < told < 1.4 * exact
    assert "times as much" in sentence
    assert "estimated from 5 states of 1 runs, which hold 100% of the stored bytes" in sentence


def test_of_a_pruned_run_only_what_is_left_counts_as_copies(store: everstep.Store) -> None:
    with many_bases():
        grow(store, "r", 60)
        before = store.doctor()["size"].sentence
        store.prune(everstep.Retention(keep_last=1))
    after = store.doctor()["size"].sentence
    assert "1 states of 1 runs" in after
    assert before != after


def test_free_pages_are_counted(store: everstep.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    with store.run("r", state={"long": os.urandom(3_000_000)}) as run:
        run.checkpoint()
    assert store.backend.health()["free_pages"] == 0
    store.delete("r")
    health = store.backend.health()
    assert int(health["free_pages"]) * int(health["page_size"]) > 2_900_000  # type: ignore[call-overload]
    assert f"{shown_size(int(health['free_pages']) * 4096)} of " in store.doctor()["free pages"].sentence  # type: ignore[call-overload]


def test_when_it_was_verified_is_said(store: everstep.Store) -> None:
    assert store.doctor()["verify"].level == "ok"  # there is nothing in it
    with FakeClock(now=2_000_000_000) as time:
        grow(store, "r", 3)
        assert store.doctor()["verify"] == Finding("warn", "verify", "never verified", "store.verify('full')")
        store.verify("quick")
        time.advance(86_400)
        store.verify("full")
        assert store.doctor()["verify"] == Finding("ok", "verify", "last verified: full today, quick yesterday")
        time.advance(40 * 86_400)
        assert store.doctor()["verify"].level == "warn"
        assert "full 40 days ago, quick 41 days ago" in store.doctor()["verify"].sentence


def test_a_verify_that_found_something_is_bad_until_it_finds_nothing(store: everstep.Store) -> None:
    grow(store, "r", 3)
    store.verify()
    store.backend.set_property("verify.full", json.dumps({"at": clock.now_us(), "ok": False, "problems": 3}))
    found = store.doctor()["verify"]
    assert (found.level, "with 3 problems" in found.sentence) == ("bad", True)
    store.verify("full")
    assert store.doctor()["verify"].level == "ok"


@pytest.mark.parametrize("text", ["", "no json", "[1]", '{"at": "yesterday"}', "null"])
def test_a_property_that_cannot_be_read_counts_as_absent(store: everstep.Store, text: str) -> None:
    grow(store, "r", 2)
    store.backend.set_property("verify.full", text)
    store.backend.set_property("cleanup.last", text)
    found = store.doctor()
    assert found["verify"].sentence == "never verified"
    assert "clean-up has never run" in found["cleanup"].sentence


def test_when_it_was_cleaned_up_is_said(store: everstep.Store) -> None:
    grow(store, "r", 3)
    assert store.doctor()["cleanup"].level == "ok"
    store.set_retention(everstep.Retention(keep_last=2))
    assert store.doctor()["cleanup"].level == "warn"
    store.cleanup()
    found = store.doctor()["cleanup"]
    assert found.level == "ok"
    assert found.sentence.startswith("last cleaned up today")


def test_a_run_that_vanished_is_found(path: Path) -> None:
    with everstep.open(path) as store:
        grow(store, "r", 3)
    tamper(path, "DELETE FROM runs")
    with everstep.open(path) as store:
        assert store.doctor()["manifest"].level == "bad"


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE manifest SET total = x'00'",
        "UPDATE runs SET created_at = created_at + 1",
        "UPDATE runs SET tags = 'no json'",
        "UPDATE runs SET \"check\" = x'00'",
        "DELETE FROM manifest",
        "DELETE FROM records",
        "DELETE FROM chunks",
        "UPDATE pruned SET ranges = x'c1'",
    ],
)
def test_damage_is_a_finding_and_no_error(path: Path, statement: str) -> None:
    with everstep.open(path) as store, many_bases():
        grow(store, "r", 20, size=3000)
        store.prune(everstep.Retention(keep_last=3))
    assert tamper(path, statement) > 0
    with everstep.open(path) as store:
        found = store.doctor()
    assert {"engine", "file system", "verify", "cleanup"} <= {finding.name for finding in found}
    if "manifest" in statement or "tags" in statement or "pruned" in statement or "check" in statement:
        assert found.level == "bad", str(found)


def test_a_closed_store_is_not_looked_at(path: Path) -> None:
    store = everstep.open(path)
    store.close()
    with pytest.raises(StoreClosed):
        store.doctor()


async def _awaited(path: Path) -> Checkup:
    async with everstep.open(path) as store:
        found: Checkup = await store.doctor()
        return found


def test_it_can_be_awaited(path: Path) -> None:
    assert asyncio.run(_awaited(path))["engine"].level == "ok"


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 bytes"), (999, "999 bytes"), (1_500, "1.5 KB"), (123_456, "123 KB"), (5_000_000_000_000, "5,000 GB")]
)
def test_sizes_are_shown_for_people(size: int, text: str) -> None:
    assert shown_size(size) == text

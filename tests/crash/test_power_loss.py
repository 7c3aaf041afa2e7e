"""Power loss: the disk that loses it, the record of what was done to it, and every state that it leaves behind."""

from pathlib import Path
from random import Random

import apsw
import pace
import pytest

import everstep
from harness.faults.disk import power
from harness.faults.disk.power_disk import FATES, Disk, State
from harness.faults.disk.power_vfs import Op, Recorder


def write(at: int, data: bytes, file: int = 1) -> Op:
    return Op("write", "a", file, at, data)


def played(*ops: Op) -> Disk:
    disk = Disk()
    for op in (Op("link", "a", 1), Op("sync folder", ""), *ops):
        disk.play(op)
    return disk


def content(state: State, name: str = "a") -> bytes:
    return state.contents.get(state.names[name], b"")


def found(disk: Disk, fate: str, tries: int = 60) -> set[bytes]:
    """What the file can be after a crash."""
    random = Random(1)
    return {content(disk.after(fate, random)) for _ in range(tries)}


def test_what_was_synced_is_there_and_the_rest_may_be_lost_or_kept() -> None:
    disk = played(write(0, b"old"), Op("sync", "a", 1), write(0, b"new"), Op("truncate", "a", 1, 2))
    assert found(disk, "lost") == {b"old"}
    assert found(disk, "kept") == {b"ne"}
    assert found(disk, "in order") == {b"old", b"new", b"ne"}
    assert found(disk, "newest") >= {b"ol", b"ne"}


def test_a_write_is_torn_at_a_sector_or_a_page() -> None:
    disk = played(write(0, bytes(9000)), Op("sync", "a", 1), write(100, b"x" * 8400))
    assert {state.count(b"x") for state in found(disk, "torn 512")} == {0, *range(412, 8400, 512)}
    assert {state.count(b"x") for state in found(disk, "torn 4096")} == {0, 3996, 8092}
    assert len(found(disk, "subset 512")) > 30
    assert len(found(disk, "subset 4096")) == 8
    assert found(disk, "files") == {bytes(9000), bytes(100) + b"x" * 8400 + bytes(500)}


def test_a_part_that_came_through_beyond_one_that_did_not_leaves_zeros() -> None:
    disk = played(write(0, b"a" * 4096), write(4096, b"b" * 4096))
    assert bytes(4096) + b"b" * 4096 in found(disk, "subset 4096")


def test_a_name_is_there_when_its_folder_was_synced_and_before_that_in_order() -> None:
    disk = played(write(0, b"x"), Op("sync", "a", 1), Op("link", "b", 1), Op("unlink", "a", 1), Op("rename", "c", 1, data=b"b"))
    assert disk.after("lost", Random(1)).names == {"a": 1}
    assert disk.after("kept", Random(1)).names == {"c": 1}
    random = Random(1)
    assert {tuple(disk.after("files", random).names) for _ in range(60)} == {("a",), ("a", "b"), ("b",), ("c",)}
    disk.play(Op("sync folder", ""))
    assert disk.after("lost", Random(1)).names == {"c": 1}


def test_a_state_is_written_with_its_links_and_folders(tmp_path: Path) -> None:
    State({"f": 0, "f/x": 1, "y": 1, "g/z": 2, "empty": 3}, {1: b"one", 2: b"two"}).write(tmp_path)
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["empty", "f", "x", "y"]
    assert (tmp_path / "y").samefile(tmp_path / "f" / "x")
    assert (tmp_path / "y").read_bytes() == b"one"


@pytest.fixture(scope="module")
def ops(tmp_path_factory: pytest.TempPathFactory) -> list[Op]:
    return power.record(tmp_path_factory.mktemp("recorded") / "workload", seed=3)


def test_everything_that_is_done_to_the_files_is_recorded(ops: list[Op]) -> None:
    """Played without a loss of power, the operations make the store that the workload left."""
    disk = Disk()
    for op in ops:
        disk.play(op)
    state = disk.after("kept", Random(1))
    assert sorted(name for name in state.names if not name.endswith("-locks")) == [
        ".everstep", ".everstep/.gitignore", ".everstep/store.db", ".everstep/store.db-seen",
    ]  # fmt: skip
    assert content(state, ".everstep/store.db")[:16] == b"SQLite format 3\0"
    kinds = {(op.what, op.name.rpartition("-")[2]) for op in ops}
    assert {
        ("write", "wal"),
        ("sync", "wal"),
        ("write", "seen"),
        ("write", ".everstep/store.db"),
        ("sync", ".everstep/store.db"),
        ("sync folder", ".everstep"),
        ("sync folder", ""),
    } <= kinds
    assert any(len(op.data) > 4096 and not any(op.data) for op in ops), "the WAL was never grown"
    assert any(op.what == "link" and op.name == ".everstep/store.db" for op in ops)
    assert any(op.what == "unlink" and op.name == ".everstep/store.db-wal" for op in ops)


def test_a_commit_is_acknowledged_after_its_sync(ops: list[Op]) -> None:
    """Right behind an acknowledged checkpoint nothing of the WAL is at risk."""
    disk, acknowledged = Disk(), 0
    for op in ops:
        disk.play(op)
        if op.what == "note" and b'"at": "done", "what": "checkpoint"' in op.data:
            acknowledged += 1
            assert not [p for p in disk.pending if p.what == "write" and p.name == ".everstep/store.db-wal" and any(p.data)]
    assert acknowledged > 10


def test_the_recorder_changes_nothing_and_leaves_nothing_behind(tmp_path: Path) -> None:
    before = apsw.vfs_names()
    recorder = Recorder(tmp_path)
    with recorder.recording():
        path = tmp_path / "s.db"
        with everstep.open(path) as store, store.run("r") as run:
            run.state["n"] = 1
            run.checkpoint()
        assert len(recorder.ops) > 20
    assert apsw.vfs_names() == before
    known = len(recorder.ops)
    with everstep.open(path) as store:
        assert store.load("r") == {"n": 1}
        with store.run("r") as run:
            run.checkpoint()
    assert len(recorder.ops) == known


def test_what_is_in_the_folder_at_first_counts_as_synced(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a").write_bytes(b"there")
    disk = Disk()
    for op in Recorder(tmp_path).ops:
        disk.play(op)
    assert content(disk.after("lost", Random(1)), "sub/a") == b"there"


def test_states_are_all_different_and_of_every_fate(ops: list[Op]) -> None:
    seen, fates = set(), set()
    for crash in power.crashes(ops, 300, seed=1):
        seen.add((crash.state.digest(), crash.log))
        fates.add(crash.fate)
    assert len(seen) >= 250
    assert fates == set(FATES)


def test_the_folder_of_the_store_is_on_disk_before_the_first_save_is_acknowledged(ops: list[Op]) -> None:
    """Right behind every acknowledged operation the names of the folder and of the store survive the worst loss of power."""
    disk, looked = Disk(), 0
    for op in ops:
        disk.play(op)
        if op.what == "note" and b'"at": "done"' in op.data:
            looked += 1
            names = disk.after("lost", Random(1)).names
            assert ".everstep" in names, "the folder that Everstep created is lost"
            assert ".everstep/store.db" in names
    assert looked > 10


def test_a_store_whose_folder_is_not_synced_in_its_parent_is_caught(memory_folder: Path) -> None:
    assert power.forgotten_parent_is_caught(memory_folder, seed=3)


def test_no_loss_of_power_loses_what_was_acknowledged(memory_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, again, times = power.SHORT
    monkeypatch.setattr(power, "SHORT", (pace.share(first), pace.share(again), times))
    count = power.run(memory_folder, deep=False, seed=1 + pace.rotation() % 3)
    assert count.ok, str(count)
    assert count.tried >= pace.share(480)


def test_a_store_that_syncs_too_little_is_caught(memory_folder: Path) -> None:
    assert power.canary(memory_folder, seed=2)

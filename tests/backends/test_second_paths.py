"""One store file by two paths (hard links, bind mounts, a file moved while it is open): refused before anything is written, or one store."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pace
import pytest
import warm

import everstep
from everstep import system
from everstep.backends.sqlite.files import mounts, paths
from everstep.errors import SecondPath

PROGRAM = Path(__file__).with_name("second_paths.py")
CAN_UNSHARE = shutil.which("unshare") is not None and subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode == 0


def result_of(*more: str) -> dict[str, Any]:
    shared = Path("/dev/shm")
    folder = tempfile.mkdtemp(prefix="everstep-", dir=shared if shared.is_dir() else None)
    try:
        command = [sys.executable, str(PROGRAM), f"{folder}/s", *more]
        done = subprocess.run(
            ["unshare", "-m", *command] if CAN_UNSHARE else command, capture_output=True, text=True, timeout=240, check=False
        )
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found
    finally:
        shutil.rmtree(folder)


@pytest.fixture(scope="module")
def result() -> dict[str, Any]:
    return result_of(*([] if pace.ALL else [str(pace.rotation())]))


@pytest.fixture(autouse=True)
def no_marks_left() -> Iterator[None]:
    yield
    assert not paths._marks


def test_no_second_path_loses_an_acknowledged_save(result: dict[str, Any]) -> None:
    lost = [f"{one['kind']}, {one['order']}: {one['lost']}" for one in result["results"] if one["lost"]]
    assert not lost, "\n".join(lost)
    assert len(result["results"]) == pace.share(6, 2) * (8 if result["bind"] else 6)


def test_a_second_path_is_refused_or_is_the_same_store(result: dict[str, Any]) -> None:
    for one in result["results"]:
        refused = one["refused"]["A"] + one["refused"]["B"]
        if one["kind"] in ("link", "link to folder", "bind folder", "copy"):
            assert refused == [], one
        elif one["kind"] in ("hard link", "hard link elsewhere"):
            assert set(one["refused"]["B"]) == {"E417"}, one
        elif one["kind"] == "bind file":
            assert set(one["refused"]["B"]) == {"E417"}, one
            assert one["refused"]["A"] == [], one
        if refused and one["kind"] != "moved":
            assert not one["wal beside"], one


def test_bind_mounts_were_tried(result: dict[str, Any]) -> None:
    if not result["bind"]:
        pytest.skip("BIND MOUNTS WERE NOT TRIED: this machine does not allow them (needs root and unshare)")
    assert result["leases"] == "one lease"


def test_the_search_catches_a_store_that_does_not_look(result: dict[str, Any]) -> None:
    broken = {one["kind"] for one in result_of("broken")["results"] if one["lost"]}
    assert broken >= {"hard link", "hard link elsewhere", "moved"}
    assert "bind file" in broken or not result["bind"]


def test_the_message_names_the_links_and_removing_one_is_enough(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    everstep.open(path).close()
    (tmp_path / "t.db").hardlink_to(path)
    before = sorted(tmp_path.rglob("*"))
    for name in ("s.db", "t.db"):
        with pytest.raises(SecondPath, match="has 2 names") as caught:
            everstep.open(tmp_path / name)
    assert sorted(tmp_path.rglob("*")) == before
    find = caught.value.remedy.partition("This command lists them: ")[2].partition(" (or")[0]
    listed = subprocess.run(["sh", "-c", find], capture_output=True, text=True, check=True).stdout.split()
    assert sorted(listed) == [str(path), str(tmp_path / "t.db")]
    (tmp_path / "t.db").unlink()
    everstep.open(path).close()


def test_many_processes_that_create_one_store_at_once_are_not_refused(tmp_path: Path) -> None:
    """A file that is being created has two names for a moment."""
    program = "import sys, everstep; everstep.open(sys.argv[1]).close()"
    children = [warm.Popen([sys.executable, "-c", program, str(tmp_path / "s.db")]) for _ in range(4)]
    assert [child.wait(60) for child in children] == [0] * 4


def test_handles_of_one_process_share_a_mark_and_the_last_one_removes_it(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    one, two = everstep.open(path), everstep.open(path)
    one.close()
    path.rename(tmp_path / "t.db")
    with pytest.raises(SecondPath):
        everstep.open(tmp_path / "t.db")
    (tmp_path / "t.db").rename(path)
    with two.run("r") as run:
        run.checkpoint(state={"n": 1})
    two.close()
    assert not paths._marks
    path.rename(tmp_path / "t.db")
    with everstep.open(tmp_path / "t.db") as store:
        assert store.load("r") == {"n": 1}


def test_a_store_that_is_forgotten_removes_its_mark(tmp_path: Path) -> None:
    everstep.open(tmp_path / "s.db")
    import gc

    gc.collect()
    assert not paths._marks


def test_many_threads_open_and_close_one_store(tmp_path: Path) -> None:
    """Closing our descriptor must never take SQLite's locks from another thread: that thread's save would not be safe."""
    path, errors = tmp_path / "s.db", []
    everstep.open(path).close()

    def work(name: str) -> None:
        try:
            for n in range(5):
                with everstep.open(path) as store, store.run(name, state={"n": 0}) as run:
                    run.state["n"] = n
                    run.checkpoint()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(f"r{i}",)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    with everstep.open(path) as store:
        assert [store.load(f"r{i}")["n"] for i in range(4)] == [4] * 4
        assert store.verify("full").ok


def test_where_files_cannot_be_marked_links_are_still_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system, "has_marks", lambda: False)
    with everstep.open(tmp_path / "s.db") as store:
        (tmp_path / "t.db").hardlink_to(tmp_path / "s.db")
        with pytest.raises(SecondPath):
            everstep.open(tmp_path / "t.db")
        assert store.runs() is not None


def test_a_mount_of_a_single_file_is_known_from_the_list_of_mounts(tmp_path: Path) -> None:
    listed = tmp_path / "mounts"
    listed.write_text("overlay / overlay rw 0 0\ndisk /app/my\\040store.db ext4 rw 0 0\n")
    assert mounts.is_mount_point(Path("/app/my store.db"), listed)
    assert not mounts.is_mount_point(Path("/app/other.db"), listed)
    assert not mounts.is_mount_point(Path("/app/other.db"), tmp_path / "missing")

"""Files of an open store that are deleted, replaced or moved: the next save raises, instead of going to a file without a name."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
import warm

import everstep
from everstep.backends.sqlite.files import watch
from everstep.errors import StoreFailed, StoreGone

PROGRAM = """
import sys, time, everstep
with everstep.open(sys.argv[1]) as store, store.run("r") as run:
    for n in range(600):
        run.state["n"] = n
        run.checkpoint()
        print(n, flush=True)
        time.sleep(0.05)
"""


@pytest.fixture(autouse=True)
def no_pause(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compare the files in every transaction, except in tests of the pause between two comparisons."""
    if "may_miss" not in request.node.name:
        monkeypatch.setattr(watch, "EVERY_SECONDS", 0.0)


def path_of(tmp_path: Path) -> Path:
    (tmp_path / "folder").mkdir()
    return tmp_path / "folder" / "s.db"


def replace_by_copy(path: Path) -> None:
    shutil.copy(path, path.with_name("copy"))
    path.with_name("copy").replace(path)


def remove_and_create(path: Path) -> None:
    for file in path.parent.iterdir():
        shutil.rmtree(file) if file.is_dir() else file.unlink()
    with everstep.open(path) as store, store.run("other") as run:
        run.checkpoint()


def recreate_folder(path: Path) -> None:
    path.parent.rename(path.parent.with_name("elsewhere"))
    path.parent.mkdir()


def beside(path: Path, name: str) -> Path:
    return path.with_name(path.name + name)


REMOVALS: dict[str, Callable[[Path], object]] = {
    "file deleted": lambda path: path.unlink(),
    "folder deleted": lambda path: shutil.rmtree(path.parent),
    "file moved": lambda path: path.rename(path.with_name("moved")),
    "file moved to another folder": lambda path: path.rename(path.parent.with_name("moved")),
    "folder moved": lambda path: path.parent.rename(path.parent.with_name("elsewhere")),
    "folder moved, another one there": recreate_folder,
    "file replaced by a copy": replace_by_copy,
    "another store in its place": remove_and_create,
    "WAL deleted": lambda path: beside(path, "-wal").unlink(),
    "WAL replaced": lambda path: replace_by_copy(beside(path, "-wal")),
    "shared memory deleted": lambda path: beside(path, "-shm").unlink(),
}


@pytest.mark.parametrize("saves", [1, 20])
@pytest.mark.parametrize("removal", REMOVALS)
def test_the_next_save_raises_if_a_file_was_removed(tmp_path: Path, removal: str, saves: int) -> None:
    path = path_of(tmp_path)
    store = everstep.open(path)
    run = store.run("r").__enter__()
    for number in range(saves):
        run.state["n"] = number
        run.checkpoint()
    REMOVALS[removal](path)
    left = sorted(tmp_path.rglob("*"))
    for _ in range(2):
        run.state["n"] = -1
        with pytest.raises(StoreGone, match="while it was open") as raised:
            run.checkpoint()
        assert raised.value.code == "E420"
        assert raised.value.written == "no"
        assert raised.value.lasting
        assert str(path) in raised.value.message
    store.close()
    assert not [file for file in sorted(tmp_path.rglob("*")) if file not in left]


@pytest.mark.parametrize("removal", [name for name in REMOVALS if "deleted" in name or "moved" in name])
def test_the_message_names_the_file_and_what_happened_to_it(tmp_path: Path, removal: str) -> None:
    path = path_of(tmp_path)
    with everstep.open(path) as store:
        run = store.run("r").__enter__()
        run.checkpoint()
        REMOVALS[removal](path)
        with pytest.raises(StoreGone) as raised:
            run.checkpoint()
    part = "-wal" if "WAL" in removal else "-shm" if "shared" in removal else ""
    assert raised.value.message.startswith(f"{path}{part} was deleted or moved")
    assert "nothing of this save was written" in raised.value.message.lower()


def test_a_replaced_file_is_named_as_such(tmp_path: Path) -> None:
    path = path_of(tmp_path)
    with everstep.open(path) as store:
        run = store.run("r").__enter__()
        run.checkpoint()
        replace_by_copy(path)
        with pytest.raises(StoreGone, match="was replaced by another file"):
            run.checkpoint()


def test_the_first_save_raises_if_the_file_was_removed_before_it(tmp_path: Path) -> None:
    path = path_of(tmp_path)
    with everstep.open(path) as store:
        remove_and_create(path)
        with pytest.raises(StoreGone):
            store.run("r").__enter__()
    with everstep.open(path) as store:
        assert [info.id for info in store.runs()] == ["other"]


def test_a_save_right_after_another_one_may_miss_a_removal_and_the_one_after_it_does_not(tmp_path: Path) -> None:
    path = path_of(tmp_path)
    with everstep.open(path) as store:
        run = store.run("r").__enter__()
        run.checkpoint()
        path.unlink()
        with suppress(StoreGone):
            run.checkpoint()
        time.sleep(2 * watch.EVERY_SECONDS)
        with pytest.raises(StoreGone):
            run.checkpoint()


def test_a_file_that_returns_is_used_again_only_after_the_store_is_opened_again(tmp_path: Path) -> None:
    path = path_of(tmp_path)
    store = everstep.open(path)
    run = store.run("r").__enter__()
    run.state["n"] = 1
    run.checkpoint()
    path.rename(path.with_name("moved"))
    run.state["n"] = 2
    with pytest.raises(StoreGone):
        run.checkpoint()
    path.with_name("moved").rename(path)
    with pytest.raises(StoreGone):
        run.checkpoint()
    store.close()
    with everstep.open(path) as again:
        assert again.load("r") == {"n": 1}
        assert again.verify().ok


def test_closing_leaves_the_wal_of_another_store_in_the_same_place_alone(tmp_path: Path) -> None:
    """SQLite deletes the WAL by its name when the last connection is closed: the newest saves of the other store would be lost."""
    path = path_of(tmp_path)
    old = everstep.open(path)
    with old.run("old") as run:
        run.checkpoint()
    for file in path.parent.iterdir():
        shutil.rmtree(file) if file.is_dir() else file.unlink()
    new = everstep.open(path)
    with new.run("new") as run:
        run.state["n"] = 1
        run.checkpoint()
    wal = beside(path, "-wal").stat()
    old.close()
    assert beside(path, "-wal").stat().st_ino == wal.st_ino
    with new.run("new2") as run:
        run.checkpoint()
    new.close()
    with everstep.open(path) as again:
        assert {info.id for info in again.runs()} == {"new", "new2"}
        assert again.verify().ok


def test_a_new_reading_connection_does_not_read_another_store(tmp_path: Path) -> None:
    path = path_of(tmp_path)
    with everstep.open(path) as store:
        with store.run("r") as run:
            run.checkpoint()
        remove_and_create(path)
        stop = store.backend.bell
        with pytest.raises(StoreGone):
            stop(lambda: None)


def test_other_changes_in_the_folder_do_not_matter(tmp_path: Path) -> None:
    path = path_of(tmp_path)
    with everstep.open(path) as store, store.run("r") as run:
        for number in range(40):
            run.state["n"] = number
            run.checkpoint()
            other = path.with_name(f"other{number % 3}")
            other.unlink() if other.exists() else other.touch()
            if number % 10 == 0:
                os.utime(path.parent, (number, number))
                path.parent.chmod(0o700)
    with everstep.open(path) as store:
        assert store.load("r") == {"n": 39}


def test_a_folder_that_is_reached_by_a_link_may_get_another_link(tmp_path: Path) -> None:
    path = path_of(tmp_path)
    (tmp_path / "link").symlink_to(path.parent)
    with everstep.open(tmp_path / "link" / "s.db") as store, store.run("r") as run:
        run.checkpoint()
        (tmp_path / "link").unlink()
        run.checkpoint()
    with everstep.open(path) as store:
        assert store.get("r").checkpoints == 2


def test_compacting_pruning_and_other_processes_are_not_taken_for_a_removal(tmp_path: Path) -> None:
    path = path_of(tmp_path)
    with everstep.open(path) as store, store.run("r") as run:
        for number in range(5):
            run.checkpoint()
            store.backend.compact()
            store.gc()
            with everstep.open(path) as second, second.run(f"o{number}") as other:
                other.checkpoint()
            other_process = "import sys, everstep; s = everstep.open(sys.argv[1]); s.run(sys.argv[2]).__enter__().checkpoint(); s.close()"
            warm.run([sys.executable, "-c", other_process, str(path), f"p{number}"], check=True, timeout=60)
        run.checkpoint()
    with everstep.open(path) as store:
        assert len(store.runs()) == 11
        assert store.verify().ok


def test_a_step_that_ran_is_not_acknowledged_and_the_workflow_does_not_succeed(tmp_path: Path) -> None:
    path = path_of(tmp_path)

    @everstep.step
    def work(number: int) -> int:
        return number

    @everstep.workflow(name="removed-step")
    def flow() -> int:
        work(1)
        path.unlink()
        try:
            return work(2)
        except Exception:  # a workflow must not be able to catch it
            return 0

    with everstep.open(path) as store, pytest.raises(StoreGone):
        store.start(flow, id="w")


def test_async_saves_lines_messages_and_queues_raise_as_well(tmp_path: Path) -> None:
    path = path_of(tmp_path)

    async def main() -> None:
        async with everstep.open(path) as store, store.run("a") as run:
            await run.checkpoint()
            line = await store.line("l")
            await line.checkpoint()
            path.unlink()
            with pytest.raises(StoreGone):
                await run.checkpoint()
            with pytest.raises(StoreGone):
                await line.checkpoint()
            with pytest.raises(StoreGone):
                await store.enqueue("removed-step", id="q")
            with pytest.raises(StoreGone):
                await store.cancel("l")

    with pytest.raises((StoreGone, StoreFailed)):
        asyncio.run(main())


def test_a_program_whose_store_is_deleted_does_not_end_as_if_it_had_succeeded(tmp_path: Path) -> None:
    path = path_of(tmp_path)
    program = warm.Popen([sys.executable, "-c", PROGRAM, str(path)], stdout=warm.PIPE, stderr=warm.PIPE, text=True)
    assert program.stdout is not None
    for _ in range(10):
        program.stdout.readline()
    shutil.rmtree(path.parent)
    began = time.monotonic()
    _, errors = program.communicate(timeout=60)
    assert program.returncode == 1
    assert "[E420]" in errors
    assert time.monotonic() - began < 20
    assert not path.parent.exists()


def test_a_connection_may_open_while_another_thread_compares_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "s.db"
    path.touch()
    watched = watch.FileWatch(str(path))
    (tmp_path / "s.db-wal").touch()
    identity = watch._identity

    def learning(file: str) -> tuple[int, int] | None:
        monkeypatch.setattr(watch, "_identity", identity)
        watched.learn()  # as another thread does in the middle of a check
        return identity(file)

    monkeypatch.setattr(watch, "_identity", learning)
    watched.check_now()
    (tmp_path / "s.db-wal").unlink()
    with pytest.raises(StoreGone):
        watched.check_now()

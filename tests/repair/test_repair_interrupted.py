"""A repair that is killed or fails half-way leaves nothing that looks like a store; the next one removes what is left."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest
import warm

import everstep
from everstep.backends.sqlite.recovery import damaged, rebuild
from everstep.backends.sqlite.recovery.pages import Pages
from everstep.backends.sqlite.recovery.rebuild import SqliteBuilder
from everstep.errors import NotAStore, StoreError, StoreFull


@pytest.fixture
def source(tmp_path: Path) -> Path:
    with everstep.open(tmp_path / "s.db") as store:
        for name in ("a", "b", "c"):
            with store.run(name, state={"lines": [f"{name} {i} " + "x" * (i % 97) for i in range(9000)]}) as run:
                run.checkpoint()
    (tmp_path / "s.db-seen").unlink(missing_ok=True)
    shutil.rmtree(tmp_path / "s.db-locks", ignore_errors=True)
    return tmp_path / "s.db"


def at(owner: Any, name: str, nth: int, what: Callable[[], None]) -> Callable[[pytest.MonkeyPatch], None]:
    """Have something happen at the nth call of a function."""

    def arm(patch: pytest.MonkeyPatch) -> None:
        original, calls = getattr(owner, name), [0]

        def wrapped(*args: Any, **kwargs: Any) -> Any:
            calls[0] += 1
            if calls[0] == nth:
                what()
            return original(*args, **kwargs)

        patch.setattr(owner, name, wrapped)

    return arm


KILLED = """
import importlib, os, signal, sys
where, name, nth, after, source, target = sys.argv[1:]
owner, calls = eval(where), [0]
original = getattr(owner, name)
def wrapped(*args, **kwargs):
    calls[0] += 1
    if calls[0] == int(nth) and not int(after):
        os.kill(os.getpid(), signal.SIGKILL)
    result = original(*args, **kwargs)
    if calls[0] == int(nth):
        os.kill(os.getpid(), signal.SIGKILL)
    return result
setattr(owner, name, wrapped)
import everstep
everstep.repair(source, target)
"""


POINTS = [
    (Pages, "_merge", 1, False), (damaged, "Carver", 1, False), (SqliteBuilder, "chunk", 2, True), (SqliteBuilder, "run", 1, True), (SqliteBuilder, "run", 3, True),
    (SqliteBuilder, "finish", 1, False), (SqliteBuilder, "_publish", 1, False), (rebuild, "link", 1, False), (rebuild, "link", 1, True),
    (rebuild, "sync_folder", 1, False),
]  # fmt: skip


@pytest.mark.parametrize(("owner", "name", "nth", "after"), POINTS, ids=lambda value: getattr(value, "__name__", str(value)))
def test_a_repair_that_is_killed_leaves_no_store_or_a_whole_one(
    owner: Any, name: str, nth: int, after: bool, source: Path, tmp_path: Path
) -> None:
    if name == "Carver":  # it is needed only where something is damaged
        data = bytearray(source.read_bytes())
        data[:4096] = bytes(4096)
        source.write_bytes(data)
    target = tmp_path / "new.db"
    where = (
        f"importlib.import_module({owner.__module__!r}).{owner.__name__}"
        if isinstance(owner, type)
        else f"importlib.import_module({owner.__name__!r})"
    )
    done = warm.run([sys.executable, "-c", KILLED, where, name, str(nth), str(int(after)), str(source), str(target)], timeout=60)
    assert done.returncode == -signal.SIGKILL, "it was not killed: this proves nothing"
    others = {path.name for path in tmp_path.iterdir()} - {"s.db", "new.db"}
    assert all(name.startswith(".new.db.") for name in others), others
    published = name == "sync_folder" or (name == "link" and after)
    assert target.exists() == published
    if published:
        with everstep.open(target) as store:
            assert store.verify("full").ok
            assert store.get("c").checkpoints
        assert {path.name for path in tmp_path.iterdir()} <= {"s.db", "new.db", "new.db-seen"}
    else:
        with pytest.raises(NotAStore):
            everstep.open(target, create=False)
        assert everstep.repair(source, target).ok
        assert {path.name for path in tmp_path.iterdir()} == {"s.db", "new.db"}


@pytest.mark.parametrize("nth", range(1, 12, 2))
def test_a_repair_without_space_says_so_and_leaves_nothing(nth: int, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full() -> None:
        raise StoreFull("no space is left")

    before = source.read_bytes()
    with monkeypatch.context() as patch:
        at(SqliteBuilder, "_write", nth, full)(patch)
        with pytest.raises(StoreFull):
            everstep.repair(source, tmp_path / "new.db")
    assert {path.name for path in tmp_path.iterdir()} == {"s.db"}
    assert source.read_bytes() == before
    assert everstep.repair(source, tmp_path / "new.db").ok


@pytest.mark.parametrize(
    "error", [OSError(28, "No space left on device"), OSError(13, "Permission denied"), apsw.IOError("disk I/O error")]
)
@pytest.mark.parametrize("where", ["copy", "link"])
def test_an_error_of_the_system_is_one_of_ours_and_leaves_nothing(
    error: Exception, where: str, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise error

    with monkeypatch.context() as patch:
        if where == "copy":
            at(Pages, "_write", 1, fail)(patch)
        else:
            at(rebuild, "link", 1, fail)(patch)
        if isinstance(error, OSError):
            with pytest.raises(StoreError):
                everstep.repair(source, tmp_path / "new.db")
        else:
            with pytest.raises(apsw.IOError):  # it cannot come from there; but nothing is left behind, whatever comes
                everstep.repair(source, tmp_path / "new.db")
    assert {path.name for path in tmp_path.iterdir()} == {"s.db"}


def test_a_store_that_came_into_the_place_meanwhile_is_left_alone(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "new.db"
    at(rebuild, "link", 1, lambda: target.write_bytes(b"mine") and None)(monkeypatch)
    with pytest.raises(everstep.EverstepError, match="already exists"):
        everstep.repair(source, target)
    assert target.read_bytes() == b"mine"
    assert {path.name for path in tmp_path.iterdir()} == {"s.db", "new.db"}


def test_a_source_that_is_written_all_the_time_is_refused(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from everstep.backends.sqlite.recovery import copy as sqlite_copy
    from everstep.errors import StoreBusy

    original = sqlite_copy._copy_file

    def written(path: str, target: Path) -> int:
        found = original(path, target)
        with source.open("r+b") as file:
            file.write(b"S")
        os.utime(source, ns=(1, os.stat(source).st_mtime_ns + 1))
        return found

    monkeypatch.setattr(sqlite_copy, "_copy_file", written)
    with pytest.raises(StoreBusy):
        everstep.repair(source, tmp_path / "new.db")
    assert {path.name for path in tmp_path.iterdir()} == {"s.db"}


@pytest.mark.parametrize(("where", "copies"), [("Pages._merge", True), ("SqliteBuilder.run", False)])
def test_doctor_names_what_a_killed_repair_left_and_says_how_to_remove_it(where: str, copies: bool, source: Path, tmp_path: Path) -> None:
    """The copies of the damaged store have no name any more once they are open; before that, doctor names them."""
    owner, _, name = where.partition(".")
    module = {"Pages": "sqlite.recovery.pages", "SqliteBuilder": "sqlite.recovery.rebuild"}[owner]
    code = f"from everstep.backends.{module} import {owner}\n" + KILLED
    killed = warm.run([sys.executable, "-c", code, owner, name, "1", "0", str(source), str(tmp_path / "t.db")], check=False)
    assert killed.returncode == -signal.SIGKILL
    left = sorted(path.name for path in tmp_path.iterdir() if path.name.startswith(".t.db."))
    assert any(name.endswith("-image") for name in left) == copies
    (tmp_path / ".t.db.backup.new").write_text("the user's own")
    (tmp_path / ".everstep.toml.0123456789ab.new").write_text("being written by another process")
    with everstep.open(source) as store:
        [finding] = [finding for finding in store.doctor().findings if finding.name == "leftovers"]
        assert finding.level == "warn"
        assert f"{len(left)} file" in finding.sentence
        subprocess.run(["sh", "-c", str(finding.remedy).partition("needs them: ")[2]], check=True)
        assert not [finding for finding in store.doctor().findings if finding.name == "leftovers"]
    assert everstep.repair(source, tmp_path / "t.db").ok
    assert (tmp_path / ".t.db.backup.new").read_text() == "the user's own"
    assert (tmp_path / ".everstep.toml.0123456789ab.new").exists()


@pytest.mark.parametrize("owner", ["", "1.", f"{os.getppid()}."], ids=["unknown", "first-process", "living"])
def test_doctor_names_an_image_of_a_killed_repair_whose_process_number_another_process_has(
    owner: str, source: Path, tmp_path: Path
) -> None:
    """In a container, the next process often has the same number. A file that changed within the last day may be in use."""
    left = tmp_path / f".t.db.{owner}0123456789ab.new-image"
    left.write_bytes(b"everything that is in a store")
    with everstep.open(source) as store:
        assert not [finding for finding in store.doctor().findings if finding.name == "leftovers"]
        os.utime(left, (time.time() - 90_000,) * 2)
        [finding] = [finding for finding in store.doctor().findings if finding.name == "leftovers"]
    assert left.name in str(finding.remedy)

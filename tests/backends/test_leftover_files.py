"""Files of a store lie beside a path where another file is, or none. Nothing is lost once the right file is put back."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import apsw
import pytest
import warm

import everstep
from everstep.backends.sqlite.files import store_file
from everstep.backends.sqlite.files.leftovers import PARTS
from everstep.backends.sqlite.files.store_file import SqliteFile
from everstep.backends.sqlite.recovery.wal_frames import FRAME, HEADER
from everstep.errors import EverstepError, ForeignWal, InvalidArgument, LeftoverFiles, RolledBack

SAVES = 6
WRITER = """
import os, sys, everstep
from everstep.backends.sqlite.files import wal as sqlite_wal
sqlite_wal.GROW_AFTER = 10**9
store = everstep.open(sys.argv[1])
with store.run("r", state={"n": -1}) as run:
    for n in range(int(sys.argv[2]), int(sys.argv[3])):
        run.state["n"] = n
        run.checkpoint()
    os._exit(0)
"""


def write(path: Path, first: int, last: int) -> None:
    """Acknowledged saves of a process that is killed: they are in the WAL."""
    warm.run([sys.executable, "-c", WRITER, str(path), str(first), str(last)], check=True, timeout=60)


@pytest.fixture(scope="module")
def memory() -> Iterator[Path]:
    """A folder where syncs cost nothing: no power is lost here."""
    shared = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(prefix="everstep-", dir=shared if shared.is_dir() else None))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def made(memory: Path) -> Path:
    """A folder with a store whose newest saves are in its WAL, all its leftovers, and other files that could stand in its place."""
    folder = memory / "made"
    folder.mkdir()
    path = folder / "s.db"
    write(path, 0, 2)
    everstep.open(path).close()
    shutil.copy(path, folder / "older")  # a backup from before a merge
    write(path, 2, 4)
    everstep.open(path).close()
    shutil.copy(path, folder / "base")  # the file that the WAL of the last saves belongs to
    write(path, 4, SAVES)
    assert (folder / "s.db-wal").stat().st_size > 0
    with everstep.open(folder / "x.db") as store, store.run("x") as run:
        run.checkpoint(state={"other": True})
    shutil.copy(folder / "x.db", folder / "other")
    (folder / "empty").write_bytes(b"")
    (folder / "text").write_text("my notes " * 1000)
    connection = apsw.Connection(str(folder / "database"))
    connection.execute("CREATE TABLE mine (a); INSERT INTO mine VALUES (1)")
    connection.close()
    (folder / "s.db-journal").write_bytes(hot_journal(folder))
    (folder / "s.db-locks" / "w-dead").touch()
    return folder


def hot_journal(folder: Path) -> bytes:
    """A journal that SQLite would roll back into any file that it lies beside."""
    path, journal = folder / "j.db", folder / "j.db-journal"
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA page_size = 4096; CREATE TABLE t (a); INSERT INTO t VALUES (zeroblob(9000))")
    connection.execute("PRAGMA cache_size = 1; PRAGMA cache_spill = 1; BEGIN; UPDATE t SET a = randomblob(9000)")
    connection.cache_flush()
    content = journal.read_bytes()
    connection.execute("ROLLBACK")
    connection.close()
    assert content[:8] == bytes.fromhex("d9d505f920a163d7")
    return content


MAINS = (None, "older", "other", "empty", "text", "database")


def subsets() -> Iterator[tuple[str, ...]]:
    for size in range(len(PARTS) + 1):
        yield from itertools.combinations(PARTS, size)


def lay_out(made: Path, folder: Path, main: str | None, parts: tuple[str, ...]) -> Path:
    folder.mkdir()
    path = folder / "s.db"
    if main is not None:
        shutil.copyfile(made / main, path)
    for part in parts:
        copy = shutil.copytree if part == "-locks" else shutil.copyfile
        copy(f"{made / 's.db'}{part}", f"{path}{part}")
    return path


def use(path: Path) -> EverstepError | None:
    """Open, save and close, as a program would that does not know what happened."""
    try:
        with everstep.open(path) as store, store.run("new") as run:
            run.checkpoint(state={"new": True})
    except EverstepError as error:
        return error
    return None


def put_back(made: Path, path: Path, parts: tuple[str, ...], opened: bool) -> None:
    """What an operator does on seeing the mistake: the right file again. What was created meanwhile in an empty place is moved away."""
    if opened:
        for part in PARTS:
            if part not in parts and Path(f"{path}{part}").exists():
                place = Path(f"{path}{part}")
                shutil.rmtree(place) if place.is_dir() else place.unlink()
    path.unlink(missing_ok=True)
    shutil.copyfile(made / "base", path)


def lost(path: Path, expected: int) -> str | None:
    """What is wrong with the store, or None: every acknowledged save is there, or an error says that some are not."""
    with everstep.open(path) as store:
        found = store.load("r")["n"]
        if found != expected:
            return f"{found} instead of {expected}"
        return None if store.verify("full").ok else "damaged"


def tried_once(made: Path, folder: Path, main: str | None, parts: tuple[str, ...]) -> list[str]:
    """Use what lies in the folder, put the right file back and look. Gives what is wrong."""
    path = lay_out(made, folder, main, parts)
    wal = Path(f"{path}-wal").read_bytes() if "-wal" in parts else None
    error = use(path)
    problems = []
    if main is None and parts and not isinstance(error, LeftoverFiles):
        problems.append("a store was created beside leftovers")
    if wal is not None and error is None:
        problems.append("opened with the WAL of another file")
    if wal is not None and (not Path(f"{path}-wal").exists() or Path(f"{path}-wal").read_bytes() != wal):
        problems.append("the WAL was changed")
    Path(f"{path}-journal").unlink(missing_ok=True)  # it belongs to no store
    put_back(made, path, parts, error is None)
    try:
        problem = lost(path, SAVES - 1 if wal is not None else 3)
    except RolledBack as refused:  # the operator took the WAL away, and the rollback guard shows it
        problem = None if wal is None and "-seen" in parts else refused.message
    except EverstepError as refused:
        problem = refused.message
    problems += [f"with the right file back: {problem}"] if problem else []
    where = f"{main} with {' '.join(parts) or 'nothing'}: {type(error).__name__ if error else 'opened'}"
    return [f"{where}: {problem}" for problem in problems]


def sweep(made: Path, folder: Path, cases: Iterable[tuple[str | None, tuple[str, ...]]]) -> tuple[int, list[str]]:
    tried, problems = 0, []
    for main, parts in cases:
        tried += 1
        problems += tried_once(made, folder / "case", main, parts)
        shutil.rmtree(folder / "case")
    return tried, problems


@pytest.fixture
def folder(memory: Path) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(dir=memory))
    yield folder
    shutil.rmtree(folder)


def test_whatever_lies_where_no_acknowledged_save_is_lost(made: Path, folder: Path) -> None:
    tried, problems = sweep(made, folder, itertools.product(MAINS, subsets()))
    assert not problems, f"{len(problems)} of {tried}:\n" + "\n".join(problems)
    assert tried == 6 * 32


SOME = [(main, parts) for main in (None, "older", "other") for parts in (("-wal",), ("-wal", "-seen"), ("-seen", "-locks"))]


@pytest.mark.parametrize(
    ("owner", "name", "broken", "caught"),
    [
        (store_file, "refuse_leftovers", lambda path: None, "created beside leftovers"),
        (SqliteFile, "_refuse_foreign_wal", lambda self: None, "right file back"),
        (SqliteFile, "_unmerged", staticmethod(lambda connection: connection), "the WAL was changed"),
    ],
)
def test_the_sweep_catches_a_store_that_takes_less_care(
    owner: object, name: str, broken: object, caught: str, made: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, name, broken)
    problems = sweep(made, folder, SOME)[1]
    assert any(caught in problem for problem in problems), problems


@pytest.mark.parametrize("create", [True, False])
def test_the_command_in_the_message_works(create: bool, made: Path, folder: Path) -> None:
    path = lay_out(made, folder / "it's here", None, PARTS)
    with pytest.raises(LeftoverFiles) as caught:
        everstep.open(path, create=create)
    assert "Nothing was created or changed" in caught.value.message
    assert sorted(p.name for p in path.parent.iterdir()) == sorted(f"s.db{part}" for part in PARTS)
    subprocess.run(["sh", "-c", caught.value.remedy.partition("move them away: ")[2]], check=True)
    assert [p.name for p in path.parent.iterdir()] == ["s.db.old-1"]
    assert sorted(p.name for p in (path.parent / "s.db.old-1").iterdir()) == sorted(f"s.db{part}" for part in PARTS)
    assert use(path) is None


def test_the_empty_folder_for_locks_of_a_closed_store_is_no_leftover(folder: Path) -> None:
    (folder / "s.db-locks").mkdir()
    assert use(folder / "s.db") is None
    assert list((folder / "s.db-locks").iterdir()) == []


def test_a_file_that_is_newer_than_the_wal_is_refused(made: Path, folder: Path) -> None:
    path = lay_out(made, folder / "s", "base", ("-wal",))
    everstep.open(path).close()
    with everstep.open(path) as store, store.run("r") as run:
        run.checkpoint(state={"n": 99})
    shutil.rmtree(f"{path}-locks")
    Path(f"{path}-seen").unlink()
    shutil.copyfile(made / "s.db-wal", f"{path}-wal")
    with pytest.raises(ForeignWal, match="the file is newer"):
        everstep.open(path)
    Path(f"{path}-wal").unlink()
    assert lost(path, 99) is None


def test_accepting_an_older_file_does_not_accept_a_wal_of_another(made: Path, folder: Path) -> None:
    path = lay_out(made, folder / "s", "older", ("-wal", "-seen"))
    with pytest.raises(ForeignWal, match="the file is older") as caught:
        everstep.open(path, accept_older=True)
    subprocess.run(["sh", "-c", caught.value.remedy.partition("move the WAL away: ")[2]], check=True)
    with pytest.raises(RolledBack):
        everstep.open(path)
    with everstep.open(path, accept_older=True) as store:
        assert store.load("r") == {"n": 1}
    assert Path(f"{path}-wal.old").read_bytes() == (made / "s.db-wal").read_bytes()


def test_a_store_that_was_copied_with_its_wal_opens_with_or_without_its_rollback_guard(made: Path, folder: Path) -> None:
    for number, parts in enumerate((("-wal",), ("-wal", "-seen"), ("-wal", "-shm", "-seen", "-locks"))):
        assert lost(lay_out(made, folder / str(number), "base", parts), SAVES - 1) is None


def test_repair_does_not_write_beside_leftovers(made: Path, folder: Path) -> None:
    target = lay_out(made, folder / "t", None, ("-seen",))
    with pytest.raises(InvalidArgument, match="-seen already exists"):
        everstep.repair(made / "base", target)
    assert Path(f"{target}-seen").exists()


def test_a_store_that_is_written_and_merged_all_the_time_is_never_refused(folder: Path) -> None:
    """The look at a WAL without a rollback guard must bear with a process that merges it."""
    path = folder / "s.db"
    everstep.open(path).close()
    writer = (
        "import sys, everstep\nfrom everstep.backends.sqlite.files import wal as sqlite_wal\nsqlite_wal.MERGE_FRAMES = 12\n"
        "with everstep.open(sys.argv[1]) as store, store.run('r', state={'n': 0}) as run:\n"
        "    while True:\n        run.state['n'] += 1\n        run.checkpoint()\n"
    )
    with subprocess.Popen([sys.executable, "-c", writer, str(path)]) as child:
        end = time.monotonic() + (20 if os.environ.get("EVERSTEP_DEEP") else 2)
        opened = 0
        try:
            while time.monotonic() < end:
                Path(f"{path}-seen").unlink(missing_ok=True)
                everstep.open(path).close()
                opened += 1
        finally:
            child.kill()
    assert opened > 10


@pytest.mark.parametrize("how", ["zeros", "half", "cut"])
def test_a_wal_with_a_torn_end_is_not_taken_for_that_of_another_store(how: str, made: Path, folder: Path) -> None:
    """After a power cut the last frames may be there in part, with the right salt. SQLite reads up to them, and so does the look at the WAL."""
    wal = (made / "s.db-wal").read_bytes()
    frames = (len(wal) - HEADER) // (FRAME + 4096)
    opened = 0
    for frame in range(frames):
        path = lay_out(made, folder / f"s{frame}", "base", ("-wal",))
        at = HEADER + frame * (FRAME + 4096) + FRAME
        torn = {
            "zeros": wal[:at] + bytes(4096) + wal[at + 4096 :],
            "half": wal[: at + 2048] + bytes(2048) + wal[at + 4096 :],
            "cut": wal[: at + 100],
        }
        Path(f"{path}-wal").write_bytes(torn[how])
        with everstep.open(path) as store:
            assert 3 <= store.load("r")["n"] < SAVES
            opened += 1
    assert opened == frames > 5

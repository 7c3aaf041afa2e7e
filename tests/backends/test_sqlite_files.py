"""The files of a SQLite store: what is taken for one, who may touch it, and how it comes to be."""

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import apsw
import pytest
from children import Child, finish

from everstep.backends.contract.core import Commit, Query
from everstep.backends.sqlite.backend import SqliteBackend
from everstep.backends.sqlite.files.format import FORMAT
from everstep.errors import NewerFormat, NotAStore, StoreError
from everstep.testing.rows import new_run, new_worker, next_commit

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become other users")
NOBODY = 65534


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that other users can reach, which pytest's own is not."""
    folder = Path(tempfile.mkdtemp(prefix="everstep-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def test_all_files_are_for_the_owner_only(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        backend = SqliteBackend(tmp_path / "s.db")
        row = new_run()
        backend.commit(Commit(row, None))
        backend.acquire(row.id, new_worker())
    finally:
        os.umask(old)
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    assert modes == {"s.db": 0o600, "s.db-wal": 0o600, "s.db-shm": 0o600, "s.db-seen": 0o600, "s.db-locks": 0o700}
    backend.close()
    assert {path.name for path in tmp_path.iterdir()} == {"s.db", "s.db-seen", "s.db-locks"}
    assert list((tmp_path / "s.db-locks").iterdir()) == []


def test_a_store_says_what_it_is(tmp_path: Path) -> None:
    SqliteBackend(tmp_path / "s.db").close()
    with sqlite3.connect(tmp_path / "s.db") as database:
        assert database.execute("PRAGMA application_id").fetchone() == (0x45565354,)
        assert database.execute("PRAGMA user_version").fetchone() == (FORMAT,)
        assert database.execute("PRAGMA journal_mode").fetchone() == ("wal",)


@pytest.mark.parametrize("content", [b"", b"hello", b"SQLite format 3\0" + bytes(84), bytes(4096), os.urandom(9000)])
def test_a_file_that_is_something_else_is_refused_and_left_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x"
    path.write_bytes(content)
    with pytest.raises(NotAStore, match="x is not an Everstep store"):
        SqliteBackend(path)
    assert path.read_bytes() == content
    assert [p.name for p in tmp_path.iterdir()] == ["x"]


@pytest.mark.parametrize("mode", ["delete", "wal"])
def test_a_database_of_another_program_is_refused_and_left_alone(tmp_path: Path, mode: str) -> None:
    path = tmp_path / "x.db"
    with sqlite3.connect(path) as database:
        database.execute(f"PRAGMA journal_mode = {mode}")
        database.execute("CREATE TABLE runs (x)")
    database.close()
    before = path.read_bytes()
    with pytest.raises(NotAStore, match="another program"):
        SqliteBackend(path)
    assert path.read_bytes() == before


def test_a_folder_is_not_a_store(tmp_path: Path) -> None:
    with pytest.raises(NotAStore):
        SqliteBackend(tmp_path)


def test_a_newer_format_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    SqliteBackend(path).close()
    with sqlite3.connect(path) as database:
        database.execute(f"PRAGMA user_version = {FORMAT + 1}")
    database.close()
    before = path.read_bytes()
    with pytest.raises(NewerFormat, match=f"format {FORMAT + 1}"):
        SqliteBackend(path)
    assert path.read_bytes() == before


def test_a_store_that_another_process_brings_to_a_newer_format_is_written_no_more(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    backend = SqliteBackend(path)
    row = new_run()
    backend.commit(Commit(row, None))
    with sqlite3.connect(path) as database:
        database.execute(f"PRAGMA user_version = {FORMAT + 1}")
    database.close()
    with pytest.raises(NewerFormat, match=f"format {FORMAT + 1}") as caught:
        backend.commit(next_commit(row))
    assert caught.value.written == "no"
    assert backend.run(row.id) == row
    backend.close()


def test_a_trigger_smuggled_into_a_store_does_not_run(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    backend = SqliteBackend(path)  # one that it finds at opening is refused
    with closing(apsw.Connection(str(path))) as database:  # not sqlite3: two libraries in one process drop each other's locks
        database.execute("CREATE TRIGGER evil AFTER INSERT ON runs BEGIN DELETE FROM manifest; END")
    backend.commit(Commit(new_run(), None))
    assert backend.manifest().runs == 1
    backend.close()


def test_many_processes_that_open_a_new_store_at_once_all_get_the_same_one(tmp_path: Path, child: Child) -> None:
    code = """
say("ready"); sys.stdin.readline()
backend = open_backend(sys.argv[1])
backend.commit(Commit(new_run(sys.argv[2]), None))
say(len(backend.runs(Query())) >= 1)
backend.close()
"""
    processes = [child(code, tmp_path / "s.db", f"run-{i}") for i in range(8)]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    assert [finish(process) for process in processes] == ["True\n"] * 8
    backend = SqliteBackend(tmp_path / "s.db")
    assert len(backend.runs(Query())) == 8
    assert backend.manifest().runs == 8
    assert backend.check() == []
    backend.close()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["s.db", "s.db-seen"]


AS_NOBODY = """
import everstep.backends.sqlite.backend
from everstep.errors import EverstepError
os.setgroups([]); os.setgid(65534); os.setuid(65534)
try:
    backend = open_backend(sys.argv[1])
    say("runs", len(backend.runs(Query())))
    backend.commit(Commit(new_run(), None))
    say("written")
except EverstepError as error:
    say(type(error).__name__, error.written)
"""


@root_only
@pytest.mark.parametrize("left_open", [False, True])
def test_a_store_that_cannot_be_written_can_be_read(shared: Path, child: Child, left_open: bool) -> None:
    path = shared / "s.db"
    backend = SqliteBackend(path)
    row = new_run()
    backend.commit(Commit(row, None))
    if not left_open:
        backend.close()
    for name in shared.iterdir():
        name.chmod(0o644)
    assert finish(child(AS_NOBODY, path)) == "runs 1\nReadOnly no\n"
    backend.close()


@root_only
def test_a_folder_that_cannot_be_written_gets_no_store(shared: Path, child: Child) -> None:
    assert finish(child(AS_NOBODY, shared / "s.db")) == "ReadOnly no\n"
    assert list(shared.iterdir()) == []


@root_only
def test_a_folder_of_somebody_else_that_everybody_may_write_is_refused(shared: Path, child: Child) -> None:
    path = shared / "s.db"
    SqliteBackend(path).close()
    os.chown(path, 12345, 12345)
    os.chown(shared, 12345, 12345)
    path.chmod(0o666)
    shared.chmod(0o777)
    assert finish(child(AS_NOBODY, path)) == "StoreError no\n"
    backend = SqliteBackend(path)
    assert backend.runs(Query()) == []
    with pytest.raises(StoreError, match="belongs to another user"):
        backend.commit(Commit(new_run(), None))
    backend.close()


@root_only
def test_a_sticky_folder_of_root_such_as_tmp_is_fine_for_ones_own_store(shared: Path, child: Child) -> None:
    shared.chmod(0o1777)
    assert finish(child(AS_NOBODY, shared / "s.db")) == "runs 0\nwritten\n"


def test_a_symbolic_link_leads_to_one_and_the_same_store(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    one, two = SqliteBackend(tmp_path / "real" / "s.db"), SqliteBackend(tmp_path / "link" / "s.db")
    row = new_run()
    one.commit(Commit(row, None))
    commit = next_commit(row)
    two.commit(commit)
    assert one.run(row.id) == commit.run
    assert one.url == two.url
    one.close()
    two.close()

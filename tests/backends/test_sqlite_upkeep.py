"""What is special about keeping a store in SQLite small and noticing an older one in its place."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import apsw
import pytest

from everstep.backends.contract.core import Commit
from everstep.backends.sqlite.backend import SqliteBackend
from everstep.backends.sqlite.files import parts
from everstep.errors import Damaged, ForeignWal, LeftoverFiles, NotAStore, NotFound, RolledBack
from everstep.records import RunRow
from everstep.testing.rows import new_run, next_commit


def filled(path: Path, chunks: int = 200) -> tuple[SqliteBackend, RunRow]:
    backend = SqliteBackend(path)
    row = new_run("r")
    backend.commit(Commit(row, None))
    commit = next_commit(row, chunks=[(n.to_bytes(32), os.urandom(5000)) for n in range(chunks)])
    backend.commit(commit)
    return backend, commit.run


def test_the_file_gets_shorter(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    backend, row = filled(path)
    backend.compact()
    before = path.stat().st_size
    assert backend.sweep(row.family, [n.to_bytes(32) for n in range(1, 200)], backend.manifest().writes) == 199 * 5000
    given = 0
    slices = 0
    while part := backend.shrink(100_000):
        given += part
        slices += 1
        assert part <= 100_000
    assert slices > 5
    assert given >= 199 * 5000
    assert path.stat().st_size <= before - given
    assert backend.check() == []
    assert backend.chunk_sizes(row.family) == {bytes(32): 5000}
    backend.close()


def test_a_store_without_pointer_maps_gives_space_back_once_it_was_compacted(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    SqliteBackend(path).close()
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA journal_mode = DELETE; PRAGMA auto_vacuum = NONE; VACUUM; PRAGMA journal_mode = WAL").fetchall()
    connection.close()
    backend = SqliteBackend(path)
    row = new_run("r")
    backend.commit(Commit(row, None))
    commit = next_commit(row, chunks=[(n.to_bytes(32), os.urandom(5000)) for n in range(200)])
    backend.commit(commit)
    backend.sweep(row.family, [n.to_bytes(32) for n in range(150)], backend.manifest().writes)
    assert backend.shrink(1 << 30) == 0
    assert backend.compact() >= 150 * 5000
    backend.sweep(row.family, [n.to_bytes(32) for n in range(200)], backend.manifest().writes)
    assert backend.shrink(1 << 30) >= 40 * 5000
    assert backend.check() == []
    backend.close()


def test_compacting_waits_for_nobody_and_others_go_on(tmp_path: Path) -> None:
    backend, row = filled(tmp_path / "s.db")
    other = SqliteBackend(tmp_path / "s.db")
    assert other.compact() >= 0
    backend.commit(next_commit(row))
    assert len(other.records("r", 0, 99)) == 2
    other.close()
    backend.close()


def test_an_old_file_in_the_place_of_the_store_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    backend, row = filled(path, 3)
    backend.close()
    shutil.copy(path, tmp_path / "old")
    backend = SqliteBackend(path)
    backend.commit(next_commit(row))
    backend.close()
    shutil.copy(tmp_path / "old", path)
    with pytest.raises(RolledBack, match="1 writes") as caught:
        SqliteBackend(path)
    assert caught.value.code == "E409"
    assert "accept_older=True" in str(caught.value)
    backend = SqliteBackend(path, accept_older=True)
    assert backend.run("r") == row
    backend.close()
    SqliteBackend(path).close()  # what is gone was accepted


def test_a_removed_wal_is_noticed(tmp_path: Path) -> None:
    code = (
        "import os, sys\n"
        "from everstep.backends.contract.core import Commit\n"
        "from everstep.backends.sqlite.backend import SqliteBackend\n"
        "from everstep.testing.rows import new_run, next_commit\n"
        "backend = SqliteBackend(sys.argv[1])\n"
        "backend.commit(Commit(new_run('r'), None))\n"
        "os._exit(0)\n"
    )
    path = tmp_path / "s.db"
    subprocess.run([sys.executable, "-c", code, str(path)], check=True, timeout=60)
    wal = Path(f"{path}-wal")
    kept = wal.read_bytes()
    assert kept
    wal.unlink()
    with pytest.raises(RolledBack):
        SqliteBackend(path)
    wal.write_bytes(kept)
    backend = SqliteBackend(path)
    assert backend.run("r") is not None
    backend.close()


def test_a_new_store_in_the_place_of_a_removed_one_is_fine_once_its_rollback_guard_is_removed_too(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    filled(path, 3)[0].close()
    path.unlink()
    with pytest.raises(LeftoverFiles, match="-seen"):
        SqliteBackend(path)
    Path(f"{path}-seen").unlink()
    backend = SqliteBackend(path)
    assert backend.run("r") is None
    backend.close()


def test_another_store_in_its_place_is_fine(tmp_path: Path) -> None:
    filled(tmp_path / "a.db", 3)[0].close()
    SqliteBackend(tmp_path / "b.db").close()
    shutil.copy(tmp_path / "b.db", tmp_path / "a.db")
    backend = SqliteBackend(tmp_path / "a.db")
    assert backend.run("r") is None
    backend.close()


@pytest.mark.parametrize("content", [b"", b"EVSN", b"\x07" * 32, bytes(32), b"EVSN" + bytes(28)])
def test_a_torn_or_missing_rollback_guard_costs_only_the_check(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "s.db"
    backend, row = filled(path, 3)
    backend.close()
    Path(f"{path}-seen").write_bytes(content)
    backend = SqliteBackend(path)
    backend.commit(next_commit(row))
    backend.close()
    Path(f"{path}-seen").unlink()
    SqliteBackend(path).close()


@pytest.mark.parametrize("name", ["seen", "wal", "shm", "journal", "locks"])
def test_a_link_in_the_place_of_what_lies_beside_a_store_is_not_followed(tmp_path: Path, name: str) -> None:
    (tmp_path / "mine").write_text("precious")
    filled(tmp_path / "x.db", 3)[0].close()
    shutil.move(tmp_path / "x.db", tmp_path / "s.db")
    beside = tmp_path / f"s.db-{name}"
    beside.symlink_to(tmp_path / "mine")
    with pytest.raises(NotAStore, match=f"s.db-{name}"):
        SqliteBackend(tmp_path / "s.db")
    assert (tmp_path / "mine").read_text() == "precious"
    beside.unlink()
    os.mkfifo(beside)
    with pytest.raises(NotAStore, match=f"s.db-{name}"):
        SqliteBackend(tmp_path / "s.db")
    beside.unlink()
    SqliteBackend(tmp_path / "s.db").close()


def test_a_new_store_has_the_schema_that_is_expected_of_it(tmp_path: Path) -> None:
    SqliteBackend(tmp_path / "s.db").close()
    connection = apsw.Connection(str(tmp_path / "s.db"))
    assert parts.are_right(connection)
    connection.close()


@pytest.mark.parametrize(
    "sql",
    [
        "CREATE INDEX more ON records (CASE WHEN id > 1 THEN length(hex(zeroblob(400000000))) END)",
        "CREATE TRIGGER more AFTER INSERT ON runs BEGIN DELETE FROM runs; END",
        "CREATE VIEW more AS SELECT 1",
        "ALTER TABLE records ADD COLUMN more INTEGER",
        "DROP INDEX runs_status",
    ],
)
def test_a_store_with_another_schema_is_refused(tmp_path: Path, sql: str) -> None:
    path = tmp_path / "s.db"
    SqliteBackend(path).close()
    connection = apsw.Connection(str(path))
    connection.execute(sql)
    connection.close()
    with pytest.raises(Damaged, match="tables and indexes"):
        SqliteBackend(path)


def test_a_deleted_run_cannot_be_forked(tmp_path: Path) -> None:
    backend, row = filled(tmp_path / "s.db", 3)
    backend.delete(row)
    with pytest.raises(NotFound):
        backend.commit(Commit(new_run("f", family=row.family, parent="r", parent_number=1), None))
    backend.close()


def test_what_a_killed_creation_left_is_removed(tmp_path: Path) -> None:
    dead = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True, check=True
    ).stdout.strip()
    for name in (f".s.db.{dead}.abc.new", f".s.db.{dead}.abc.new-journal", ".s.db.0123456789ab.new"):
        (tmp_path / name).write_bytes(b"left")
    alive = tmp_path / f".s.db.{os.getppid()}.abc.new"
    alive.write_bytes(b"at work")
    (tmp_path / ".other.db.1.abc.new").write_bytes(b"not ours")
    SqliteBackend(tmp_path / "s.db").close()
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([alive.name, ".other.db.1.abc.new", "s.db"])
    alive.unlink()
    os.link(tmp_path / "s.db", tmp_path / f".s.db.{dead}.abc.new")  # killed between linking and removing
    SqliteBackend(tmp_path / "s.db").close()
    assert sorted(p.name for p in tmp_path.iterdir()) == [".other.db.1.abc.new", "s.db"]


def test_new_stores_have_pointer_maps(tmp_path: Path) -> None:
    SqliteBackend(tmp_path / "s.db").close()
    connection = apsw.Connection(str(tmp_path / "s.db"))
    assert connection.pragma("auto_vacuum") == 2
    connection.close()


def test_an_old_file_under_a_newer_wal_is_refused(tmp_path: Path) -> None:
    code = (
        "import os, sys\n"
        "from everstep.backends.sqlite.backend import SqliteBackend\n"
        "from everstep.testing.rows import new_message\n"
        "backend = SqliteBackend(sys.argv[1])\n"
        "backend.post(new_message(backend.run('r')), 'r')\n"
        "os._exit(0)\n"
    )
    path = tmp_path / "s.db"
    backend, row = filled(path, 3)
    backend.close()
    shutil.copy(path, tmp_path / "old")
    backend = SqliteBackend(path)
    backend.commit(next_commit(row))
    backend.close()
    subprocess.run([sys.executable, "-c", code, str(path)], check=True, timeout=60)
    newer = path.read_bytes()
    wal = Path(f"{path}-wal").read_bytes()
    assert wal
    shutil.copy(tmp_path / "old", path)
    with pytest.raises(ForeignWal, match="the file is older"):
        SqliteBackend(path)
    path.write_bytes(newer)  # another file by its times, but the right one
    Path(f"{path}-wal").write_bytes(wal)
    backend = SqliteBackend(path)
    assert len(backend.messages("r")) == 1
    assert len(backend.records("r", 0, 99)) == 2
    backend.close()

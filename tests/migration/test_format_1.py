"""A store of format 1 is brought to format 2 when it is opened: all of it or nothing, by one of many, or not at all.

`format-1.db` was written by a program of format 1, and `format-1.json` says what it holds: for each run its status, the SHA-256 of the
JSON of each checkpoint's state, its tags, the number of its records and the digest of the last one. Both are never made anew.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import apsw
import pytest

import everstep
from everstep.backends import queries, sqlite_format
from everstep.backends.base import Commit, Query
from everstep.backends.sqlite import SqliteBackend
from everstep.backends.sqlite_rows import record_values, run_values
from everstep.errors import EverstepError, ReadOnly, StoreBusy, StoreError, StoreFull
from everstep.records import ZERO, shift
from everstep.testing.rows import new_letter, new_run, next_commit

FROZEN = Path(__file__).with_name("format-1.db")
HELD: dict[str, Any] = json.loads(FROZEN.with_suffix(".json").read_text())
ORDER = [("plain", 5), ("main", 43), ("child", 7), ("grandchild", 4), ("gone", 3)]  # by creation, each with its records
FED = [(name, seq) for name, records in ORDER for seq in range(1, records + 1)]


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A store of format 1 of one's own."""
    path = tmp_path / "s.db"
    shutil.copy(FROZEN, path)
    return path


def ask(path: Path, sql: str) -> list[Any]:
    connection = apsw.Connection(str(path))
    connection.set_busy_timeout(20_000)  # the store's own thread may be busy with the WAL
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()


def change(path: Path, sql: str) -> None:
    ask(path, sql)


def schema(path: Path) -> list[Any]:
    """Every table and index with its columns, whatever the text was that made them."""
    connection = apsw.Connection(str(path))
    names = connection.execute("SELECT type, name, tbl_name FROM sqlite_master ORDER BY type, name").fetchall()
    columns = [
        (name, connection.execute(f"PRAGMA {'table_xinfo' if kind == 'table' else 'index_xinfo'}({name!r})").fetchall())
        for kind, name, _ in names
    ]
    connection.close()
    return [*names, *columns]


def is_still_format_1(path: Path) -> None:
    assert ask(path, "PRAGMA user_version") == [(1,)]
    assert ask(path, "SELECT count(*) FROM sqlite_master WHERE name IN ('letters', 'feed', 'letters_due')") == [(0,)]
    assert [name for _, name, *_ in ask(path, "PRAGMA table_info(manifest)")] == ["pk", "total", "runs", "next", "last"]
    assert ask(path, "PRAGMA integrity_check") == [("ok",)]


def is_format_2_with_everything(path: Path) -> None:
    backend = SqliteBackend(path)
    assert ask(path, "PRAGMA user_version") == [(2,)]
    assert [(record.run, record.seq) for _, record in backend.feed(0, 1000)] == FED
    assert [position for position, _ in backend.feed(0, 1000)] == list(range(1, 63))
    assert backend.feed_end() == 62
    assert backend.check() == []
    assert {row.id: (row.head_seq, row.head_digest.hex()) for _, row in backend.runs(Query())} == {
        name: (about["records"], about["head"]) for name, about in HELD.items()
    }
    backend.close()


def test_every_state_tag_and_status_of_the_old_store_is_there(old: Path) -> None:
    with everstep.open(old) as store:
        assert store.verify("full").ok
        for name, about in HELD.items():
            assert str(store.get(name).status) == about["status"]
            states = [store.load(name, at=number) for number in range(1, len(about["states"]) + 1)]
            assert [sha256(json.dumps(s, sort_keys=True, ensure_ascii=False).encode()).hexdigest() for s in states] == about["states"]
            assert [[tag.name, tag.number] for tag in store.backend.tags(name)] == about["tags"]
        assert store.load("plain") == {"n": 3}
        assert store.get("child").parent is not None
    is_format_2_with_everything(old)


def test_the_migrated_store_has_the_tables_of_a_new_one(old: Path, tmp_path: Path) -> None:
    SqliteBackend(old).close()
    SqliteBackend(tmp_path / "new.db").close()
    assert schema(old) == schema(tmp_path / "new.db")


def test_the_migration_changes_no_row_that_was_there(old: Path) -> None:
    tables = ["runs", "records", "chunks", "tags", "run_tags", "run_meta", "workers"]
    before = {name: ask(old, f"SELECT * FROM {name}") for name in tables}
    manifest = ask(old, "SELECT total, runs, next, last FROM manifest")
    SqliteBackend(old).close()
    assert {name: ask(old, f"SELECT * FROM {name}") for name in tables} == before
    assert ask(old, "SELECT total, runs, next, latest FROM manifest") == manifest


def test_the_migrated_store_is_written_on_and_the_feed_goes_on(old: Path) -> None:
    backend = SqliteBackend(old)
    row = backend.run("grandchild")
    assert row is not None
    commit = next_commit(row, letters=(new_letter(row, "timer", 5),))
    backend.commit(commit)
    backend.commit(Commit(new := new_run("new"), None))
    backend.commit(next_commit(new))
    assert [(p, record.run, record.seq) for p, record in backend.feed(62, 9)] == [(63, "grandchild", 5), (64, "new", 1)]
    assert commit.waiting == 1
    assert backend.check() == []
    backend.close()


def test_a_store_that_has_format_2_is_not_touched_again(old: Path) -> None:
    SqliteBackend(old).close()
    before = old.read_bytes()
    SqliteBackend(old).close()
    assert old.read_bytes() == before


def make_old(path: Path, runs: int, records: int) -> list[str]:
    """A store of format 1 with many runs, as a program of format 1 would have left it."""
    connection = apsw.Connection(str(path))
    connection.execute(f"PRAGMA application_id = {sqlite_format.APPLICATION_ID}; PRAGMA user_version = 1").fetchall()
    connection.execute("PRAGMA journal_mode = WAL").fetchall()
    connection.execute("BEGIN; " + queries.script("0001_schema")).fetchall()
    add_run, add_record = (queries.load("write")[name] for name in ("create", "add_record"))
    checks, names = [], []
    for pk in range(1, runs + 1):
        row = new_run(f"run-{pk}")
        for _ in range(0 if pk == 7 else records):
            commit = next_commit(row, b"x")
            connection.execute(add_record, record_values(pk, commit.records[0]))
            row = commit.run
        connection.execute(add_run, (pk, *run_values(row)))
        checks.append(row.check)
        names.append(row.id)
    connection.execute("UPDATE manifest SET total = ?, runs = ?, next = ?, last = ?", (shift(ZERO, [], checks), runs, runs + 1, runs))
    connection.execute("COMMIT")
    connection.close()
    return names


def test_many_runs_fill_many_parts_of_the_feed(tmp_path: Path) -> None:
    names = make_old(tmp_path / "s.db", 350, 2)
    backend = SqliteBackend(tmp_path / "s.db")
    expected = [(name, seq) for name in names for seq in (1, 2) if name != "run-7"]
    assert [(record.run, record.seq) for _, record in backend.feed(0, 10_000)] == expected
    assert [(record.run, record.seq) for _, record in backend.feed(399, 5)] == expected[399:404]
    assert backend.feed_end() == 698
    assert ask(tmp_path / "s.db", "SELECT count(*) FROM feed") == [(3,)]
    assert backend.check() == []
    row = backend.run("run-7")
    assert row is not None
    backend.commit(next_commit(row))
    assert [(position, record.run) for position, record in backend.feed(698, 5)] == [(699, "run-7")]
    backend.close()


PREAMBLE = """
import os, signal, sys
from everstep.backends import sqlite_format
from everstep.backends.url import open_backend
def say(*words): print(*words, flush=True)
"""


@pytest.fixture
def child() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []
    paths = [str(Path(everstep.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]

    def start(code: str, *args: object) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", PREAMBLE + code, *map(str, args)]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True, env=environment)
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


KILLED = """
original, point, statements = sqlite_format.migrate, sys.argv[2], 0
def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)
def trace(cursor, sql, bindings):
    global statements
    if str(statements) == point: die()
    statements += 1
    return True
def migrate(connection):
    if point == "in COMMIT": connection.set_commit_hook(die)
    if point == "after COMMIT": connection.set_wal_hook(die)
    connection.exec_trace = trace
    original(connection)
sqlite_format.migrate = migrate
open_backend(sys.argv[1]).close(); say(statements)
"""


def test_whoever_is_killed_before_any_statement_leaves_format_1_and_the_next_one_migrates(old: Path, child: Any) -> None:
    count = int(child(KILLED, old, "never").communicate(timeout=60)[0])
    assert count > 8
    for point in [*range(count), "in COMMIT"]:
        for leftover in old.parent.glob("s.db*"):
            leftover.unlink()
        shutil.copy(FROZEN, old)
        process = child(KILLED, old, point)
        assert process.communicate(timeout=60)[0] == ""
        assert process.returncode == -signal.SIGKILL
        is_still_format_1(old)
        is_format_2_with_everything(old)


def test_whoever_is_killed_after_the_migration_leaves_format_2(old: Path, child: Any) -> None:
    process = child(KILLED, old, "after COMMIT")
    assert process.communicate(timeout=60)[0] == ""
    assert process.returncode == -signal.SIGKILL
    assert (old.parent / "s.db-wal").stat().st_size > 0
    assert ask(old, "PRAGMA user_version") == [(2,)]
    is_format_2_with_everything(old)


@pytest.mark.parametrize("error", [apsw.FullError("no space"), apsw.IOError("bad disk"), MemoryError("none left")])
def test_a_failure_at_any_statement_leaves_format_1(old: Path, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    original = sqlite_format.migrate
    state = {"left": 0}

    def trace(_cursor: object, sql: str, _bindings: object) -> bool:
        state["left"] -= 1
        if state["left"] < 0 and sql != "ROLLBACK":
            raise error
        return True

    def migrate(connection: apsw.Connection) -> None:
        connection.exec_trace = trace
        original(connection)

    monkeypatch.setattr(sqlite_format, "migrate", migrate)
    expected = StoreFull if isinstance(error, apsw.FullError) else StoreError if isinstance(error, apsw.Error) else MemoryError
    failures = 0
    while failures < 100:
        state["left"] = failures
        try:
            SqliteBackend(old).close()
        except expected:
            is_still_format_1(old)
            failures += 1
        else:
            break
    assert 8 < failures < 100
    is_format_2_with_everything(old)


def test_a_store_that_stays_locked_is_busy_and_stays_format_1(old: Path) -> None:
    blocker = apsw.Connection(str(old))
    blocker.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreBusy):
        SqliteBackend(old, busy_ms=50)
    blocker.execute("ROLLBACK")
    blocker.close()
    is_still_format_1(old)
    is_format_2_with_everything(old)


def test_many_processes_that_open_it_at_once_migrate_it_once(old: Path, child: Any) -> None:
    code = """
say("ready"); sys.stdin.readline()
backend = open_backend(sys.argv[1])
say(backend.feed_end(), len(backend.feed(0, 100)), backend.letters("main"))
backend.close()
"""
    processes = [child(code, old) for _ in range(8)]
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    assert [process.communicate(timeout=60)[0] for process in processes] == ["62 62 []\n"] * 8
    is_format_2_with_everything(old)


def test_one_who_waited_for_another_that_migrates_finds_it_done(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = sqlite_format.migrate

    def second(connection: apsw.Connection) -> None:
        monkeypatch.setattr(sqlite_format, "migrate", original)
        SqliteBackend(old).close()
        original(connection)

    monkeypatch.setattr(sqlite_format, "migrate", second)
    SqliteBackend(old).close()
    is_format_2_with_everything(old)


READ_ONLY = """
import everstep.backends.sqlite
from everstep.errors import EverstepError
if os.geteuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
try:
    open_backend(sys.argv[1])
except EverstepError as error:
    say(type(error).__name__, error.written); say(error.message); say(error.remedy)
"""


@pytest.mark.parametrize("what", ["file", "folder"])
def test_a_store_of_format_1_that_cannot_be_written_is_refused_with_a_remedy(old: Path, child: Any, what: str) -> None:
    shared = Path(tempfile.mkdtemp(prefix="everstep-"))  # a folder that other users can reach
    try:
        path = shared / "s.db"
        shutil.copy(old, path)
        path.chmod(0o444 if what == "file" else 0o644)
        shared.chmod(0o755 if what == "file" else 0o555)
        before = path.read_bytes()
        said = child(READ_ONLY, path).communicate(timeout=60)[0].splitlines()
        assert said[0] == "ReadOnly no"
        assert "has format 1" in said[1]
        assert "format 2" in said[1]
        assert "Open it once where it and its folder can be written" in said[2]
        assert path.read_bytes() == before
    finally:
        shared.chmod(0o755)
        shutil.rmtree(shared)


def test_what_a_killed_program_of_format_1_left_in_its_wal_is_migrated_too(old: Path, tmp_path: Path) -> None:
    writer = apsw.Connection(str(old))
    writer.wal_autocheckpoint(0)
    writer.execute("UPDATE runs SET note = 'in the WAL' WHERE id = 'plain'")
    (tmp_path / "copy").mkdir()
    left = tmp_path / "copy" / "s.db"
    shutil.copy(old, left)
    shutil.copy(f"{old}-wal", f"{left}-wal")
    writer.close()
    backend = SqliteBackend(left)
    row = backend.run("plain")
    assert row is not None
    assert (row.note, backend.feed_end()) == ("in the WAL", 62)
    backend.close()


def test_a_program_of_format_1_that_has_the_store_open_cannot_write_past_the_feed(old: Path) -> None:
    """Its statements, word for word."""
    program = apsw.Connection(str(old))
    program.execute("UPDATE manifest SET total = total, runs = runs, next = next, last = last WHERE pk = 1")
    SqliteBackend(old).close()
    with pytest.raises(apsw.SQLError, match="no such column"):
        program.execute("SELECT total, runs, next, last FROM manifest WHERE pk = 1")
    with pytest.raises(apsw.SQLError, match="no such column"):
        program.execute("UPDATE manifest SET total = total, runs = runs, next = next, last = last WHERE pk = 1")
    program.close()
    is_format_2_with_everything(old)


def test_a_trigger_in_the_old_store_does_not_run_while_it_is_migrated(old: Path) -> None:
    change(old, "CREATE TRIGGER evil AFTER UPDATE ON manifest BEGIN DELETE FROM runs; END")
    backend = SqliteBackend(old)
    assert len(backend.runs(Query())) == 5
    backend.close()


def test_a_damaged_store_of_format_1_gives_errors_of_ours_and_nothing_else(old: Path, tmp_path: Path) -> None:
    content = old.read_bytes()
    used = [i for i, byte in enumerate(content) if byte]
    chance = random.Random(3)
    damaged = tmp_path / "damaged.db"
    refused = 0
    for place in [*chance.sample(used, 150), *chance.sample(range(100), 20)]:
        flipped = bytearray(content)
        flipped[place] ^= 1 << chance.randrange(8)
        damaged.write_bytes(flipped)
        try:
            backend = SqliteBackend(damaged, busy_ms=100)
        except EverstepError:
            refused += 1
        else:
            try:
                backend.feed(0, 1000)
            except EverstepError:
                refused += 1
            backend.close()
        for name in ("damaged.db-wal", "damaged.db-shm"):
            (tmp_path / name).unlink(missing_ok=True)
    assert refused


def test_a_run_number_beyond_the_format_is_damage(tmp_path: Path) -> None:
    make_old(tmp_path / "s.db", 2, 1)
    change(tmp_path / "s.db", f"UPDATE runs SET pk = {1 << 40} WHERE pk = 2")
    with pytest.raises(EverstepError, match="is no number of a run"):
        SqliteBackend(tmp_path / "s.db")
    assert ask(tmp_path / "s.db", "PRAGMA user_version") == [(1,)]


def test_a_store_that_may_not_be_written_stays_format_1(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(ReadOnly, match="cannot be brought to format 2"):
        SqliteBackend(old)
    monkeypatch.undo()
    is_still_format_1(old)

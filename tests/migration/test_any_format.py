"""What holds for a store of any older format: it is brought to this one when it is opened, all of it or nothing, once."""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from pathlib import Path
from typing import Any

import apsw
import pytest
from migration_helpers import Frozen, ask, contents

import everstep
from everstep.backends.contract.core import Commit
from everstep.backends.sqlite.backend import SqliteBackend
from everstep.backends.sqlite.files import format as sqlite_format
from everstep.backends.sqlite.files import parts, store_file
from everstep.errors import Damaged, EverstepError, NotAStore, ReadOnly, RolledBack, StoreBusy
from everstep.testing.rows import new_message, new_run, next_commit
from harness.faults import format_0


def test_this_program_knows_no_older_format() -> None:
    assert (sqlite_format.FORMAT, sqlite_format.OLDER) == (1, {})


def test_an_older_format_that_is_not_known_is_refused(made: Path, tmp_path: Path) -> None:
    shutil.copy(made, tmp_path / "s.db")
    with pytest.raises(NotAStore):
        everstep.open(tmp_path / "s.db")


def test_everything_is_there_and_proven(frozen: Frozen, old: Path) -> None:
    with everstep.open(old) as store:
        report = store.verify("full")
        assert report.ok, report
        assert report.runs == len(frozen.heads)
    frozen.has_arrived(old)


def test_the_migrated_store_has_the_tables_of_a_new_one(old: Path) -> None:
    SqliteBackend(old).close()
    connection = apsw.Connection(str(old))
    assert parts.are_right(connection)
    connection.close()


def test_the_migration_changes_no_row_that_was_there(old: Path) -> None:
    before = contents(old)
    SqliteBackend(old).close()
    after = contents(old)
    for name in set(before) - {"manifest"}:
        assert after[name] == before[name]
    ((_, *was, writes, identity),) = before["manifest"]
    ((_, *now, _feed, _fed, still, same, _parts),) = after["manifest"]
    assert (now, still, same) == (was, writes, identity)


def test_the_migrated_store_is_written_on_and_the_feed_goes_on(frozen: Frozen, old: Path) -> None:
    backend = SqliteBackend(old)
    row = backend.run(name := "plain")
    assert row is not None
    commit = next_commit(row, messages=(new_message(row, "new", 5),))
    backend.commit(commit)
    backend.commit(Commit(new := new_run("new"), None))
    backend.commit(next_commit(new))
    expected = [(frozen.fed + 1, name, row.head_seq + 1), (frozen.fed + 2, "new", 1)]
    assert [(p, record.run, record.seq) for p, record in backend.feed(frozen.fed, 9)] == expected
    assert backend.check() == []
    backend.close()


def test_a_store_that_was_migrated_is_not_touched_again(old: Path) -> None:
    SqliteBackend(old).close()
    before = old.read_bytes()
    SqliteBackend(old).close()
    assert old.read_bytes() == before


def test_a_migration_leaves_no_file_behind(old: Path) -> None:
    with everstep.open(old) as store:
        store.runs()
    assert [path.name for path in old.parent.iterdir()] == ["s.db"]


def test_a_store_that_stays_locked_is_busy_and_stays_as_it_is(frozen: Frozen, old: Path) -> None:
    blocker = apsw.Connection(str(old))
    blocker.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreBusy):
        SqliteBackend(old, busy_ms=50)
    blocker.execute("ROLLBACK")
    blocker.close()
    frozen.is_untouched(old)
    frozen.has_arrived(old)


def test_many_processes_that_open_it_at_once_migrate_it_once(frozen: Frozen, old: Path, child: Any) -> None:
    code = """
say("ready"); sys.stdin.readline()
backend = open_backend(sys.argv[1])
say(backend.feed_end(), len(backend.feed(0, 10_000)), len(backend.tombstones()))
backend.close()
"""
    processes = [child(code, old) for _ in range(8)]
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    assert [process.communicate(timeout=60)[0] for process in processes] == [f"{frozen.fed} {frozen.fed} 1\n"] * 8
    frozen.has_arrived(old)


def test_one_who_looks_while_another_migrates_sees_one_format(old: Path, frozen: Frozen, monkeypatch: pytest.MonkeyPatch) -> None:
    original = store_file.has_its_tables

    def late(connection: apsw.Connection, format: int) -> bool:
        monkeypatch.setattr(store_file, "has_its_tables", original)
        SqliteBackend(old).close()  # between the look at the version and the one at the tables
        return original(connection, format)

    monkeypatch.setattr(store_file, "has_its_tables", late)
    SqliteBackend(old).close()
    frozen.has_arrived(old)


def test_one_who_waited_for_another_that_migrates_finds_it_done(frozen: Frozen, old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = sqlite_format.migrate

    def second(connection: apsw.Connection) -> None:
        monkeypatch.setattr(sqlite_format, "migrate", original)
        SqliteBackend(old).close()
        original(connection)

    monkeypatch.setattr(sqlite_format, "migrate", second)
    SqliteBackend(old).close()
    frozen.has_arrived(old)


READ_ONLY = """
import everstep.backends.sqlite.backend
from everstep.errors import EverstepError
if os.geteuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
try:
    open_backend(sys.argv[1])
except EverstepError as error:
    say(type(error).__name__, error.written); say(error.message); say(error.remedy)
"""


@pytest.mark.parametrize("what", ["file", "folder"])
def test_an_old_store_that_cannot_be_written_is_refused_with_a_remedy(frozen: Frozen, old: Path, child: Any, what: str) -> None:
    shared = Path(tempfile.mkdtemp(prefix="everstep-"))  # a folder that other users can reach
    try:
        path = shared / "s.db"
        shutil.copy(old, path)
        path.chmod(0o444 if what == "file" else 0o644)
        shared.chmod(0o755 if what == "file" else 0o555)
        before = path.read_bytes()
        said = child(READ_ONLY, path).communicate(timeout=60)[0].splitlines()
        assert said[0] == "ReadOnly no"
        assert f"has format {frozen.format}" in said[1]
        assert f"format {sqlite_format.FORMAT}" in said[1]
        assert "Open it once with write access to it and its folder" in said[2]
        assert path.read_bytes() == before
    finally:
        shared.chmod(0o755)
        shutil.rmtree(shared)


def test_a_store_that_may_not_be_written_stays_as_it_is(frozen: Frozen, old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(ReadOnly, match=f"cannot be migrated to format {sqlite_format.FORMAT}"):
        SqliteBackend(old)
    monkeypatch.undo()
    frozen.is_untouched(old)


def test_what_a_killed_old_program_left_in_its_wal_is_migrated_too(frozen: Frozen, old: Path, tmp_path: Path) -> None:
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
    assert (row.note, backend.feed_end()) == ("in the WAL", frozen.fed)
    backend.close()


def test_a_store_with_a_trigger_is_refused_before_anything_of_it_runs(frozen: Frozen, old: Path) -> None:
    ask(old, "CREATE TRIGGER evil AFTER UPDATE ON manifest BEGIN DELETE FROM runs; END")
    with pytest.raises(Damaged, match=f"are not those of format {frozen.format}"):
        SqliteBackend(old)
    ask(old, "DROP TRIGGER evil")
    frozen.is_untouched(old)
    frozen.has_arrived(old)


def test_a_damaged_old_store_gives_errors_of_ours_and_nothing_else(old: Path, tmp_path: Path) -> None:
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
                backend.feed(0, 10_000)
            except EverstepError:
                refused += 1
            backend.close()
        for name in ("damaged.db-wal", "damaged.db-shm"):
            (tmp_path / name).unlink(missing_ok=True)
    assert refused


def test_an_old_file_that_is_put_back_after_the_migration_is_refused(frozen: Frozen, old: Path) -> None:
    with everstep.open(old) as store, store.run("new", state={"n": 1}):
        pass
    assert old.with_name("s.db-seen").exists()
    shutil.copy(frozen.path, old)
    with pytest.raises(RolledBack, match=r"is an older version than this machine has seen: \d+ writes are missing"):
        everstep.open(old)
    frozen.is_untouched(old)
    with everstep.open(old, accept_older=True) as store:
        assert store.verify("quick").runs == len(frozen.heads)
    everstep.open(old).close()


def test_a_waiting_workflow_is_answered_and_goes_on(old: Path) -> None:
    with everstep.open(old) as store:
        store.answer("waiting", "editor", "yes")
        out = store.resume("waiting")
        assert (out.status, out.result[0], out.result[2]) == ("succeeded", "logs", "yes")
        assert (out.report.kept, out.report.executed) == (1, 0)
        assert store.load("pruned")["said"] == store.load("pruned", at=69)["said"] + [format_0._text(69)]
        assert store.verify("full").ok


def test_a_program_of_the_older_format_that_has_the_store_open_sees_that_it_must_not_write(old: Path) -> None:
    """What it looks at when it begins to write: whether somebody else has written, and then the format."""
    program = apsw.Connection(str(old))
    before = program.data_version()
    SqliteBackend(old).close()
    program.execute("BEGIN IMMEDIATE")
    assert program.data_version() != before
    assert program.execute("PRAGMA user_version").fetchall() == [(sqlite_format.FORMAT,)]
    program.execute("ROLLBACK")
    program.close()

"""A store of format 1: what it held is there, its records are fed, and programs of its time cannot write it any more.

`format-1.json` says for each run its status, the SHA-256 of the JSON of each checkpoint's state, its tags, the number of its records and
the digest of the last one.
"""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path

import apsw
import pytest
from migration_helpers import FROZEN, Frozen, ask

import everstep
from everstep.backends import sql_files
from everstep.backends.sqlite.backend import SqliteBackend
from everstep.backends.sqlite.files import format as sqlite_format
from everstep.backends.sqlite.rows import record_values, run_values
from everstep.errors import EverstepError
from everstep.records import ZERO, shift
from everstep.testing.rows import new_run, next_commit

FROZEN_1 = FROZEN[1]


@pytest.fixture
def frozen() -> Frozen:
    return FROZEN_1


def test_every_state_tag_and_status_of_the_old_store_is_there(old: Path) -> None:
    with everstep.open(old) as store:
        for name, about in FROZEN_1.held.items():
            assert str(store.get(name).status) == about["status"]
            states = [store.load(name, at=number) for number in range(1, len(about["states"]) + 1)]
            assert [sha256(json.dumps(s, sort_keys=True, ensure_ascii=False).encode()).hexdigest() for s in states] == about["states"]
            assert [[tag.name, tag.number] for tag in store.backend.tags(name)] == about["tags"]
        assert store.load("plain") == {"n": 3}
        assert store.get("child").parent is not None


def make_old(path: Path, runs: int, records: int) -> list[str]:
    """A store of format 1 with many runs, as a program of format 1 would have left it."""
    connection = apsw.Connection(str(path))
    connection.execute(f"PRAGMA application_id = {sqlite_format.APPLICATION_ID}; PRAGMA user_version = 1").fetchall()
    connection.execute("PRAGMA journal_mode = WAL").fetchall()
    connection.execute("BEGIN; " + sql_files.script("sqlite", "0001_schema")).fetchall()
    add_run, add_record = (sql_files.load("sqlite", "write")[name] for name in ("create", "add_record"))
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


def test_a_run_number_beyond_the_format_is_damage(tmp_path: Path) -> None:
    make_old(tmp_path / "s.db", 2, 1)
    ask(tmp_path / "s.db", f"UPDATE runs SET pk = {1 << 40} WHERE pk = 2")
    with pytest.raises(EverstepError, match="is no number of a run"):
        SqliteBackend(tmp_path / "s.db")
    assert ask(tmp_path / "s.db", "PRAGMA user_version") == [(1,)]


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
    FROZEN_1.has_arrived(old)

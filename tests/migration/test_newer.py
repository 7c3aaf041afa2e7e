"""A store of a newer format, or a file of another program, is refused and not touched."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import apsw
import pytest
from migration_helpers import Frozen, ask

import everstep
from everstep.backends.sqlite.backend import SqliteBackend
from everstep.backends.sqlite.files import format as sqlite_format
from everstep.errors import EverstepError, NewerFormat, NotAStore
from everstep.testing.rows import next_commit

NEXT = sqlite_format.FORMAT + 1


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store of this format."""
    path = tmp_path / "s.db"
    with everstep.open(path) as store, store.run("r", state={"n": 1}):
        pass
    return path


@pytest.mark.parametrize("format", [NEXT, 1000, 2**31 - 1])
def test_a_newer_format_is_refused_and_not_touched(store: Path, format: int) -> None:
    ask(store, f"PRAGMA user_version = {format}")
    before = store.read_bytes()
    with pytest.raises(NewerFormat, match=f"has format {format}; this version of Everstep knows formats up to {sqlite_format.FORMAT}"):
        everstep.open(store)
    assert store.read_bytes() == before


@pytest.mark.parametrize("format", [0, -1])
def test_a_format_that_never_was_is_no_store(store: Path, format: int) -> None:
    ask(store, f"PRAGMA user_version = {format}")
    before = store.read_bytes()
    with pytest.raises(NotAStore, match="a database of another program"):
        everstep.open(store)
    assert store.read_bytes() == before


def test_a_program_that_has_a_store_open_stops_writing_when_another_brings_it_to_a_newer_format(store: Path) -> None:
    backend = SqliteBackend(store)
    row = backend.run("r")
    assert row is not None
    backend.commit(commit := next_commit(row))
    ask(store, f"PRAGMA user_version = {NEXT}")
    with pytest.raises(NewerFormat, match=f"brought the store to format {NEXT}"):
        backend.commit(next_commit(commit.run))
    backend.close()
    assert ask(store, "SELECT head_seq FROM runs") == [(commit.run.head_seq,)]


@pytest.mark.parametrize("application", [0, 1, sqlite_format.APPLICATION_ID + 1])
def test_a_database_of_another_program_is_refused_and_not_touched(tmp_path: Path, application: int) -> None:
    path = tmp_path / "other.db"
    connection = sqlite3.connect(path)
    connection.executescript(
        f"PRAGMA application_id = {application}; PRAGMA user_version = 2; CREATE TABLE runs (pk); INSERT INTO runs VALUES (1)"
    )
    connection.close()
    before = path.read_bytes()
    with pytest.raises(NotAStore, match="a database of another program"):
        everstep.open(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("content", [b"", b"hello", b"SQLite format 3\0", bytes(8192), b"PK\3\4" + bytes(5000)])
def test_a_file_that_is_no_database_is_refused_and_not_touched(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "other.db"
    path.write_bytes(content)
    with pytest.raises(EverstepError):
        everstep.open(path)
    assert path.read_bytes() == content


def test_a_database_that_only_claims_an_older_format_is_refused_and_not_touched(tmp_path: Path, frozen: Frozen) -> None:
    path = tmp_path / "s.db"
    connection = apsw.Connection(str(path))
    connection.execute(
        f"PRAGMA application_id = {sqlite_format.APPLICATION_ID}; PRAGMA user_version = {frozen.format}; CREATE TABLE t (x)"
    ).fetchall()
    connection.close()
    with pytest.raises(EverstepError) as refusal:
        everstep.open(path)
    assert refusal.value.remedy
    assert ask(path, "PRAGMA user_version") == [(frozen.format,)]
    assert ask(path, "SELECT name FROM sqlite_master") == [("t",)]

"""Shared by the tests of migrations: a store of an older format that is made for them, and what must be true of a copy of one."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw

from everstep.backends.contract.core import Query
from everstep.backends.sqlite.backend import SqliteBackend
from everstep.backends.sqlite.files import format as sqlite_format
from everstep.records import ZERO, shift
from harness.faults import format_0

CHECKED = ["runs", "tags", "messages", "pruned", "bases", "tombstones", "properties"]
"""The tables whose checks make up the manifest's sum."""


@dataclass(frozen=True)
class Frozen:
    """A store of format 0 that nobody opens: copies of it are migrated."""

    path: Path
    format: int = format_0.OLD

    @property
    def heads(self) -> dict[str, tuple[int, str]]:
        return {
            id: (seq, digest.hex()) for id, seq, digest in ask_alone(self.path, "SELECT id, head_seq, head_digest FROM runs ORDER BY pk")
        }

    @property
    def fed(self) -> int:
        return sum(records for records, _ in self.heads.values())

    def copy(self, path: Path) -> None:
        """Put a fresh copy at a path, in place of all that is there."""
        for leftover in path.parent.glob(f"{path.name}*"):
            shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink()
        shutil.copy(self.path, path)

    def is_untouched(self, path: Path) -> None:
        """It has its old format, with each row as it was; nothing of a newer format is there."""
        assert ask(path, "PRAGMA user_version") == [(self.format,)]
        assert contents(path) == contents(self.path)
        assert ask(path, "PRAGMA integrity_check") == [("ok",)]

    def has_arrived(self, path: Path) -> None:
        """It has this program's format and holds everything."""
        backend = SqliteBackend(path)
        assert ask(path, "PRAGMA user_version") == [(sqlite_format.FORMAT,)]
        found = [(record.run, record.seq) for _, record in backend.feed(0, 10_000)]
        assert found == [(name, seq) for name, (records, _) in self.heads.items() for seq in range(1, records + 1)]
        assert backend.feed_end() == self.fed
        assert {row.id: (row.head_seq, row.head_digest.hex()) for _, row in backend.runs(Query())} == self.heads
        assert backend.manifest().total == total_of(path)
        assert backend.check() == []
        backend.close()


def ask(path: Path, sql: str) -> list[Any]:
    connection = apsw.Connection(str(path))
    connection.set_busy_timeout(20_000)  # the store's own thread may be busy with the WAL
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()


def ask_alone(path: Path, sql: str) -> list[Any]:
    """The same of a file that is not opened for writing."""
    connection = apsw.Connection(f"file:{path}?immutable=1", flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()


def contents(path: Path) -> dict[str, list[Any]]:
    """Every row of every table."""
    names = [name for (name,) in ask(path, "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")]
    return {name: ask(path, f"SELECT * FROM {name} ORDER BY 1, 2") for name in names}


def total_of(path: Path) -> bytes:
    """What the manifest's sum must be, from the rows alone."""
    checks = [check for table in CHECKED for (check,) in ask(path, f'SELECT "check" FROM {table}')]
    return shift(ZERO, (), checks)

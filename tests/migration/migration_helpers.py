"""Shared by the tests of migrations: the frozen stores of every earlier format, and what must be true of a copy of one.

`format-N.db` was written by a program of format N, and `format-N.json` says what it holds. Both are never made anew.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import apsw

from everstep.backends import sql_files
from everstep.backends.contract.core import Query
from everstep.backends.sqlite.backend import SqliteBackend
from everstep.backends.sqlite.files import format as sqlite_format
from everstep.records import ZERO, shift

HERE = Path(__file__).parent
SCRIPTS = ["0001_schema", "0002_runtime", "0003_trust", "0004_queues"]
"""What each format adds to the one before it."""

CHECKED = ["runs", "tags", "letters", "pruned", "bases", "tombstones", "facts"]
"""The tables whose checks make up the manifest's sum."""


@dataclass(frozen=True)
class Frozen:
    """A store of an earlier format: its runs with the number of their records and the digest of the newest, the feed, the places."""

    format: int
    heads: dict[str, tuple[int, str]]
    feed: list[tuple[str, int]] | str
    fed: int
    places: int
    missing: list[int]

    @property
    def path(self) -> Path:
        return HERE / f"format-{self.format}.db"

    @property
    def held(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.path.with_suffix(".json").read_text())
        return found

    def copy(self, path: Path) -> None:
        """Put a fresh copy at a path, in place of all that is there."""
        for leftover in path.parent.glob(f"{path.name}*"):
            shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink()
        shutil.copy(self.path, path)

    def is_untouched(self, path: Path) -> None:
        """It has its old format, with each row as it was; nothing of a newer format is there."""
        assert ask(path, "PRAGMA user_version") == [(self.format,)]
        assert schema(path) == schema_of(self.format)
        assert contents(path) == contents(self.path)
        assert ask(path, "PRAGMA integrity_check") == [("ok",)]

    def has_arrived(self, path: Path) -> None:
        """It has this program's format and holds everything."""
        backend = SqliteBackend(path)
        assert ask(path, "PRAGMA user_version") == [(sqlite_format.FORMAT,)]
        fed = backend.feed(0, 1000)
        found = [(record.run, record.seq) for _, record in fed]
        assert self.feed == (found if self.format == 1 else digest_of([(position, r.run, r.seq) for position, r in fed]))
        assert backend.feed_end() == self.fed
        assert {row.id: (row.head_seq, row.head_digest.hex()) for _, row in backend.runs(Query())} == self.heads
        assert [tombstone.place for tombstone in backend.tombstones()] == self.missing
        assert backend.manifest().places == self.places
        assert backend.manifest().total == total_of(path)
        assert backend.check() == []
        backend.close()


def _frozen_1() -> Frozen:
    held = json.loads((HERE / "format-1.json").read_text())
    heads = {name: (about["records"], about["head"]) for name, about in held.items()}
    order = [("plain", 5), ("main", 43), ("child", 7), ("grandchild", 4), ("gone", 3)]  # by creation, each with its records
    return Frozen(1, heads, [(name, seq) for name, records in order for seq in range(1, records + 1)], 62, 6, [3])


def _frozen(format: int) -> Frozen:
    held = json.loads((HERE / f"format-{format}.json").read_text())
    heads = {name: (about["records"], about["head"]) for name, about in held["runs"].items()}
    store = held["store"]
    return Frozen(format, heads, store["feed"], store["fed"], store["places"], store["missing"])


FROZEN = {frozen.format: frozen for frozen in (_frozen_1(), _frozen(2), _frozen(3))}


def ask(path: Path, sql: str) -> list[Any]:
    connection = apsw.Connection(str(path))
    connection.set_busy_timeout(20_000)  # the store's own thread may be busy with the WAL
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()


def schema(path: Path | str) -> list[Any]:
    """Every table and index with its columns, whatever the text was that made them."""
    connection = apsw.Connection(str(path))
    found = _schema(connection)
    connection.close()
    return found


def schema_of(format: int) -> list[Any]:
    """What the numbered scripts make, up to a format."""
    connection = apsw.Connection(":memory:")
    for name in SCRIPTS[:format]:
        connection.execute(sql_files.script("sqlite", name)).fetchall()
    return _schema(connection)


def _schema(connection: apsw.Connection) -> list[Any]:
    names = connection.execute("SELECT type, name, tbl_name FROM sqlite_master ORDER BY type, name").fetchall()
    columns = [
        (name, connection.execute(f"PRAGMA {'table_xinfo' if kind == 'table' else 'index_xinfo'}({name!r})").fetchall())
        for kind, name, _ in names
    ]
    return [*names, *columns]


def contents(path: Path) -> dict[str, list[Any]]:
    """Every row of every table."""
    names = [name for (name,) in ask(path, "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")]
    return {name: ask(path, f"SELECT * FROM {name} ORDER BY 1, 2") for name in names}


def total_of(path: Path) -> bytes:
    """What the manifest's sum must be, from the rows alone."""
    checks = [check for table in CHECKED for (check,) in ask(path, f'SELECT "check" FROM {table}')]
    return shift(ZERO, (), checks)


def digest_of(value: Any) -> str:
    return sha256(json.dumps(value).encode()).hexdigest()


def fingerprint(value: Any) -> str:
    """What a value is, with its types, by means that no store uses."""
    return sha256(json.dumps(_told(value), ensure_ascii=False).encode()).hexdigest()


def _told(value: Any) -> Any:
    kind = type(value).__name__
    if isinstance(value, dict):
        return [kind, [[_told(k), _told(v)] for k, v in value.items()]]
    if isinstance(value, (set, frozenset)):
        return [kind, sorted(json.dumps(_told(v)) for v in value)]
    if kind in ("list", "tuple", "deque"):
        return [kind, [_told(v) for v in value]]
    return [kind, repr(value)]

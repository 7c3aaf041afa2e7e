"""Exchanges, moves and removes rows of a store behind its back, through SQLite, so that every page stays intact. Part of `files`.

Then only our own digests can detect it. `verify` must find changes that no read shows, because the row only proves others (a tombstone).
The tables are those of docs/format.md; workers, properties and the counters of queues are labels that prove nothing, and are left alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import apsw

from harness.faults.damage.reads import DETECTED, SAME, WRONG
from harness.faults.damage.trial import Bench, Outcome, files_of, put

KEYS = {
    "runs": ("pk",), "records": ("id",), "chunks": ("family", "digest"), "tags": ("run", "name", "number"), "messages": ("run", "name"), "pruned": ("run",),
    "bases": ("run", "number"), "tombstones": ("pk",), "feed": ("first",), "run_tags": ("tag", "pk"), "run_meta": ("key", "value", "pk"), "tasks": ("run",),
}  # fmt: skip
"""The tables, and the columns that identify a row."""
PARTS = {"runs": "id", "records": "body", "chunks": "frame", "messages": "body", "bases": "body"}
"""A column that is also exchanged alone."""
OWNERS = {"tags": "run", "messages": "run", "pruned": "run", "bases": "run", "run_tags": "pk", "run_meta": "pk", "tasks": "run"}
"""The column that names the run of a row."""
_NEAR = 3
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Damage:
    """Rows of a table to remove, and rows to insert instead."""

    name: str
    table: str
    gone: list[Row]
    come: list[Row]

    def do(self, connection: apsw.Connection) -> None:
        keys = KEYS[self.table]
        for row in self.gone:
            where = " AND ".join(f"{key} = ?" for key in keys)
            connection.execute(f"DELETE FROM {self.table} WHERE {where}", [row[key] for key in keys])  # noqa: S608 - fixed names
            if connection.changes() != 1:
                raise AssertionError(f"{self.name}: the row is missing")
        for row in self.come:
            columns, marks = ", ".join(f'"{name}"' for name in row), ", ".join("?" * len(row))
            connection.execute(f"INSERT INTO {self.table} ({columns}) VALUES ({marks})", list(row.values()))  # noqa: S608 - fixed names


def damages(connection: apsw.Connection) -> Iterator[Damage]:
    """Yield all possible damages to the existing rows."""
    pks = [pk for (pk,) in connection.execute("SELECT pk FROM runs ORDER BY pk")]
    for table, keys in KEYS.items():
        rows = _rows(connection, table)
        for number, row in enumerate(rows):
            yield Damage(f"{table} row {number} removed", table, [row], [])
            yield from _moved(table, number, row, pks)
        for (one, first), (two, second) in _pairs(rows):
            said = f"{table} rows {one} and {two} exchanged"
            yield _exchanged(said, table, first, second, [name for name in first if name not in keys])
            if table in PARTS:
                yield _exchanged(f"{said}: {PARTS[table]}", table, first, second, [PARTS[table]])


def _rows(connection: apsw.Connection, table: str) -> list[Row]:
    cursor = connection.execute(f"SELECT * FROM {table} ORDER BY {', '.join(KEYS[table])}")  # noqa: S608 - fixed names
    return [dict(zip((name for name, *_ in cursor.get_description()), values, strict=True)) for values in cursor]


def _pairs(rows: list[Row]) -> Iterator[tuple[tuple[int, Row], tuple[int, Row]]]:
    """Yield pairs of rows that are near each other, and some that are not."""
    for one, two in combinations(enumerate(rows), 2):
        apart = two[0] - one[0]
        if apart <= _NEAR or apart % 7 == 0:
            yield one, two


def _moved(table: str, number: int, row: Row, pks: Iterable[int]) -> Iterator[Damage]:
    if owner := OWNERS.get(table):
        for pk in pks:
            if pk != row[owner]:
                yield Damage(f"{table} row {number} moved to run number {pk}", table, [row], [row | {owner: pk}])


def _exchanged(said: str, table: str, first: Row, second: Row, columns: list[str]) -> Damage:
    one = first | {name: second[name] for name in columns}
    two = second | {name: first[name] for name in columns}
    return Damage(said, table, [first, second], [one, two])


def row_damages(bench: Bench) -> list[Damage]:
    """List the damages to the rows of the closed store that change something."""
    if not bench.kept.get("rows"):
        put(bench.closed, bench.path)
        with closing(apsw.Connection(str(bench.path))) as connection:
            bench.kept["rows"] = [damage for damage in damages(connection) if damage.gone != damage.come]
    found: list[Damage] = bench.kept["rows"]
    return found


def row_damage(bench: Bench, number: int) -> Outcome:
    damage = row_damages(bench)[number]
    put(bench.closed, bench.path)
    with closing(apsw.Connection(str(bench.path))) as connection:
        try:
            with connection:
                damage.do(connection)
        except apsw.ConstraintError as error:  # the tables do not allow it
            return DETECTED, f"{damage.name}: {error}"
    kind, said = bench.attempt(files_of(bench.path) | {"-seen": bench.closed["-seen"]})
    if kind == SAME:
        kind, said = (WRONG, "not noticed") if bench.verified() else (DETECTED, "verify")
    return kind, f"{damage.name}: {said}"

"""Deletes many runs of a store in PostgreSQL at once: a few statements for all of them, in one transaction. Relies on psycopg.

Runs are named by position and check, so a run that has changed since it was read stays. A separate statement deletes the chunks after the
rows: it sees a fork that was committed while the deletion of its parent waited. If two processes delete the last two runs of a family at the
same time, its chunks are left to gc.
"""

from __future__ import annotations

from collections.abc import Sequence

from everstep import clock as clocks
from everstep.backends.deleted_pks import BLOCK, joined, name_of
from everstep.backends.postgres.connections.connect import Connection, execute
from everstep.backends.postgres.rows import items_or_none, property_from
from everstep.records import RunRow, Tombstone, property_check


class Deletion:
    """One transaction that deletes runs."""

    def __init__(self, sql: dict[str, bytes], bucket: int, rows: Sequence[RunRow]):
        self._sql = sql
        self._bucket = bucket
        self._rows = {row.id: row for row in rows if row.worker is None}
        self.keys: set[bytes] = set()

    def do(self, connection: Connection, again: bool) -> set[bytes]:
        """Delete; return the keys of the deleted runs. When repeated after a lost connection, runs that are deleted by now count."""
        with connection.transaction():
            given = [(row.id, row.check) for row in self._rows.values()]
            taken = execute(connection, self._sql["take_runs"], ([name for name, _ in given], [check for _, check in given]))
            if taken:
                self._rest(connection, [(pk, self._rows[name]) for pk, name in taken])
        gone = {self._rows[name].key for _, name in taken}
        return gone | self._gone(connection) if again else gone

    def _rest(self, connection: Connection, taken: list[tuple[int, RunRow]]) -> None:
        """Delete the other rows of the runs; add their tombstones and update the sum of the manifest."""
        pks = [pk for pk, _ in taken]
        delta = -sum(int.from_bytes(row.check) for _, row in taken)
        delta -= sum(int.from_bytes(check) for (check,) in execute(connection, self._sql["take_beside"], (pks,) * 6))
        tags = [(tag, pk) for pk, row in taken for tag in row.tags]
        items = [(item, pk) for pk, row in taken for item in items_or_none(row.meta)]
        for name, pairs in (("drop_run_tags", tags), ("drop_run_meta", items)):
            if pairs:
                execute(connection, self._sql[name], ([one for one, _ in pairs], [pk for _, pk in pairs]))
        now = clocks.clock.now_us()
        stones = [Tombstone.of(pk, row, now) for pk, row in taken]
        delta += sum(int.from_bytes(stone.check) for stone in stones)
        columns = zip(
            *((s.pk, s.id, s.key, s.family, s.created_at, s.at, s.head_seq, s.head_digest, s.checkpoints, s.check) for s in stones),
            strict=True,
        )
        execute(connection, self._sql["add_tombstones"], tuple(map(list, columns)))
        _count(connection, self._sql, self._bucket, delta, -len(taken))
        execute(connection, self._sql["drop_families"], (list({row.family for _, row in taken}),))

    def _gone(self, connection: Connection) -> set[bytes]:
        there = {key for (key,) in execute(connection, self._sql["keys_there"], (list(self._rows),))}
        return {row.key for row in self._rows.values()} - there


def _count(connection: Connection, sql: dict[str, bytes], bucket: int, delta: int, runs: int) -> None:
    ((counted,),) = execute(connection, sql["count_deleted"], (bucket, delta, runs))
    if counted is None:
        execute(connection, sql["no_bucket"], (bucket,))


def forget(connection: Connection, sql: dict[str, bytes], bucket: int, block: int, before: int) -> int:
    """Drop old tombstones of a block, and record their positions in its property."""
    name, first = name_of(block), block * BLOCK + 1
    with connection.transaction():
        execute(connection, sql["lock_property"], (name,))
        gone = execute(connection, sql["take_tombstones"], (first, first + BLOCK - 1, before))
        if not gone:
            return 0
        found = execute(connection, sql["locked_property"], (name,))
        value = joined(property_from(found[0])[1] if found else None, (pk for pk, _ in gone))
        execute(connection, sql["set_property"], (bucket, name, value, property_check(name, value)))
        _count(connection, sql, bucket, -sum(int.from_bytes(check) for _, check in gone), 0)
    return len(gone)

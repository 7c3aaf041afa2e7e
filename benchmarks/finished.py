"""Writes many finished runs into a store in PostgreSQL, quickly: bare rows by COPY, with the checks and the sum that commits would have
left.

Executing a million runs would take an hour and change nothing that a claim reads. The traces of their queue entries are made in the same
way: the entries are inserted and deleted again.
"""

from __future__ import annotations

from collections.abc import Iterator

from everstep.backends.postgres.connections.connect import Address, Connection
from everstep.records import ZERO, RunRow, Status

START = 1_700_000_000_000_000
BLOCK = 10_000
COLUMNS = (
    "pk, id, key, family, workflow, session, tags, note, meta, parent, parent_number, created_at, status, updated_at, head_seq, "
    'head_digest, checkpoints, stored, epoch, worker, since, "check"'
)


def write(url: str, count: int, queue: str) -> None:
    """Write the runs. The store must exist and be empty, and no other process may use it meanwhile."""
    with Address(url).connect(seconds=600) as connection:
        total = 0
        with connection.cursor().copy(f"COPY everstep.runs ({COLUMNS}) FROM STDIN".encode()) as copy:
            for text, part in _blocks(count, queue):
                copy.write(text)
                total += part
        connection.execute(b"UPDATE everstep.counters SET created = created + %s", (count,))
        connection.execute(b"UPDATE everstep.manifest SET total = total + %s, runs = runs + %s WHERE bucket = 0", (total, count))
        _leave_traces(connection, count, queue)


def _blocks(count: int, queue: str) -> Iterator[tuple[bytes, int]]:
    """Yield lines of COPY, and the sum of their checks."""
    row = _row(queue)
    meta = str(row.meta).replace("\\", "\\\\")
    for first in range(1, count + 1, BLOCK):
        lines, total = [], 0
        for pk in range(first, min(first + BLOCK, count + 1)):
            row.id, row.key = f"done-{pk:07}", pk.to_bytes(16)
            row.family, row.created_at, row.updated_at = row.key, START + pk, START + pk
            check = row.digest()
            total += int.from_bytes(check)
            lines.append(
                f"{pk}\t{row.id}\t\\\\x{row.key.hex()}\t\\\\x{row.key.hex()}\t{row.workflow}\t\\N\t\\N\t\\N\t{meta}\t\\N\t0\t{row.created_at}\t"
                f"{row.status}\t{row.updated_at}\t0\t\\\\x{ZERO.hex()}\t0\t0\t1\t\\N\t0\t\\\\x{check.hex()}\n"
            )
        yield "".join(lines).encode(), total


def _row(queue: str) -> RunRow:
    return RunRow(
        id="",
        key=b"",
        family=b"",
        workflow="claimed",
        session=None,
        tags=(),
        note=None,
        meta=f'{{"queue":"{queue}"}}',
        parent=None,
        parent_number=0,
        created_at=START,
        status=Status.SUCCEEDED.value,
        updated_at=START,
        head_seq=0,
        head_digest=ZERO,
        checkpoints=0,
        stored=0,
        epoch=1,
        worker=None,
        since=0,
    )


def _leave_traces(connection: Connection, count: int, queue: str) -> None:
    """Insert and delete a queue entry for each run, as its life would have done."""
    values = (queue, START, count)
    connection.execute(
        b"INSERT INTO everstep.tasks (run, queue, priority, ready, deaths, seen) SELECT n, %s, 0, %s, 0, 0 FROM generate_series(1, %s) AS n",
        values,
    )
    connection.execute(b"DELETE FROM everstep.tasks")

"""Reads the data of a quick verify for a page of runs, table by table: five statements a page, not five a run. Relies on the caller's
snapshot.

Only for the quick depth. Deeper checks read run by run, as every program does, so that they meet a damaged index where a program would.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import apsw

from everstep.backends import sql_files
from everstep.backends.contract.types import Gathered
from everstep.backends.sqlite.rows import base_from, message_from, pruned_from, record_from, tag_from
from everstep.errors import Damaged
from everstep.records import RunRow

T = TypeVar("T")
_SQL = sql_files.load("sqlite", "gather")


def heads(cursor: apsw.Cursor, page: Sequence[tuple[int, RunRow]]) -> Gathered:
    """Read the runs of a page, which are in the order of their positions. A run with any unreadable row is left to single reads."""
    names = {pk: row.id for pk, row in page}
    out = Gathered(rows={row.id: row for _, row in page}, records={row.id: [] for _, row in page})
    unread: set[str] = set()

    def each(name: str, make: Callable[[str, Any], T]) -> list[tuple[str, T]]:
        found: list[tuple[str, T]] = []
        for pk, *values in cursor.execute(_SQL[name], (page[0][0], page[-1][0])):
            run = names.get(pk)
            if run is None:
                continue  # deleted, or new
            try:
                found.append((run, make(run, tuple(values))))
            except Damaged:
                unread.add(run)
        return found

    _fill(out.tags, each("tags_of", tag_from))
    _fill(out.messages, each("messages_of", message_from))
    _fill(out.bases, each("bases_of", base_from))
    _fill(out.records, each("heads_of", record_from))
    out.marks.update(each("marks_of", pruned_from))
    for run in unread:
        out.rows.pop(run, None)
        out.records.pop(run, None)
    return out


def _fill(target: dict[str, list[T]], found: list[tuple[str, T]]) -> None:
    for run, one in found:
        target.setdefault(run, []).append(one)

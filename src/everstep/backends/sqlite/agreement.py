"""Whether the parts of a store in SQLite agree with each other. Relies on a cursor inside one read transaction.

A disk that loses a write leaves one page as it was before. Every row on such a page is good in itself and belongs to this store, so no digest
of a row can tell. Only another page can: the records of a run know of a newer head (`rows.newest_run`), the two trees that hold the
tags know the same names, the manifest has the sum of all rows, and two indexes list the ids of all runs.
The sum and the ids cost one look at every row. They are proved once for each open store, by the first read that needs them.
"""

from __future__ import annotations

import apsw

from everstep.backends import sql_files
from everstep.errors import Damaged, DamagedRun
from everstep.records import MODULUS

_SQL = sql_files.load("sqlite", "read")
REMEDY = "store.verify('full') lists all damage; restore a backup, or save what is good into a new store: everstep repair OLD NEW."


def adds_up(cursor: apsw.Cursor | apsw.Connection) -> bool:
    """Whether the manifest is the sum of all checks: of runs, tags, letters, prune marks, added bases, tombstones and facts."""
    try:
        (total,) = cursor.execute(_SQL["total"]).fetchone() or (None,)
        checks = sum(int.from_bytes(check) for (check,) in cursor.execute(_SQL["all_checks"]))
    except (TypeError, UnicodeDecodeError):
        return False
    return bool(total == (checks % MODULUS).to_bytes(32))


def prove_tags(cursor: apsw.Cursor, run: str, pk: int) -> None:
    """Refuse the tags of a run if the two trees that hold them differ. A tag is never changed or removed, so counting them is enough."""
    found = cursor.execute(_SQL["count_tags"], (pk, pk)).fetchone()
    if found is None or found[0] != found[1]:
        raise DamagedRun(f"the tags of run {run!r} are not complete: a page of them is missing or older than the others", remedy=REMEDY)


class Agreement:
    """What was proved of one open store. A proof that failed is tried again by the next read."""

    def __init__(self) -> None:
        self._rows = self._ids = False

    def prove_rows(self, cursor: apsw.Cursor) -> None:
        """Refuse a store in which a row that no chain leads to (a letter, a fact, a lease) may be missing or older than it was."""
        if self._rows:
            return
        if _differ(cursor, "due_by_run", "due_by_time") or not adds_up(cursor):
            raise Damaged("the store is damaged: the rows that are stored are not those that its manifest was made of", remedy=REMEDY)
        self._rows = True

    def prove_ids(self, cursor: apsw.Cursor) -> None:
        """Refuse to call a run unknown while the index of ids lists other runs than the index by creation."""
        if self._ids:
            return
        if _differ(cursor, "ids_by_name", "ids_by_order"):
            raise Damaged("the index of the run ids is damaged: a run may exist that it does not list", remedy=REMEDY)
        self._ids = True


def _differ(cursor: apsw.Cursor, one: str, other: str) -> bool:
    """Whether two trees with the same rows say different things about them."""
    return cursor.execute(_SQL[one]).fetchone() != cursor.execute(_SQL[other]).fetchone()

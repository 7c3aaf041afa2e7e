"""Checks that the parts of a store in SQLite agree with each other. Relies on a cursor inside one read transaction.

A disk that loses a write leaves one page in its earlier version. Every row on such a page is valid in itself and belongs to this store, so
the digest of a row cannot reveal it. Only another page can: the records of a run show a newer head (`rows.newest_run`), the two trees
that hold the tags have the same names, the manifest has the sum of all rows, and two indexes list the ids of all runs.
Checking the sum and the ids reads every row. It is done once for each open store, by the first read that needs it.
"""

from __future__ import annotations

import apsw

from everstep.backends import sql_files
from everstep.errors import Damaged, DamagedRun
from everstep.records import MODULUS

_SQL = sql_files.load("sqlite", "read")
REMEDY = "store.verify('full') lists all damage; restore a backup, or save the undamaged data to a new store: everstep repair OLD NEW."


def adds_up(cursor: apsw.Cursor | apsw.Connection) -> bool:
    """Return whether the manifest is the sum of all checks: of runs, tags, messages, prune marks, added bases, tombstones, properties."""
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
        raise DamagedRun(f"the tags of run {run!r} are incomplete: a page of them is missing or older than the others", remedy=REMEDY)


class Agreement:
    """The checks that one open store has passed. A check that failed is tried again by the next read."""

    def __init__(self) -> None:
        self._rows = self._messages = self._ids = False

    def prove_rows(self, cursor: apsw.Cursor) -> None:
        """Refuse a store in which a row outside the chains (a message, a property, a lease) may be missing or an older version."""
        if self._rows:
            return
        if _differ(cursor, "due_by_run", "due_by_time") or not adds_up(cursor):
            raise Damaged("the store is damaged: its rows do not add up to its manifest", remedy=REMEDY)
        self._rows = True

    def prove_messages(self, cursor: apsw.Cursor) -> None:
        """Refuse a store in which a message may be missing: also one whose messages have strayed to other runs."""
        self.prove_rows(cursor)
        if not self._messages:
            if cursor.execute(_SQL["strayed_message"]).fetchone() is not None:
                raise Damaged("the store is damaged: a message belongs to another run than it was sent to", remedy=REMEDY)
            self._messages = True

    def prove_ids(self, cursor: apsw.Cursor) -> None:
        """Refuse to report a run as unknown while the index of ids lists other runs than the index by creation."""
        if self._ids:
            return
        if _differ(cursor, "ids_by_name", "ids_by_order"):
            raise Damaged("the index of run ids is damaged: it may not list all runs that exist", remedy=REMEDY)
        self._ids = True


def _differ(cursor: apsw.Cursor, one: str, other: str) -> bool:
    """Return whether two trees that should hold the same rows differ."""
    return cursor.execute(_SQL[one]).fetchone() != cursor.execute(_SQL[other]).fetchone()

"""Checks that the parts of a store in SQLite agree with each other. Relies on a cursor inside one read transaction.

A disk that loses a write leaves one page in its earlier version. Every row on such a page is valid in itself and belongs to this store, so
the digest of a row cannot reveal it. Only another page can: the records of a run show a newer head (`rows.newest_run`), the two trees
that hold the tags have the same names, the manifest has the sum of all rows, and two indexes list the ids of all runs. The indexes of
attached entries, of questions and of metadata have as many entries as the records that they index, and the same ids.
Checking the sum, the ids or an index reads every row. It is done once for each open store (for a run's entries: once for each run), by
the first read that needs it.
"""

from __future__ import annotations

import apsw

from everstep.backends import sql_files
from everstep.backends.contract.core import MAX_SEQ
from everstep.backends.sqlite.rows import known_items
from everstep.errors import Damaged, DamagedRun
from everstep.records import MODULUS, Kind

_SQL = sql_files.load("sqlite", "read")
_KINDS = {"attached": (Kind.ATTACHED.value,), "gates": (Kind.GATE.value, Kind.ANSWER.value)}
_SAID = {"attached": "attached entries", "gates": "questions"}
_MOST_KNOWN = 10_000
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
        self._rows = self._messages = self._ids = self._metas = False
        self._entries: dict[tuple[str, int], int] = {}  # the lowest id from which the entries of a run were compared

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

    def prove_entries(self, cursor: apsw.Cursor, name: str, run: str, pk: int, low: int | None = None) -> None:
        """Refuse the attached entries or the gates of a run if their index differs from its records. `low` is an id that all entries
        follow which the caller wants; if an earlier call had a higher one, the whole run is compared, so that a walk back does it once.
        """
        first = pk << 31
        known = self._entries.get((name, pk))
        if known is not None and known <= (first if low is None else low):
            return
        low = first if low is None or known is not None else low
        kinds = _KINDS[name]
        in_table = cursor.execute(_SQL["entries_in_table"], (low, first | MAX_SEQ, kinds[0], kinds[-1])).fetchone()
        try:
            in_index = cursor.execute(_SQL[f"{name}_in_index"], (pk, low)).fetchone()
        except apsw.SQLError as error:
            if not str(error).startswith("no such index: records_"):
                raise
            in_index = (0, 0.0)
        if in_table != in_index:
            raise DamagedRun(f"the index of {_SAID[name]} of run {run!r} is damaged: it does not list what its records are", remedy=REMEDY)
        if len(self._entries) >= _MOST_KNOWN:
            self._entries.clear()
        self._entries[name, pk] = low

    def prove_metas(self, cursor: apsw.Cursor) -> None:
        """Refuse to find checkpoints by metadata while the index of metadata differs from the records."""
        if self._metas:
            return
        wanted = found = 0
        for place, meta in cursor.execute(_SQL["all_metas"]):
            for item in known_items(meta):
                wanted += hash((item, place))
        for row in cursor.execute(_SQL["all_meta_items"]):
            found += hash(row)
        if wanted != found:
            raise Damaged("the index of metadata is damaged: it does not list all checkpoints that have some", remedy=REMEDY)
        self._metas = True


def _differ(cursor: apsw.Cursor, one: str, other: str) -> bool:
    """Return whether two trees that should hold the same rows differ."""
    return cursor.execute(_SQL[one]).fetchone() != cursor.execute(_SQL[other]).fetchone()

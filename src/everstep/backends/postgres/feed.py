"""The feed of a store in PostgreSQL: the records of all runs in the order of their commits. Relies on Readers.

Commits leave entries without positions; the next reader of the feed assigns them (sql/functions.sql, settle_feed).
"""

from __future__ import annotations

from everstep.backends.postgres.connections.connect import Rows
from everstep.backends.postgres.connections.readers import Readers
from everstep.backends.postgres.rows import record_from
from everstep.errors import Damaged, DamagedRecord, ReadOnly, StoreBusy
from everstep.records import Record

_AT_ONCE = 10_000


def settle(readers: Readers) -> None:
    """Assign positions to recent commits. A reader without write access sees the positions that others have assigned."""
    if readers.rows("feed_unsettled") == [(False,)]:
        return
    try:
        while readers.rows("settle_feed", _AT_ONCE)[0][0] == _AT_ONCE:
            continue
    except (ReadOnly, StoreBusy):
        return


def end(readers: Readers) -> int:
    """Return the newest position."""
    found = readers.rows("feed_end")
    if not found:
        raise Damaged("the end of the feed is missing: the table feed_end is empty")
    return int(found[0][0])


def read(readers: Readers, after: int, limit: int) -> list[tuple[int, Record]]:
    """Return the first records beyond a position."""
    found = readers.rows("feed", after, limit, after, after, limit, limit)
    _refuse_gaps(found, limit)
    return [(row[0], record_from(row[1], row[4:])) for row in found]


def _refuse_gaps(found: Rows, limit: int) -> None:
    """Refuse a page that lacks records which its entries name: an incomplete page would end the reading too early."""
    expected = None  # the next seq of an entry that is not complete yet
    run = ""
    for _, name, first, last, seq, *_ in found:
        wanted = first if expected is None else expected
        if seq != wanted or (expected is not None and name != run):
            raise DamagedRecord(run if expected is not None else name, wanted, "it is missing, although the feed names it")
        expected, run = (None if seq == last else seq + 1), name
    if expected is not None and len(found) < limit:
        raise DamagedRecord(run, expected, "it is missing, although the feed names it")

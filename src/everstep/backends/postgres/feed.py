"""The feed of a store in PostgreSQL: the records of all runs in the order of their commits. Relies on Readers.

Commits leave entries without positions; whoever reads the feed first gives positions to them (sql/functions.sql, settle_feed).
"""

from __future__ import annotations

from everstep.backends.postgres.connections.connect import Rows
from everstep.backends.postgres.connections.readers import Readers
from everstep.backends.postgres.rows import record_from
from everstep.errors import Damaged, DamagedRecord, ReadOnly, StoreBusy
from everstep.records import Record

_AT_ONCE = 10_000


def settle(readers: Readers) -> None:
    """Give positions to recent commits. A reader that may not write sees the positions that others have given."""
    if readers.rows("feed_unsettled") == [(False,)]:
        return
    try:
        while readers.rows("settle_feed", _AT_ONCE)[0][0] == _AT_ONCE:
            continue
    except (ReadOnly, StoreBusy):
        return


def end(readers: Readers) -> int:
    """The newest position that was given."""
    found = readers.rows("feed_end")
    if not found:
        raise Damaged("the end of the feed is gone: the table feed_end is empty")
    return int(found[0][0])


def read(readers: Readers, after: int, limit: int) -> list[tuple[int, Record]]:
    """The first records beyond a position."""
    found = readers.rows("feed", after, limit, after, after, limit, limit)
    _refuse_gaps(found, limit)
    return [(row[0], record_from(row[1], row[4:])) for row in found]


def _refuse_gaps(found: Rows, limit: int) -> None:
    """Refuse a page that lacks records which its entries name: a page that is short for no good reason would end the reading too early."""
    expected = None  # the next seq of the entry that is not at its end yet
    run = ""
    for _, name, first, last, seq, *_ in found:
        wanted = first if expected is None else expected
        if seq != wanted or (expected is not None and name != run):
            raise DamagedRecord(run if expected is not None else name, wanted, "it is gone, although the feed names it")
        expected, run = (None if seq == last else seq + 1), name
    if expected is not None and len(found) < limit:
        raise DamagedRecord(run, expected, "it is gone, although the feed names it")

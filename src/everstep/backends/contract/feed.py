"""The order of all commits of a store, for the event stream. The docstrings are the contract."""

from __future__ import annotations

from typing import Protocol

from everstep.records import Record


class Feed(Protocol):
    """Records in which order records were committed."""

    def feed(self, after: int, limit: int) -> list[tuple[int, Record]]:
        """Return records of all runs, with bodies, in commit order: the first `limit` beyond position `after`.

        Positions count the records of the store from 1 and are never reused. Positions of a deleted run stay empty, and its records are
        left out. Reads one snapshot: a record never appears later at a position at or before one that was already returned.
        """

    def feed_end(self) -> int:
        """Return the newest position, 0 if there is none. If it is read before a `feed` that returns fewer than `limit`, continue from it."""

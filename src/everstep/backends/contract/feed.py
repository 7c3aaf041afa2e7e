"""The order of all commits of a store, for those who follow it. The docstrings are the contract."""

from __future__ import annotations

from typing import Protocol

from everstep.records import Record


class Feed(Protocol):
    """Remembers in which order records were committed."""

    def feed(self, after: int, limit: int) -> list[tuple[int, Record]]:
        """Records of all runs, with bodies, in the order in which they were committed: the first `limit` of those beyond position `after`.

        Positions count the records of the store from 1 and are never used again: those of a run that was deleted stay empty, and its
        records are left out. One snapshot: a record never shows up later at a position at or before one that was handed out.
        """

    def feed_end(self) -> int:
        """The newest position that was given, 0 if there is none. Asked for before a feed that comes back short, it is where to go on from."""

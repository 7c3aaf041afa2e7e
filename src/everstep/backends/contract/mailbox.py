"""Letters to runs: what gates, timers, answers and operators wait for. The docstrings are the contract."""

from __future__ import annotations

from typing import Protocol

from everstep.records import Letter


class Mailbox(Protocol):
    """Takes letters for runs, without a lease."""

    def post(self, letter: Letter, run: str) -> bool:
        """Add a letter to a run; False, and nothing changed, if it has one of that name: the first wins. Needs no lease.

        NotFound if the run is gone, also if another one has its id by now (the letter's key is not the run's).
        """

    def letters(self, run: str) -> list[Letter]:
        """All letters of a run, by name; none for a run that is not there. Damaged if the backend can tell that one may be missing or old."""

    def due(self, now: int, limit: int | None = None, outside: bool = False) -> list[str]:
        """Ids of the runs to wake: status waiting or failed, a letter with `due` <= `now`, and none named "pause"; with `outside`, only those that
        have no place in a queue.

        The one with the earliest such letter first; where two are equal, the one that was created first.
        """

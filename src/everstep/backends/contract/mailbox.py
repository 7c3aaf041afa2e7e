"""Messages to runs, for gates, timers, answers and operators. The docstrings are the contract."""

from __future__ import annotations

from typing import Protocol

from everstep.records import Message


class Mailbox(Protocol):
    """Accepts messages for runs, without a lease."""

    def post(self, message: Message, run: str) -> bool:
        """Add a message to a run. The first of a name wins: returns False and changes nothing if the run has one with that name.

        Needs no lease. NotFound if the run was deleted, also if another run has its id now (the message's key is not the run's).
        """

    def messages(self, run: str) -> list[Message]:
        """Return all messages of a run, by name; none if there is no such run. Damaged if the backend finds that one may be missing or old."""

    def due(self, now: int, limit: int | None = None, outside: bool = False) -> list[str]:
        """Return the ids of the runs to wake up: status waiting or failed, a message with `due` <= `now`, and none named "pause".

        With `outside`, only runs without a queue entry. Sorted by their earliest such message; if two are equal, the run that was
        created first comes first.
        """

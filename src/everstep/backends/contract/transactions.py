"""Transactions in which users' functions write: the protocols that the runtime needs, and the statements that a function may not use.

`Transaction` is one in the store's own database, `Session` one in the user's database, which keeps the results of its steps in two
tables (`StepResults`). Both provide a connection that refuses to be committed, rolled back or closed. No I/O here.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, runtime_checkable

from everstep.backends.contract.core import Commit, Committed
from everstep.errors import EverstepError, TransactionEnded

_ENDS = re.compile(
    r"(?:\s|;|--[^\n]*(?:\n|$)|/\*.*?\*/)*"
    r"(begin|start\s+transaction|commit|end|abort|rollback(?!(?:\s+(?:work|transaction))?\s+to\b)|prepare\s+transaction)\b",
    re.IGNORECASE | re.DOTALL,
)

Rows = Sequence[tuple[bytes, str]]


class Undone(EverstepError):
    """A transaction was rolled back at its end: none of its statements took effect, and the attempt at the step failed with `error`."""

    def __init__(self, error: Exception):
        self.error = error
        super().__init__(str(error), written="no")


class Transaction(Protocol):
    """A transaction in the store's own database."""

    connection: Any

    def commit(self, commit: Commit) -> Committed:
        """Make the commit the last statement of the transaction, after all commits that were submitted before, and end the transaction.

        Refused as `Backend.commit` is, with everything rolled back. Raises `Undone` if the database refused the statements before it,
        `TransactionUnknown` if it is unknown whether the commit happened.
        """

    def rollback(self, abandoned: bool = False) -> None:
        """Undo all of it. `abandoned`: an abandoned thread may still be using the connection."""


@runtime_checkable
class Transactional(Protocol):
    """A backend whose database can also hold the user's tables."""

    def transaction(self) -> Transaction:
        """Begin a transaction."""


class Session(Protocol):
    """A transaction in the user's database. `kept` is the row of the step, (content, digest), if one was committed before."""

    connection: Any
    kept: tuple[bytes, bytes] | None

    def commit(self, content: bytes, digest: bytes, done: Rows) -> None:
        """Write the step's row, remove those in `done`, and end the transaction.

        Raises `LostLease` if another attempt has entered since, `Undone` if the database refused, `TransactionUnknown` if the outcome is
        unknown. Except in the last case, everything is rolled back.
        """

    def rollback(self, abandoned: bool = False) -> None:
        """Undo all of it; see `Transaction.rollback`."""


class StepResults(Protocol):
    """Two small tables in the user's database: which attempt of each run may write, and step results that the journal may lack."""

    url: str
    done: deque[tuple[bytes, str]]
    """(run, address) of rows whose record the journal has; the next transaction removes them."""

    def enter(self, run: bytes, name: str, epoch: int, recorded: Callable[[str], bool]) -> None:
        """Durably refuse writes of all attempts before this one. Removes rows of steps that are `recorded`."""

    def begin(self, run: bytes, name: str, epoch: int, address: str) -> Session:
        """Begin the transaction of a step, and look for its row."""

    def clear(self, done: Rows) -> None:
        """Remove rows of steps that the journal has."""

    def rest(self) -> None:
        """Close idle connections."""

    def bare(self) -> AbstractContextManager[Any]:
        """Return a connection in a transaction that is committed at the end of the block and is not tied to a run."""


def refuse_ends(query: object) -> None:
    """Refuse a statement that would end the transaction."""
    text = query.decode("utf-8", "replace") if isinstance(query, bytes) else query
    found = _ENDS.match(text) if isinstance(text, str) else None
    if found is not None:
        raise refused(" ".join(found[1].upper().split()))


def refused(what: str) -> TransactionEnded:
    return TransactionEnded(f"{what} is not allowed in a transactional step: its transaction ends together with its record")


def over() -> TransactionEnded:
    return TransactionEnded("the transaction of this step has already ended")


def ended() -> TransactionEnded:
    return TransactionEnded(
        "the function ended the transaction of its step: its earlier writes may be committed without a record of the step"
    )

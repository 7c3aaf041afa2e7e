"""Transactions that the functions of users write in: what the runtime asks of one, and what a function may not do in it.

`Transaction` is one in the store's own database, `Session` one in a database of the user's, which keeps the results of its steps in a
ledger. Both hand out a connection that refuses to be committed, rolled back or closed. No I/O here.
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
    """A transaction was rolled back at its end: none of its statements holds, and the attempt at the step has failed with `error`."""

    def __init__(self, error: Exception):
        self.error = error
        super().__init__(str(error), written="no")


class Transaction(Protocol):
    """A transaction in the store's own database."""

    connection: Any

    def commit(self, commit: Commit) -> Committed:
        """Make the commit the last statement of the transaction, after all commits that were handed over before, and end it.

        Refused as `Backend.commit` is, with everything rolled back. `Undone` if the database refused the statements before it.
        `TransactionUnknown` if nobody can tell whether it happened.
        """

    def rollback(self, abandoned: bool = False) -> None:
        """Undo all of it. `abandoned`: a thread that nobody waits for any more may still be using the connection."""


@runtime_checkable
class Transactional(Protocol):
    """A backend whose database can hold tables of the user's too."""

    def transaction(self) -> Transaction:
        """Begin a transaction."""


class Session(Protocol):
    """A transaction in a database of the user's. `kept` is the row of the step, (content, digest), if one was committed before."""

    connection: Any
    kept: tuple[bytes, bytes] | None

    def commit(self, content: bytes, digest: bytes, done: Rows) -> None:
        """Write the step's row, remove those in `done`, and end the transaction. `LostLease` if another attempt has entered since, `Undone` if the database
        refused, `TransactionUnknown` if nobody can tell; all but the last with everything rolled back."""

    def rollback(self, abandoned: bool = False) -> None:
        """Undo all of it; see `Transaction.rollback`."""


class Ledger(Protocol):
    """Two small tables in a database of the user's: which attempt of each run may write, and the results that the journal may lack."""

    url: str
    done: deque[tuple[bytes, str]]
    """(run, address) of rows whose record the journal has, for the next transaction to remove."""

    def enter(self, run: bytes, name: str, epoch: int, recorded: Callable[[str], bool]) -> None:
        """Let no attempt before this one write any more, durably. Rows of steps that are `recorded` are removed."""

    def begin(self, run: bytes, name: str, epoch: int, address: str) -> Session:
        """Begin the transaction of a step, and look for its row."""

    def clear(self, done: Rows) -> None:
        """Remove rows of steps that the journal has."""

    def rest(self) -> None:
        """Let go of connections that lie idle."""

    def bare(self) -> AbstractContextManager[Any]:
        """A connection in a transaction that is committed at the end of the block, and knows nothing of runs."""


def refuse_ends(query: object) -> None:
    """Refuse a statement that would end the transaction."""
    text = query.decode("utf-8", "replace") if isinstance(query, bytes) else query
    found = _ENDS.match(text) if isinstance(text, str) else None
    if found is not None:
        raise refused(" ".join(found[1].upper().split()))


def refused(what: str) -> TransactionEnded:
    return TransactionEnded(f"{what} is not for the function of a transactional step: its transaction ends together with its record")


def over() -> TransactionEnded:
    return TransactionEnded("the transaction of this step is over")


def ended() -> TransactionEnded:
    return TransactionEnded(
        "the function ended the transaction of its step: what it wrote before may hold, and is not recorded with the step"
    )

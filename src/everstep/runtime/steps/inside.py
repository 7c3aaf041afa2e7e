"""Steps whose function runs inside something that ends with its record, such as a transaction. The engine knows only this protocol. No I/O.

`everstep.transactions` has such steps. `provide` registers how one is made from the value of `@step(transactional=...)`; `everstep.api`
calls it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from everstep.backends.contract.core import Commit, Committed
    from everstep.runtime.steps.drive import Ways
    from everstep.runtime.steps.ticket import Ticket


class Work(Protocol):
    """The open transaction of one attempt at such a step."""

    @property
    def connection(self) -> Any:
        """The object that the function writes through."""

    @property
    def inside(self) -> bool:
        """Whether it commits the step's record, too."""

    def commit(self, commit: Commit) -> Committed:
        """End it together with the commit of the step's record."""

    def recorded(self, ticket: Ticket) -> None:
        """Tidy up after the record was committed elsewhere."""

    def rollback(self, abandoned: bool = False) -> None:
        """Undo what the function wrote."""


class Inside(Protocol):
    """Makes attempts at steps of this kind, and records them."""

    def check(self, ticket: Ticket) -> None:
        """Refuse an invalid step before anything is written about it."""

    async def attempt(self, ticket: Ticket, ways: Ways) -> Any:
        """Make one attempt, in a thread or in a task; return its result, which is recorded."""

    def skip(self, ticket: Ticket) -> None:
        """Make sure that no earlier attempt takes effect any more: an operator skips the step."""

    def call(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call the function without recording."""


_make: list[Callable[[Any], Inside]] = []


def provide(make: Callable[[Any], Inside]) -> None:
    """Register how such steps are made."""
    _make[:] = [make]


def made(given: Any) -> Inside | None:
    """Return the kind that `transactional=` asks for, or None."""
    return None if given is None or given is False else _make[0](given)

"""The unfinished steps of one attempt: which are running, which wait between two attempts, and which the program has cancelled.

A step is in `flight` from its beginning until its end is recorded; one that is still there when an attempt ends has no known end. Child runs
are steps, too: if the program cancelled or abandoned their calls, they are cancelled here. Relies on the attempt for writing.
"""

from __future__ import annotations

from threading import get_ident
from typing import TYPE_CHECKING

from everstep.backends.contract.core import Commit
from everstep.clock import clock
from everstep.errors import AttemptLost, Suspended, Waiting
from everstep.records import Kind
from everstep.runtime.engine.store_trouble import TROUBLE
from everstep.store.chain import Entry
from everstep.store.journal.entries import Recorded

if TYPE_CHECKING:
    from everstep.runtime.engine.attempt import Attempt
    from everstep.runtime.steps.ticket import Ticket, Turn

_STEP = Kind.STEP.value


class StepsUnderway:
    """The steps of an attempt that have begun."""

    def __init__(self, attempt: Attempt):
        self._attempt = attempt
        self.flight: dict[str, Ticket] = {}
        self.resting: set[str] = set()  # those that wait between two attempts
        self.turns: dict[str, Turn] = {}  # those with a key
        self.given_up: dict[str, Entry] = {}  # the records of those that the program cancelled
        self.lost: set[str] = set()  # the calls of child runs among them: those runs must be cancelled, too
        self.elsewhere: dict[str, Ticket] = {}  # those that `run.begin` began, and that have not ended
        self.called_again: set[str] = set()  # recorded steps that a validation called

    def is_busy_beside(self, address: str) -> bool:
        """Whether a step runs that is not around this address."""
        return any(step not in self.resting and not f"{address}/".startswith(f"{step}/") for step in self.flight)

    def is_alone(self, address: str) -> bool:
        """Whether a step that ended was the only one in which the last attempt can have died: no other is running, and none was lost after it.

        A step that ended in a thread or task other than the program's own says nothing about the others.
        """
        attempt = self._attempt
        beside = any(not address.startswith(f"{other}/") for other in self.flight)
        in_own_task = attempt.task is None or attempt.task_here() is attempt.task
        return not beside and attempt.writer.is_sync and get_ident() == attempt.owner and in_own_task

    def remember(self, ticket: Ticket, commit: Commit) -> None:
        """Keep the records that this attempt may need again: a step with a key, and a step inside of one with retries."""
        address, outer = ticket.address, self._tried_again(ticket.address)
        if ticket.options.key is None and outer is None:
            return
        record = next((r for r in commit.records if r.note == address and r.kind == _STEP), None)
        if record is not None:
            self._attempt.replay.entries[address] = Recorded(record)
            if outer is not None and ticket.options.key is None:
                outer.inner.append(address)

    def _tried_again(self, address: str) -> Ticket | None:
        """Return the outermost step around an address that has a retry."""
        parts = address.split("/")
        around = (self.flight.get("/".join(parts[:count])) for count in range(1, len(parts)))
        return next((ticket for ticket in around if ticket is not None and ticket.options.retry is not None), None)

    # Steps without a recorded end.

    def not_recorded(self, ticket: Ticket, error: BaseException) -> None:
        """Handle the error if the end of a step could not be recorded; called before the error is raised."""
        self.flight.pop(ticket.address, None)
        if isinstance(error, (*TROUBLE, AttemptLost)):
            self._attempt.unwritten.add(ticket.address)
        self._attempt.met(error, step=True)

    def broken_off(self, ticket: Ticket, error: BaseException) -> None:
        """Handle a step that was left without an end. One that waits, or was stopped at an inner step, is fine; any other is doubtful."""
        if isinstance(error, Suspended):
            self.flight.pop(ticket.address, None)
        if isinstance(error, Waiting):
            self._attempt.waits.setdefault(ticket.address, error)

    def refuse_unwound(self, ticket: Ticket) -> None:
        """Raise the stop again if a step's function caught it: if something inside it waits or was stopped, the step has not ended."""
        attempt = self._attempt
        if attempt.waits or attempt.interrupted is not None:
            inside = f"{ticket.address}/"
            stop: Suspended | None = next((one for address, one in attempt.waits.items() if address.startswith(inside)), None)
            if stop is None and any(path.startswith(inside) for path in attempt.stopped_in):
                stop = attempt.interrupted
            if stop is not None:
                self.broken_off(ticket, stop)
                raise stop

    def give_up(self, ticket: Ticket) -> None:
        """Record a step that the program cancelled, with the next commit: records that depend on it come after it, or not at all."""
        attempt = self._attempt
        if attempt.is_stopping:
            return  # the next attempt runs it again
        self.flight.pop(ticket.address, None)
        ticket.started = ticket.started or clock.now_us()
        entry = ticket.cancelled()
        with attempt.writer.lock:
            attempt.writer.entries.append(entry)
            self.given_up[ticket.address] = entry
        self.lose_children(ticket)
        attempt.branches.cancelled(ticket.address, attempt.branch())

    def take_back_given_up(self) -> list[str]:
        """Return the steps that were cancelled with the whole program and are not yet recorded as cancelled: they run again."""
        writer = self._attempt.writer
        with writer.lock:
            dropped = {address: entry for address, entry in self.given_up.items() if any(entry is one for one in writer.entries)}
            writer.entries = [entry for entry in writer.entries if not any(entry is one for one in dropped.values())]
        return list(dropped)

    # Child runs.

    def lose_children(self, ticket: Ticket) -> None:
        """Mark the child runs inside a step for cancellation: the program no longer waits for the step."""
        inside = f"{ticket.address}/"
        around = (ticket, *(one for address, one in list(self.flight.items()) if address.startswith(inside)))
        self.lost.update(one.address for one in around if one.is_child)

    def cancel_lost(self) -> None:
        """Cancel the child runs whose calls the program cancelled. Recorded first: if this process dies in between, a replay cancels them."""
        from everstep.runtime.child import cancel_child

        attempt, writer = self._attempt, self._attempt.writer
        with writer.lock:
            unwritten = any(self.given_up.get(address) is entry for address in self.lost for entry in writer.entries)
        if unwritten:
            writer.write_entries()
        if not writer.is_sync:
            writer.catch_up()
        for address in list(self.lost):
            try:
                cancel_child(attempt, address)
            except TROUBLE as error:
                attempt.met(error)
                raise
            self.lost.discard(address)

    def cancel_left_behind(self) -> None:
        """Cancel the child runs that a returned program called, in this attempt or before, and did not wait for."""
        attempt = self._attempt
        if not any(one.is_child for one in list(self.flight.values())) and attempt.live()[0].epoch <= 1:
            return
        from everstep.runtime.child import cancel_open_children

        try:
            cancel_open_children(attempt)
        except TROUBLE as error:
            attempt.met(error)
            raise

"""Runs a step in a task: awaits its function, or calls it in a thread, and awaits everything that takes time.

`steps.drive` makes all decisions; `steps.in_thread` is the counterpart for threads.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from everstep.clock import clock
from everstep.errors import EverstepError, StepTimeout, Suspended, Waiting
from everstep.runtime.engine.context import Frame, frame, leave
from everstep.runtime.steps.drive import raised_or_given, run_step
from everstep.runtime.steps.record import has_slot, over_budget
from everstep.runtime.tasks.completions import seconds_of
from everstep.runtime.tasks.parking import park
from everstep.runtime.waits.wait import Wait
from everstep.threads.detached import apart

if TYPE_CHECKING:
    from everstep.runtime.steps.ticket import Ticket, Turn
    from everstep.runtime.tasks.writer import TaskWriter

_LOST_SECONDS = 0.02  # time for the program to show that it continues after it cancelled the call of a child run


class InTask:
    """The operations of `Ways` for the tasks of one run."""

    awaits = True

    def __init__(self, tasks: TaskWriter):
        self._tasks = tasks
        self.commit = tasks.commit_step

    async def drive(self, ticket: Ticket) -> Any:
        """Run a step to its end."""
        result, error = await run_step(ticket, self)
        if error is None:
            return result
        try:
            return raised_or_given(ticket, error)
        finally:
            del error  # its traceback refers to this frame

    async def turn(self, other: Turn) -> None:
        """Wait for another call of the same key."""
        await asyncio.shield(asyncio.wrap_future(other.future))  # cancelling this one must not cancel what others wait for

    async def recorded_turn(self, ticket: Ticket) -> None:
        """Return when it is the turn of a recorded end; never for a step that the program had cancelled."""
        run, found, completions = ticket.run, ticket.found, self._tasks.completions
        assert found is not None
        if found.entry.flags.get("cancelled"):
            if not run.dry:
                cancel_children_of(ticket)
            try:
                await completions.cancelled(ticket.address, seconds_of(found.entry))
            finally:
                run.branches.cancelled(ticket.address, run.branch())
        if not completions.is_next(found.record.seq):
            await completions.recorded(found.record.seq)

    async def fresh(self, ticket: Ticket, is_over: bool = False) -> None:
        """Return when a new step may begin: all recorded ends were delivered. A step that `is_over` at once gives the others a turn, too."""
        completions = self._tasks.completions
        if is_over or completions.holding:
            await completions.new()

    async def call(self, ticket: Ticket) -> Any:
        """Make one attempt at a step."""
        ticket.begin()
        timeout = ticket.options.timeout
        token = frame.set(Frame(ticket.run, ticket.run.root.handle, f"{ticket.address}/", None, ticket))
        try:
            return await asyncio.wait_for(_await(ticket), timeout) if timeout else await _await(ticket)
        except TimeoutError as error:
            if timeout is None or clock.now_us() - ticket.started < timeout * 1e6:
                raise  # the step's own TimeoutError
            raise StepTimeout(f"step {ticket.address} took longer than {timeout:g} s") from error
        finally:
            leave(token)

    async def nap(self, ticket: Ticket, seconds: float) -> None:
        """Wait in short intervals, so that a signal or an operator's message is noticed."""
        run, address, wait = ticket.run, ticket.address, Wait(seconds)
        run.steps.resting.add(address)
        try:
            while (left := wait.left()) > 0:
                await clock.anap(left, 0.2, lambda: run.steps.is_busy_beside(address))
                run.listen()
        finally:
            run.steps.resting.discard(address)

    async def afford(self, ticket: Ticket) -> None:
        """Reserve a slot in the budget. If none is left, the running steps may end before the run stops."""
        run = ticket.run
        if run.account.limited and not run.dry and not has_slot(ticket):
            await park(self._tasks, ticket.address, lambda: has_slot(ticket), lambda: over_budget(ticket))

    async def give_way(self, ticket: Ticket, waiting: Waiting) -> None:
        """Suspend the run when no other task can proceed: a child run, or a gate inside of the step, waits."""
        try:
            await park(self._tasks, f"{ticket.address}/", lambda: False, lambda: ticket.run.stopped_by(waiting))
        except Suspended as stopped:
            ticket.run.steps.broken_off(ticket, stopped)
            raise

    async def write_inside(self, ticket: Ticket) -> None:
        """Make the result of a step durable in its own transaction."""
        await self._tasks.write_inside(ticket)

    async def apart(self, function: Callable[..., Any], *args: Any, undo: Callable[[Any], None] | None = None) -> Any:
        """Call a function that waits for a database, in a thread. `undo` is called with its result if this task is cancelled meanwhile."""
        going = apart(function, *args)
        try:
            return await asyncio.shield(going)
        except asyncio.CancelledError:  # the thread can't be stopped
            if undo is not None:
                going.add_done_callback(lambda done: None if done.cancelled() or done.exception() else undo(done.result()))
            raise

    async def ended(self, ticket: Ticket, error: Exception | None) -> None:
        """Let the program see the end of a step that ran."""
        run = ticket.run
        if run.branches.several:
            await self._tasks.completions.ended(ticket.seq)
        if error is not None:  # seen from now on: a task that began during the commit has not seen it
            run.branches.failed(ticket.address, run.branch())

    def left(self, ticket: Ticket, error: BaseException) -> None:
        """Handle a step that was left without an end: it may have been cancelled."""
        if isinstance(error, asyncio.CancelledError) and not ticket.done and not ticket.waits_for_turn:
            ticket.run.steps.give_up(ticket)
            self._cancel_lost_soon()

    def _cancel_lost_soon(self) -> None:
        """Cancel lost child runs soon, also if the program makes no other call for long. Not at once: the whole program may be being cancelled."""
        run = self._tasks.run

        def look() -> None:
            if run.steps.lost and run.survives():
                with suppress(EverstepError):  # tried again before the next step, and when the run is closed
                    run.steps.cancel_lost()

        if run.steps.lost:
            asyncio.get_running_loop().call_later(_LOST_SECONDS, look)


def cancel_children_of(ticket: Ticket) -> None:
    """Cancel the child run of a step that was recorded as cancelled, and those inside of it: the process may have died before it could."""
    from everstep.runtime.child import cancel_child

    run, inside = ticket.run, f"{ticket.address}/"
    found = [address for address, one in run.replay.entries.items() if address.startswith(inside) and one.entry.flags.get("cancelled")]
    if ticket.is_child:
        found.append(ticket.address)
    for address in found:
        cancel_child(run, address)


async def _await(ticket: Ticket) -> Any:
    if inspect.iscoroutinefunction(ticket.function):
        return await ticket.function(*ticket.given(), **ticket.kwargs)
    result = await asyncio.to_thread(_plain, ticket)
    return await result if inspect.isawaitable(result) else result


def _plain(ticket: Ticket) -> Any:
    """Call a plain function in its own thread, where gates and sleeps need no await."""
    here = frame.get()
    assert here is not None
    frame.set(Frame(ticket.run, ticket.run.handle, here.path, here.counts, ticket))
    return ticket.function(*ticket.given(), **ticket.kwargs)

"""Runs a step in a thread: calls its function, and blocks for everything that takes time.

These are coroutines because `drive` is written once for threads and tasks, but none of them ever waits for an event loop. `tasks.in_task` is
the counterpart for tasks.
"""

from __future__ import annotations

import inspect
import threading
import time
from collections.abc import Callable
from contextvars import copy_context
from typing import Any, NoReturn

from everstep.clock import clock
from everstep.errors import InvalidArgument, StepTimeout, Waiting
from everstep.runtime.engine.context import Frame, frame
from everstep.runtime.steps.record import afford, commit_step, write
from everstep.runtime.steps.ticket import Raised, Ticket, Turn
from everstep.runtime.waits.wait import Wait


class InThread:
    """The operations of `Ways` for threads. Stateless: one object for all threads."""

    awaits = False
    commit = staticmethod(commit_step)

    async def turn(self, other: Turn) -> None:
        """Wait for another call of the same key."""
        other.wait()

    async def recorded_turn(self, ticket: Ticket) -> None:
        """Return at once: the program waits for nothing else."""

    async def fresh(self, ticket: Ticket, is_over: bool = False) -> None:
        """Return at once."""

    async def call(self, ticket: Ticket) -> Any:
        """Make one attempt at a step."""
        ticket.begin()
        inside = Frame(ticket.run, ticket.run.handle, f"{ticket.address}/", None, ticket)
        token = frame.set(inside)
        try:
            if ticket.options.timeout is not None:
                return _call_limited(ticket, ticket.options.timeout, inside)
            result = ticket.function(*ticket.given(), **ticket.kwargs)
            return _finish(result) if inspect.iscoroutine(result) else result
        except StopIteration as error:
            raise Raised(error) from None
        finally:
            frame.reset(token)

    async def nap(self, ticket: Ticket, seconds: float) -> None:
        """Wait in short intervals, so that a signal or an operator's message is noticed."""
        wait = Wait(seconds)
        while (left := wait.left()) > 0:
            clock.nap(left, 0.2)
            ticket.run.listen()

    async def afford(self, ticket: Ticket) -> None:
        """Reserve a slot in the budgets, or stop the run."""
        afford(ticket)

    async def give_way(self, ticket: Ticket, waiting: Waiting) -> NoReturn:
        """Suspend the program: a child run, or a gate inside of the step, waits, and there is nothing else to do."""
        ticket.run.steps.broken_off(ticket, waiting)
        raise waiting

    async def write_inside(self, ticket: Ticket) -> None:
        """Make the result of a step durable in its own transaction, with the checkpoint that is due."""
        write(ticket, None)

    async def apart(self, function: Callable[..., Any], *args: Any, undo: Callable[[Any], None] | None = None) -> Any:
        """Call a function that waits for a database."""
        return function(*args)

    async def ended(self, ticket: Ticket, error: Exception | None) -> None:
        """Do nothing: the program sees the end of a step at once."""

    def left(self, ticket: Ticket, error: BaseException) -> None:
        """Do nothing: a step in a thread cannot have been cancelled."""


IN_THREAD = InThread()


def _finish(result: Any) -> Any:
    """Run a coroutine to its end, in a program without a loop."""
    import asyncio

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(result)
    result.close()
    raise InvalidArgument(
        "an async function cannot be a step of a run that was opened without async",
        remedy="Open it with: async with store.run(id) as run, and await run.step(...).",
    )


def _call_limited(ticket: Ticket, timeout: float, inside: Frame) -> Any:
    """Call a function with a timeout. Python cannot stop a thread: after the timeout it continues, and its result is discarded."""
    box: list[tuple[bool, Any]] = []

    def work() -> None:
        try:
            result = ticket.function(*ticket.given(), **ticket.kwargs)
            box.append((True, _finish(result) if inspect.iscoroutine(result) else result))
        except BaseException as error:  # noqa: BLE001 - it is raised where the step was called
            box.append((False, error))

    thread = threading.Thread(target=copy_context().run, args=(work,), name=f"everstep-{ticket.address}", daemon=True)
    thread.start()
    until = time.monotonic() + timeout
    while thread.is_alive() and (left := until - time.monotonic()) > 0:
        thread.join(min(left, 0.5))  # a signal that comes just before a wait is handled after it
    if not box:
        inside.dead = True
        ticket.run.steps.lose_children(ticket)
        raise StepTimeout(f"step {ticket.address} took longer than {timeout:g} s")
    good, value = box[0]
    if good:
        return value
    raise value

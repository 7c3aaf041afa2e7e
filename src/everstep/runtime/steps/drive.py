"""Runs one step to its end: written once, as a coroutine, for threads and for tasks.

    waits for its turn ── recorded? ──> replayed
        │ no
        v
    before_step ──> attempt ──> succeeded: recorded ──> its result
                      ^   └──> failed: recorded ──> its error
                      └─ delay ──────┘ (a retry is left)

`Ways` has all the differences: `IN_THREAD` calls and waits in this thread, so the coroutine never suspends, and `drive` runs it like a
function; `tasks.in_task` awaits. An exception of the program's function is returned as a value: StopIteration can't leave a coroutine.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from everstep.errors import Waiting
from everstep.runtime.steps.in_thread import IN_THREAD
from everstep.runtime.steps.lookup import end_turn, given_again, look_again, recorded_outcome, take_turn
from everstep.runtime.steps.record import after_step, before_step, failed, remaining, succeeded, try_again
from everstep.runtime.steps.ticket import Ticket, Turn, Unrecorded, raised

Ended = tuple[Any, Exception | None]
"""The result of a step that ran, or its error; the error may be one of the next two."""
RECORDED = Exception("return the recorded end, and count it as kept")
COMPARED = Exception("return the recorded end after a validation")


class Ways(Protocol):
    """The operations that differ between a thread and a task."""

    @property
    def awaits(self) -> bool:
        """Whether tasks await the calls, so that their ends have an order."""

    @property
    def commit(self) -> Callable[[Ticket, tuple[str, str] | None], Any]:
        """Make the end of a step durable."""

    async def turn(self, other: Turn) -> None: ...

    async def recorded_turn(self, ticket: Ticket) -> None: ...

    async def fresh(self, ticket: Ticket, is_over: bool = False) -> None: ...

    async def call(self, ticket: Ticket) -> Any: ...

    async def nap(self, ticket: Ticket, seconds: float) -> None: ...

    async def afford(self, ticket: Ticket) -> None: ...

    async def give_way(self, ticket: Ticket, waiting: Waiting) -> None: ...

    async def write_inside(self, ticket: Ticket) -> None: ...

    async def apart(self, function: Callable[..., Any], *args: Any, undo: Callable[[Any], None] | None = None) -> Any: ...

    async def ended(self, ticket: Ticket, error: Exception | None) -> None: ...

    def left(self, ticket: Ticket, error: BaseException) -> None: ...


def drive(ticket: Ticket) -> Any:
    """Run a step to its end, in this thread."""
    if ticket.played:
        return recorded_outcome(ticket)
    core = run_step(ticket, IN_THREAD)
    try:
        core.send(None)
    except StopIteration as end:
        result, error = end.value
    else:
        core.close()
        raise AssertionError(f"step {ticket.address} waited for an event loop in a thread that has none")
    if error is None:
        return result
    try:
        return raised_or_given(ticket, error)
    finally:
        del error  # its traceback refers to this frame


def raised_or_given(ticket: Ticket, error: Exception) -> Any:
    """Return or raise what the program gets from a step that has no result of its own."""
    if error is RECORDED:
        return recorded_outcome(ticket)
    if error is COMPARED:
        return given_again(ticket)
    try:
        raise error
    finally:
        del error


async def run_step(ticket: Ticket, ways: Ways) -> Ended:
    """Make attempts until the step succeeds or no attempt is left."""
    run, inside = ticket.run, ticket.options.transactional
    error: Exception | None = None
    try:
        ended = await start_step(ticket, ways)
        if ended is not None:
            return ended
        while True:
            try:
                result = await (ways.call(ticket) if inside is None else inside.attempt(ticket, ways))
            except Exception as problem:  # noqa: BLE001 - handed back, or tried again
                error = raised(problem)
                if not await _tries_again(ticket, ways, error):
                    return None, error
            except BaseException as stopped:
                if not isinstance(stopped, Waiting):
                    run.steps.broken_off(ticket, stopped)
                    raise
                await ways.give_way(ticket, stopped)
            else:
                if inside is None:  # otherwise it is recorded already
                    run.steps.refuse_unwound(ticket)
                    succeeded(ticket, result)
                    after_step(ticket, None, await ways.commit(ticket, run.saves.due(ticket, None)))
                if ways.awaits:
                    await ways.ended(ticket, None)
                return result, None
    except BaseException as stopped:
        ways.left(ticket, stopped)
        if ticket.span is not None:
            ticket.end_span(stopped)
        raise
    finally:
        error = None  # its traceback refers to this frame
        end_turn(ticket)


async def start_step(ticket: Ticket, ways: Ways) -> Ended | None:
    """Do everything that comes before the step's function is called; return its end if it must not be called."""
    options = ticket.options
    if ways.awaits or ticket.done or ticket.run.dry or options.key is not None or options.transactional is not None:
        ended = await _settled(ticket, ways)
        if ended is not None:
            return ended
    instead = before_step(ticket)
    if instead is not None:
        await ways.fresh(ticket, is_over=True)  # as on replay: it ends after the other tasks' turn
        return instead[0], None
    if ticket.found is not None and (wait := remaining(ticket)):
        await ways.nap(ticket, wait)
    return None


async def _settled(ticket: Ticket, ways: Ways) -> Ended | None:
    """Wait until a step may begin; return its end if it must not run."""
    run, inside = ticket.run, ticket.options.transactional
    while (other := take_turn(ticket)) is not None:
        await ways.turn(other)
    if ways.awaits:
        run.branch()  # the branch begins here, also if its first call comes later
    look_again(ticket)
    if ticket.played:
        await ways.recorded_turn(ticket)
        return None, RECORDED
    if run.dry:
        from everstep.runtime.steps import validate

        return await validate.check(ticket, ways)
    if ways.awaits:
        await ways.fresh(ticket)
    if inside is not None:
        inside.check(ticket)
    if ways.awaits:
        await ways.afford(ticket)
    return None


async def _tries_again(ticket: Ticket, ways: Ways, error: Exception) -> bool:
    """Record that an attempt failed. Return True if there is a next one, when it is time for it."""
    if isinstance(error, Unrecorded):
        ticket.run.steps.not_recorded(ticket, error.error)
        raise error.error  # it has its own cause
    ticket.run.steps.refuse_unwound(ticket)
    delay = await record_failure(ticket, ways, error)
    if delay is None:
        return False
    await ways.nap(ticket, delay)
    await ways.afford(ticket)
    try_again(ticket)
    return True


async def record_failure(ticket: Ticket, ways: Ways, error: Exception) -> float | None:
    """Record that an attempt failed; return the delay before the next one, or None if there is none."""
    run = ticket.run
    run.refuse_trouble(error)
    delay = failed(ticket, error)
    after_step(ticket, error, await ways.commit(ticket, run.saves.due(ticket, error)))
    if delay is None:
        await ways.ended(ticket, error)
    return delay

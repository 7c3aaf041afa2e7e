"""The same way to run a step, for tasks: what `steps.drive` does, awaited. All decisions are made there."""

from __future__ import annotations

import asyncio
import inspect
import time
from typing import TYPE_CHECKING, Any

from everstep.clock import clock
from everstep.errors import StepTimeout
from everstep.runtime.completions import seconds_of
from everstep.runtime.context import Frame, frame, leave
from everstep.runtime.steps import Ticket, Unrecorded, end_turn, failed, look_again, recorded_outcome, remaining, succeeded, take_turn

if TYPE_CHECKING:
    from everstep.runtime.driver import Driver


async def adrive(ticket: Ticket, handle: Any) -> Any:
    """Run a step to its end, in this task. A plain function runs in a thread."""
    while (other := take_turn(ticket)) is not None:
        await asyncio.shield(asyncio.wrap_future(other))  # cancelling this one must not cancel what others wait for
    try:
        return await _adrive(ticket, handle)
    except asyncio.CancelledError:
        if not ticket.done:
            ticket.run._give_up(ticket)
        raise
    finally:
        end_turn(ticket)


async def _adrive(ticket: Ticket, handle: Any) -> Any:
    run = ticket.run
    run._branch()  # it begins here, also if it asks for something only later
    look_again(ticket)
    if ticket.played:
        return await _replayed(ticket, handle)
    if not ticket.done and handle.completions.replaying:
        await handle.completions.new()
    attempt = acall if ticket.options.transactional is None else _transaction(ticket)
    place = ticket.found.record.seq if ticket.done and ticket.found is not None else None
    instead = run._before_step(ticket)
    if instead is not None:
        return instead[0]
    while True:
        wait = remaining(ticket)
        if wait:
            await _nap(run, wait)
        try:
            result = await attempt(ticket, handle)
        except Unrecorded as trouble:
            raise trouble.error  # noqa: B904 - it has its own cause
        except Exception as error:
            delay = failed(ticket, error)
            seq = await handle._write_step(ticket, error)
            if delay is None:
                await _hand_out(handle, place, seq)
                run._branches.failed(
                    ticket.address, run._branch()
                )  # seen from here on: a task that began during the commit has not seen it
                raise
            await _nap(run, delay)
            run._try_again(ticket)
        except BaseException as error:
            run._break_off(ticket, error)
            raise
        else:
            if ticket.options.transactional is None:  # otherwise it is recorded already
                succeeded(ticket, result)
                seq = await handle._write_step(ticket, None)
            else:
                seq = run._open()[0].head_seq
            await _hand_out(handle, place, seq)
            return result


async def _replayed(ticket: Ticket, handle: Any) -> Any:
    """What was recorded, when it is its turn."""
    found = ticket.found
    assert found is not None
    if found.body[12].get("cancelled"):
        try:
            await handle.completions.cancelled(ticket.address, seconds_of(found.body))
        finally:
            ticket.run._branches.cancelled(ticket.address, ticket.run._branch())
    if not handle.completions.is_next(found.record.seq):
        await handle.completions.recorded(found.record.seq)
    return recorded_outcome(ticket)


async def _hand_out(handle: Any, place: int | None, seq: int) -> None:
    """Let the program see the end of a step that ran: of one that was validated, in its recorded place."""
    if place is not None:
        await handle.completions.recorded(place)
    elif handle.driver._branches.several:
        await handle.completions.ended(seq)


async def _nap(run: Driver, seconds: float) -> None:
    """Wait in this task, a little at a time, so that a signal or an operator is heard."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        await asyncio.sleep(min(left, 0.2))
        run._listen()


async def acall(ticket: Ticket, handle: Any) -> Any:
    ticket.started, ticket.tokens, ticket.cost = clock.now_us(), 0, 0.0
    ticket.run._flight[ticket.address] = ticket
    token = frame.set(Frame(ticket.run, handle, f"{ticket.address}/", None, ticket))
    try:
        return await asyncio.wait_for(_await(ticket), ticket.options.timeout) if ticket.options.timeout else await _await(ticket)
    except TimeoutError as error:
        if ticket.options.timeout is None or clock.now_us() - ticket.started < ticket.options.timeout * 1e6:
            raise  # the step's own
        raise StepTimeout(f"step {ticket.address} took longer than {ticket.options.timeout:g} s") from error
    finally:
        leave(token)


def _transaction(ticket: Ticket) -> Any:
    """What makes an attempt at a transactional step, and records it with that."""
    from everstep.runtime import atransactional, transactional

    transactional.check(ticket)
    return atransactional.transact


async def _await(ticket: Ticket) -> Any:
    if inspect.iscoroutinefunction(ticket.function):
        return await ticket.function(*ticket.given(), **ticket.kwargs)
    result = await asyncio.to_thread(_plain, ticket)
    return await result if inspect.isawaitable(result) else result


def _plain(ticket: Ticket) -> Any:
    """A function that is not async, in a thread of its own: there it asks and sleeps without await."""
    here = frame.get()
    assert here is not None
    frame.set(Frame(ticket.run, ticket.run, here.path, here.counts, ticket))
    return ticket.function(*ticket.given(), **ticket.kwargs)

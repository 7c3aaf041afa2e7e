"""The same way to run a step, for tasks: what `steps.drive` does, awaited. All decisions are made there."""

from __future__ import annotations

import asyncio
import inspect
from contextlib import suppress
from typing import Any

from everstep.clock import clock
from everstep.errors import EverstepError, StepTimeout, Suspended, Waiting
from everstep.runtime.engine.completions import seconds_of
from everstep.runtime.engine.context import Frame, frame, leave
from everstep.runtime.steps.drive import Ticket, Unrecorded, end_turn, failed, look_again, recorded_outcome, remaining, succeeded, take_turn
from everstep.runtime.steps.inside import Inside
from everstep.runtime.waits.agates import park
from everstep.runtime.waits.wait import Wait

_LOST_SECONDS = 0.02  # for the program to show that it runs on after it cancelled the call of a child run


async def adrive(ticket: Ticket, handle: Any) -> Any:
    """Run a step to its end, in this task. A plain function runs in a thread."""
    while (other := take_turn(ticket)) is not None:
        await asyncio.shield(asyncio.wrap_future(other.future))  # cancelling this one must not cancel what others wait for
    try:
        return await _adrive(ticket, handle)
    except asyncio.CancelledError:
        if not ticket.done:
            ticket.run._give_up(ticket)
            _cancel_lost_soon(ticket.run)
        raise
    finally:
        end_turn(ticket)


def _cancel_lost_soon(run: Any) -> None:
    """Have lost child runs cancelled also if the program asks for nothing else for long. Not at once: the whole program may be being cancelled."""

    def look() -> None:
        if run._lost and run._survives():
            with suppress(EverstepError):  # tried again before the next step, and when the run is left
                run._cancel_lost()

    if run._lost:
        asyncio.get_running_loop().call_later(_LOST_SECONDS, look)


async def _adrive(ticket: Ticket, handle: Any) -> Any:
    run = ticket.run
    run._branch()  # it begins here, also if it asks for something only later
    look_again(ticket)
    if ticket.played:
        await wait_for_place(ticket, handle)
        return recorded_outcome(ticket)
    if run._dry:
        from everstep.runtime.steps import validate

        return await validate.acheck(ticket, handle)
    if not ticket.done and handle._completions.holding:
        await handle._completions.new()
    return await _run(ticket, handle)


async def _run(ticket: Ticket, handle: Any) -> Any:
    """Try until it succeeds, or fails for good."""
    run = ticket.run
    attempt = acall if ticket.options.transactional is None else _transaction(ticket)
    await _afford(ticket, handle)
    instead = run._before_step(ticket)
    if instead is not None:
        await handle._completions.new()  # as on replay: it ends after other tasks had their turn
        return instead[0]
    while True:
        wait = remaining(ticket)
        if wait:
            await _nap(ticket, wait)
        try:
            result = await attempt(ticket, handle)
        except Unrecorded as trouble:
            run._not_recorded(ticket, trouble.error)
            raise trouble.error  # noqa: B904 - it has its own cause
        except Exception as error:
            run._refuse_unwound(ticket)
            run._refuse_trouble(error)
            delay = failed(ticket, error)
            seq = await handle._write_step(ticket, error)
            if delay is None:
                await _hand_out(handle, seq)
                run._branches.failed(
                    ticket.address, run._branch()
                )  # seen from here on: a task that began during the commit has not seen it
                raise
            await _nap(ticket, delay)
            await _afford(ticket, handle)
            run._try_again(ticket)
        except Waiting as waiting:
            await _give_way(handle, ticket, waiting)
        except BaseException as error:
            run._break_off(ticket, error)
            raise
        else:
            if ticket.options.transactional is None:  # otherwise it is recorded already
                run._refuse_unwound(ticket)
                succeeded(ticket, result)
                seq = await handle._write_step(ticket, None)
            else:
                seq = run._open()[0].head_seq
            await _hand_out(handle, seq)
            return result


async def _give_way(handle: Any, ticket: Ticket, waiting: Waiting) -> None:
    """A child run, or a gate inside of the step, waits. That suspends the run when no other task can proceed."""
    try:
        await park(handle, f"{ticket.address}/", lambda: False, lambda: ticket.run._stopped_by(waiting))
    except Suspended as stopped:
        ticket.run._break_off(ticket, stopped)
        raise


async def wait_for_place(ticket: Ticket, handle: Any) -> None:
    """Return when it is the turn of a recorded end; of a step that the program had cancelled, never."""
    found = ticket.found
    assert found is not None
    if found.entry.flags.get("cancelled"):
        if not ticket.run._dry:
            _cancel_children_of(ticket)
        try:
            await handle._completions.cancelled(ticket.address, seconds_of(found.entry))
        finally:
            ticket.run._branches.cancelled(ticket.address, ticket.run._branch())
    if not handle._completions.is_next(found.record.seq):
        await handle._completions.recorded(found.record.seq)


def _cancel_children_of(ticket: Ticket) -> None:
    """A step was recorded as cancelled: cancel its child run, and those inside of it. The process may have died before it could."""
    from everstep.runtime.child import cancel_child

    run, inside = ticket.run, f"{ticket.address}/"
    found = [address for address, one in run._played.entries.items() if address.startswith(inside) and one.entry.flags.get("cancelled")]
    if getattr(ticket.function, "is_child", False):
        found.append(ticket.address)
    for address in found:
        cancel_child(run, address)


async def _hand_out(handle: Any, seq: int) -> None:
    """Let the program see the end of a step that ran."""
    if handle._run._branches.several:
        await handle._completions.ended(seq)


async def _afford(ticket: Ticket, handle: Any) -> None:
    """Have a place in the budget. If there is none, the steps that are running may end before the run stops."""
    run = ticket.run
    if run._account.limited and not run._dry and not run._has_place(ticket):
        await park(handle, ticket.address, lambda: run._has_place(ticket), lambda: run._over_budget(ticket))


async def _nap(ticket: Ticket, seconds: float) -> None:
    """Wait in this task, a little at a time, so that a signal or an operator is heard."""
    run, address, wait = ticket.run, ticket.address, Wait(seconds)
    run._resting.add(address)
    try:
        while (left := wait.left()) > 0:
            await clock.anap(left, 0.2, lambda: run._is_busy_beside(address))
            run._listen()
    finally:
        run._resting.discard(address)


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
    inside: Inside = ticket.options.transactional
    inside.check(ticket)
    return inside.attempt_async


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

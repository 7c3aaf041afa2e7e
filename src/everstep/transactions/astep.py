"""The same way to run a transactional step, for tasks: what `transactional.transact` does, awaited. All decisions are made there."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from everstep.errors import AttemptLost
from everstep.runtime.steps.adrive import acall
from everstep.runtime.steps.drive import Ticket, Unrecorded
from everstep.threads.detached import apart
from everstep.transactions import step as transactional


async def transact(ticket: Ticket, handle: Any) -> Any:
    """What `transactional.transact` does. All that waits for a database goes to threads; a function that is async has its statements here."""
    work = ticket.work = await _opened(ticket)
    try:
        result = None if work.kept is not None else await _acall_inside(ticket, handle)
    except BaseException as error:
        lost = transactional.lost_store(ticket, work)
        await asyncio.shield(apart(ticket.undo, error))
        if lost is not None and isinstance(error, Exception):
            raise Unrecorded(lost) from error
        raise
    try:
        if work.kept is not None:
            transactional.take_kept(ticket, work)
            await handle._write_step(ticket, None)
            return transactional.adopted(ticket, work)
        await asyncio.shield(apart(transactional.keep, ticket, work, result))
        await (handle._write_inside if work.inside else handle._write_step)(ticket, None)
    except AttemptLost:
        await asyncio.shield(apart(transactional.take_away, ticket))
        raise
    except Exception as error:
        raise await apart(transactional.trouble, ticket, error) from error
    work.recorded(ticket)
    return result


async def _opened(ticket: Ticket) -> Any:
    opening = apart(transactional.open_work, ticket)
    try:
        return await asyncio.shield(opening)
    except asyncio.CancelledError:  # the thread can't be stopped: undo what it begins
        opening.add_done_callback(lambda done: None if done.cancelled() or done.exception() else done.result().rollback())
        raise


async def _acall_inside(ticket: Ticket, handle: Any) -> Any:
    token = transactional.inside.set(ticket.address)
    try:
        return await acall(ticket, handle)
    finally:
        with suppress(ValueError):  # see `leave`
            transactional.inside.reset(token)

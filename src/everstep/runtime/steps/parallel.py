"""Runs many steps at the same time: in threads, or in tasks. They are numbered before; results come in the order of the items.

When one fails, no further one begins, the running ones finish, and the first error in the order of the items is raised.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from typing import TYPE_CHECKING, Any

from everstep.runtime.steps.drive import drive
from everstep.runtime.steps.ticket import Ticket

if TYPE_CHECKING:
    from everstep.runtime.tasks.writer import TaskWriter


class _Failed:
    """The end of a ticket without a result."""

    def __init__(self, error: BaseException | None):
        self.error = error


def drive_all(tickets: list[Ticket], concurrency: int) -> list[Any]:
    if concurrency == 1 or len(tickets) < 2:
        return [drive(ticket) for ticket in tickets]
    stop: list[bool] = []

    def work(ticket: Ticket) -> Any:
        if stop:
            return _Failed(None)
        try:
            return drive(ticket)
        except BaseException as error:  # noqa: BLE001 - raised below, in the caller's thread
            stop.append(True)
            return _Failed(error)

    with ThreadPoolExecutor(min(concurrency, len(tickets)), "everstep-map") as pool:
        found = [pool.submit(copy_context().run, work, ticket) for ticket in tickets]
        try:
            return _results([_wait(future) for future in found])
        except BaseException:
            stop.append(True)
            raise


def _wait(future: Future[Any]) -> Any:
    """Wait in short intervals: a signal that comes just before a wait is handled after it."""
    while True:
        try:
            return future.result(0.5)
        except TimeoutError:
            if future.done():
                raise


async def await_all(tickets: list[Ticket], concurrency: int, tasks: TaskWriter) -> list[Any]:
    room = asyncio.Semaphore(concurrency)
    stop: list[bool] = []

    async def work(ticket: Ticket) -> Any:
        async with room:
            if stop:
                return _Failed(None)
            try:
                return await tasks.drive(ticket)
            except asyncio.CancelledError:
                raise
            except BaseException as error:  # noqa: BLE001 - raised below, in the caller's task
                stop.append(True)
                return _Failed(error)

    return _results(await asyncio.gather(*(work(ticket) for ticket in tickets)))


def _results(found: list[Any]) -> list[Any]:
    errors = [one.error for one in found if isinstance(one, _Failed) and one.error is not None]
    if errors:
        suspended = [error for error in errors if not isinstance(error, Exception)]
        first = (suspended or errors)[0]
        raise first
    return found

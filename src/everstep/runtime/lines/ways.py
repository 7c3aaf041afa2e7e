"""How a line waits: a thread blocks, a task awaits. The appender is written once and uses one of the two.

Both make a commit durable together with all others that wait at the same time. A task that is cancelled does not stop its commit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from everstep.backends.contract.core import Backend, Commit, Outcome, submit
from everstep.threads.guard import RUN, Guard
from everstep.threads.offload import offload

T = TypeVar("T")


class Ways(Protocol):
    """The calls in which threads and tasks differ."""

    async def __aenter__(self) -> None:
        """Begin a section in which no other thread or task uses the handle."""

    async def __aexit__(self, *problem: object) -> None: ...

    async def call(self, function: Callable[..., T], *args: Any) -> T:
        """Call a function that reads from the store."""

    async def commit(self, backend: Backend, *commits: Commit) -> None:
        """Return when the commits are durable."""

    async def settled(self) -> None:
        """Return when no commit of this handle is in flight any more."""


class InThread:
    """The calls of a thread: they block."""

    def __init__(self) -> None:
        self.lock = Guard(RUN)

    async def __aenter__(self) -> None:
        self.lock.check()
        self.lock.acquire()

    async def __aexit__(self, *problem: object) -> None:
        self.lock.release()

    async def call(self, function: Callable[..., T], *args: Any) -> T:
        return function(*args)

    async def commit(self, backend: Backend, *commits: Commit) -> None:
        backend.commit(*commits)

    async def settled(self) -> None:
        """Return at once: `commit` has returned."""


class InTask:
    """The calls of a task: they never block the event loop."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._flying: asyncio.Future[Any] | None = None

    async def __aenter__(self) -> None:
        await self._lock.acquire()

    async def __aexit__(self, *problem: object) -> None:
        self._lock.release()

    async def call(self, function: Callable[..., T], *args: Any) -> T:
        return await offload(function, *args)

    async def commit(self, backend: Backend, *commits: Commit) -> None:
        if len(commits) == 1:
            outcome, self._flying = _submitted(backend, commits[0])
            await outcome
        else:
            self._flying = offload(backend.commit, *commits)
            await asyncio.shield(self._flying)
        self._flying = None

    async def settled(self) -> None:
        flying, self._flying = self._flying, None
        if flying is not None:
            await asyncio.wait([flying])


def _submitted(backend: Backend, commit: Commit) -> tuple[asyncio.Future[None], asyncio.Future[None]]:
    """Hand a commit to the writer; return a future of its outcome, and one that is done when it is settled, also if the task that awaits
    the outcome is cancelled meanwhile. `asyncio.shield` would do the same with another turn of the event loop.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[None] = loop.create_future()
    landed: asyncio.Future[None] = loop.create_future()

    def settle(outcome: Outcome) -> None:
        if landed.done():
            return
        landed.set_result(None)
        if future.done():
            return  # cancelled
        if isinstance(outcome, BaseException):
            future.set_exception(outcome)
            future.exception()  # a task that is cancelled before it continues never reads it
        else:
            future.set_result(None)

    def done(outcome: Outcome) -> None:
        try:
            loop.call_soon_threadsafe(settle, outcome)
        except RuntimeError:
            if not loop.is_closed():  # a closed loop has no task that waits
                raise

    submit(backend, commit, done)
    return future, landed

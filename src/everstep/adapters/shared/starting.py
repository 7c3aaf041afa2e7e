"""Start the durable run of an agent, or resume it: by its id, in a store or at an address. Also its events, for those who watch it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from typing import Any

import everstep
from everstep.errors import InvalidArgument, RunClosed


async def start(flow: Any, input: tuple[Any, ...], id: str | None, store: Any) -> everstep.Outcome:
    """Start or resume a run; return an outcome that has succeeded or waits. A failed run continues where it failed; other ends are raised."""
    if store is None or isinstance(store, str) or hasattr(store, "__fspath__"):
        async with everstep.open(store) as opened:
            return await start(flow, input, id, opened)
    outcome: everstep.Outcome = await store.start(flow, *input, id=id)
    if outcome.status == "failed" and outcome.reason == "recorded before":
        outcome = await store.resume(outcome.run)
    if outcome.status != "waiting":
        outcome.unwrap()
    return outcome


def current_run() -> Any:
    """Return the async run that this code belongs to, or None."""
    try:
        here: Any = everstep.current()
    except RunClosed:
        return None
    if isinstance(here, everstep.Run):
        raise InvalidArgument(
            "an agent can only run inside an async run or workflow", remedy="Use async def, and async with store.run(...)."
        )
    return here


def refuse_place(id: str | None, store: Any) -> None:
    """Refuse an id or a store inside a run."""
    if id is not None or store is not None:
        raise InvalidArgument("inside a run, id and store must be left out: the calls of the agent are steps of that run")


class Watched:
    """A durable run in a task of its own, and its events."""

    def __init__(self) -> None:
        self._events: asyncio.Queue[Any] = asyncio.Queue()
        self._task: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def sink(self, event: Any) -> None:
        """Take an event."""
        self._events.put_nowait(event)

    def watch(self, running: Awaitable[Any]) -> None:
        """Begin to run."""
        self._task = asyncio.ensure_future(running)
        self._task.add_done_callback(lambda _: self._events.put_nowait(None))

    async def events(self) -> AsyncIterator[Any]:
        """Yield the events; raise the error that ended the run."""
        while (event := await self._events.get()) is not None:
            yield event
        self._events.put_nowait(None)
        await self._task

    def __await__(self) -> Any:
        return self._task.__await__()

    @property
    def is_complete(self) -> bool:
        """Whether the run has ended or waits."""
        return self._task.done()

    def result(self) -> Any:
        """Return the result, when the stream has ended."""
        if not self._task.done():
            raise InvalidArgument("the stream has not ended yet", remedy="Read all of its events first, or await it.")
        return self._task.result()

    def cancel(self) -> None:
        """Stop the run. It stays resumable by its id."""
        self._task.cancel()

"""Durable runs whose events are shown while they happen: `run_streamed`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from agents import Agent

from everstep.adapters.openai_agents.running import Call, check_input, start
from everstep.adapters.openai_agents.scope import Price
from everstep.errors import InvalidArgument


class Stream:
    """A durable run and its events. Awaiting it waits for the `Result`."""

    def __init__(self, call: Call, input: Any, id: str | None, store: Any):
        self._events: asyncio.Queue[Any] = asyncio.Queue()
        call.sink = self._events.put_nowait
        self._task = asyncio.ensure_future(start(call, input, id, store))
        self._task.add_done_callback(lambda _: self._events.put_nowait(None))

    async def stream_events(self) -> AsyncIterator[Any]:
        """Yield the events of `Runner.run_streamed`; raise the error that ended the run.

        After a crash, the recorded part comes first, each text in one piece. For a run that had ended before, there are no events.
        """
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

    @property
    def final_output(self) -> Any:
        """The answer, when the stream has ended."""
        if not self._task.done():
            raise InvalidArgument("the stream has not ended yet", remedy="Read all of stream_events() first, or await the stream.")
        return self._task.result().final_output

    def cancel(self) -> None:
        """Stop the run. It stays resumable: call `run` or `run_streamed` with its id again."""
        self._task.cancel()


def run_streamed(
    agent: Agent[Any], input: Any, *, id: str | None = None, store: Any = None, price: Price | None = None, **options: Any
) -> Stream:  # fmt: skip
    """Run an agent durably and show its events: `async for event in run_streamed(...).stream_events()`. The options are those of `run`."""
    return Stream(Call(agent, price, options), check_input(input), id, store)

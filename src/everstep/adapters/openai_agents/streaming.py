"""Durable runs whose events are shown while they happen: `run_streamed`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from agents import Agent

from everstep.adapters.openai_agents.running import Call, check_input, start
from everstep.adapters.openai_agents.scope import Price
from everstep.adapters.shared.starting import Watched


class Stream(Watched):
    """A durable run and its events. Awaiting it waits for the `Result`."""

    def __init__(self, call: Call, input: Any, id: str | None, store: Any):
        super().__init__()
        call.sink = self.sink
        self.watch(start(call, input, id, store))

    def stream_events(self) -> AsyncIterator[Any]:
        """Yield the events of `Runner.run_streamed`; raise the error that ended the run.

        After a crash, the recorded part comes first, each text in one piece. For a run that had ended before, there are no events.
        """
        return self.events()

    @property
    def final_output(self) -> Any:
        """The answer, when the stream has ended."""
        return self.result().final_output


def run_streamed(
    agent: Agent[Any], input: Any, *, id: str | None = None, store: Any = None, name: str | None = None, price: Price | None = None,
    **options: Any,
) -> Stream:  # fmt: skip
    """Run an agent durably and show its events: `async for event in run_streamed(...).stream_events()`. The options are those of `run`."""
    return Stream(Call(agent, price, options, name=name), check_input(input), id, store)

"""An agent with parallel tools, a tool that asks to be tried again, and another agent in a tool, for a process that is killed at one of its calls.

python pydantic_program.py STORE LEDGER WAY NUMBER
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from killed import Ledger
from pydantic import BaseModel
from pydantic_ai import Agent, ModelRetry, RunContext
from pydantic_ai.messages import ModelResponse, PartDeltaEvent, PartStartEvent, RetryPromptPart, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import DeltaToolCall, FunctionModel
from pydantic_ai.usage import RequestUsage

import everstep
from everstep.adapters.pydantic_ai import DurableAgent, durable

ASKED = "A trip for two, please"
CALLS = 11


class Trip(BaseModel):
    city: str
    total: int


def scripted(name: str, ledger: Ledger, reply: Any) -> FunctionModel:
    """A model that answers by what it has been told: `reply` gets the results of the tools so far."""

    def answer(messages: list[Any]) -> list[Any]:
        parts = [part for message in messages for part in message.parts]
        told = [str(part.content) for part in parts if isinstance(part, (ToolReturnPart, RetryPromptPart))]
        ledger.enter(f"{name} {len(told)}")
        return list(reply(told))

    async def stream(messages: list[Any], info: Any) -> AsyncIterator[Any]:
        for index, part in enumerate(answer(messages)):
            if isinstance(part, ToolCallPart):
                yield {index: DeltaToolCall(part.tool_name, part.args_as_json_str())}
            else:
                yield part.content[:4]
                yield part.content[4:]

    def request(messages: list[Any], info: Any) -> ModelResponse:
        return ModelResponse(parts=answer(messages), usage=RequestUsage(input_tokens=7, output_tokens=3))

    return FunctionModel(request, stream_function=stream)


def make(path: Path, deadly: int = 0) -> DurableAgent:
    """The agents."""
    ledger = Ledger(path, deadly)

    def research(told: list[str]) -> list[Any]:
        return [ToolCallPart("look", {"city": "Rome"})] if not told else [TextPart(told[0])]

    def booking(told: list[str]) -> list[Any]:
        if not told:
            calls = [
                ToolCallPart("price", {"city": "Rome"}),
                ToolCallPart("price", {"city": "Lisbon"}),
                ToolCallPart("ask", {"city": "Rome"}),
            ]
            return [TextPart("Let me see."), *calls]
        if len(told) in (3, 4):
            return [ToolCallPart("book", {"city": "Rome", "again": len(told) == 4})]
        return [ToolCallPart("final_result", {"city": "Rome", "total": int(told[0])})]

    researcher = Agent(scripted("Researcher", ledger, research), name="Researcher")
    booker = Agent(scripted("Booker", ledger, booking), name="Booker", output_type=Trip)

    @researcher.tool_plain
    async def look(city: str) -> str:
        ledger.enter(f"look {city}")
        return f"{city} is warm"

    @booker.tool_plain
    def price(city: str) -> int:
        ledger.enter(f"price {city}")
        return len(city) * 100

    @booker.tool
    async def ask(context: RunContext[None], city: str) -> str:
        return str((await durable(researcher).run(f"How is {city}?", usage=context.usage)).output)

    @booker.tool_plain
    def book(city: str, again: bool) -> str:
        ledger.enter(f"book {city} {again}")
        if not again:
            raise ModelRetry("Ask again")
        return f"booked {city}"

    return durable(booker)


async def drive(agent: DurableAgent, store: Any, way: str, id: str = "trip") -> Any:
    """Run the agent; return its result, and the text that was shown."""
    if way == "plain":
        return await agent.run(ASKED, id=id, store=store), ""
    stream = agent.run_stream_events(ASKED, id=id, store=store)
    shown = ""
    async for event in stream:
        if isinstance(event, PartStartEvent):
            shown += getattr(event.part, "content", "")
        if isinstance(event, PartDeltaEvent):
            shown += getattr(event.delta, "content_delta", "")
    return await stream, shown


if __name__ == "__main__":
    with everstep.open(sys.argv[1]) as opened:
        asyncio.run(drive(make(Path(sys.argv[2]), int(sys.argv[4])), opened, sys.argv[3]))

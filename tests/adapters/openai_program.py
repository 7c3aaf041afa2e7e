"""Agents with handoffs, a guardrail, parallel tools and an agent as a tool, for a process that is killed at one of their calls.

python openai_program.py STORE LEDGER WAY NUMBER
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from agents import (
    Agent,
    GuardrailFunctionOutput,
    InputGuardrail,
    Model,
    ModelResponse,
    Usage,
    function_tool,
    set_tracing_disabled,
)
from agents.testing import assistant_message, function_call
from killed import Ledger
from openai.types.responses import Response, ResponseCompletedEvent, ResponseOutputItemDoneEvent, ResponseTextDeltaEvent
from pydantic import BaseModel

import everstep
from everstep.adapters import openai_agents

set_tracing_disabled(True)
ASKED = "A trip for two, please"
CALLS = 11


class Trip(BaseModel):
    city: str
    total: int


class Scripted(Model):
    """A model that answers by what it has been told: `reply` gets the outputs of the tools so far."""

    def __init__(self, name: str, ledger: Ledger, reply: Callable[[list[str]], list[Any]]):
        self.name, self.ledger, self.reply = name, ledger, reply

    def _answer(self, input: Any) -> ModelResponse:
        told = [item["output"] for item in input if item.get("type") == "function_call_output"] if isinstance(input, list) else []
        told = [text for text in told if "assistant" not in text]
        self.ledger.enter(f"{self.name} {len(told)}")
        usage = Usage(requests=1, input_tokens=7, output_tokens=3, total_tokens=10)
        return ModelResponse(output=self.reply(told), usage=usage, response_id=None)

    async def get_response(self, system_instructions: Any, input: Any, *args: Any, **kwargs: Any) -> ModelResponse:
        return self._answer(input)

    async def stream_response(self, system_instructions: Any, input: Any, *args: Any, **kwargs: Any) -> Any:
        found = self._answer(input)
        for index, item in enumerate(found.output):
            for text in [part.text for part in getattr(item, "content", None) or ()]:
                for piece in (text[:4], text[4:]):
                    yield ResponseTextDeltaEvent(
                        type="response.output_text.delta", content_index=0, delta=piece, item_id=item.id, logprobs=[], output_index=index,
                        sequence_number=0,
                    )  # fmt: skip
            yield ResponseOutputItemDoneEvent(type="response.output_item.done", item=item, output_index=index, sequence_number=1)
        usage = {
            "input_tokens": 7,
            "output_tokens": 3,
            "total_tokens": 10,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens_details": {"reasoning_tokens": 0},
        }
        response = Response.construct(
            id="resp", created_at=0, model="scripted", object="response", output=found.output, parallel_tool_calls=True, tool_choice="auto",
            tools=[], usage=usage,
        )  # fmt: skip
        yield ResponseCompletedEvent(type="response.completed", response=response, sequence_number=2)


def make(path: Path, deadly: int = 0) -> Agent[Any]:
    """The agents."""
    ledger = Ledger(path, deadly)

    @function_tool
    def price(city: str) -> int:
        ledger.enter(f"price {city}")
        return len(city) * 100

    @function_tool
    async def look(city: str) -> str:
        ledger.enter(f"look {city}")
        return f"{city} is warm"

    @function_tool
    def book(city: str) -> str:
        ledger.enter(f"book {city}")
        return f"booked {city}"

    async def polite(context: Any, agent: Any, input: Any) -> GuardrailFunctionOutput:
        ledger.enter("polite")
        return GuardrailFunctionOutput(output_info={"polite": "please" in str(input)}, tripwire_triggered="please" not in str(input))

    def research(told: list[str]) -> list[Any]:
        return [function_call("look", {"city": "Rome"}, call_id="c0")] if not told else [assistant_message(told[0])]

    def booking(told: list[str]) -> list[Any]:
        if not told:
            return [
                function_call("price", {"city": "Rome"}, call_id="c0"),
                function_call("price", {"city": "Lisbon"}, call_id="c1"),
                function_call("research", {"input": "Rome"}, call_id="c2"),
            ]
        if len(told) == 3:
            return [function_call("book", {"city": "Rome"}, call_id="c3")]
        return [assistant_message(Trip(city="Rome", total=int(told[0])).model_dump_json())]

    researcher = Agent(name="Researcher", model=Scripted("Researcher", ledger, research), tools=[look])
    booker = Agent(
        name="Booker",
        model=Scripted("Booker", ledger, booking),
        tools=[price, book, researcher.as_tool("research", "Finds out about a city")],
        output_type=Trip,
    )
    return Agent(
        name="Triage",
        model=Scripted("Triage", ledger, lambda told: [function_call("transfer_to_booker", {}, call_id="h0")]),
        handoffs=[booker],
        input_guardrails=[InputGuardrail(polite, name="polite", run_in_parallel=False)],
    )


async def drive(agent: Agent[Any], store: Any, way: str, id: str = "trip") -> Any:
    """Run the agent; return its result, and the text that was shown."""
    if way == "plain":
        return await openai_agents.run(agent, ASKED, id=id, store=store), ""
    stream = openai_agents.run_streamed(agent, ASKED, id=id, store=store)
    shown = [event.data.delta async for event in stream.stream_events() if isinstance(getattr(event, "data", None), ResponseTextDeltaEvent)]
    return await stream, "".join(shown)


if __name__ == "__main__":
    with everstep.open(sys.argv[1]) as opened:
        asyncio.run(drive(make(Path(sys.argv[2]), int(sys.argv[4])), opened, sys.argv[3]))

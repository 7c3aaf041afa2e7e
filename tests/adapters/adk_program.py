"""An agent of ADK that books a trip: a scripted model, tools that change all three scopes of the state, and a ledger of calls.

As a program: `URL LEDGER WAY NUMBER` runs it and is killed in its call of that number. Every event that the runner has yielded is acknowledged in
the file LEDGER.acknowledged. Way `resumed` continues the interrupted invocation, `said` says the same again.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.apps import App
from google.adk.apps.app import ResumabilityConfig
from google.adk.models import BaseLlm, LlmRequest, LlmResponse
from google.adk.runners import Runner
from google.adk.tools import ToolContext
from google.genai import types
from killed import Ledger

import everstep
from everstep.adapters.adk import SessionService

CALLS = 6  # three of the model, three of tools
WHO = {"user_id": "ann@example.com", "session_id": "trip"}


class Scripted(BaseLlm):
    """Answers by how many results it sees since the last word of the user."""

    model: str = "scripted"
    ledger: Any = None

    async def generate_content_async(self, llm_request: LlmRequest, stream: bool = False) -> AsyncGenerator[LlmResponse, None]:
        results = 0
        for content in llm_request.contents:
            for part in content.parts or ():
                results = 0 if part.text == "Book a trip" else results + (part.function_response is not None)
        self.ledger.enter(f"model {results}")
        parts = {
            0: [call("price", "Rome", 0), call("price", "Lisbon", 1)],
            2: [call("book", "Rome", 2)],
            3: [types.Part(text="Rome is booked.")],
        }[results]
        yield LlmResponse(
            content=types.Content(role="model", parts=parts),
            usage_metadata=types.GenerateContentResponseUsageMetadata(total_token_count=10),
        )


def call(tool: str, city: str, n: int) -> types.Part:
    return types.Part(function_call=types.FunctionCall(id=f"c{n}", name=tool, args={"city": city}), thought_signature=b"\xff%d" % n)


def make(ledger: Ledger, store: Any) -> Runner:
    def price(city: str, tool_context: ToolContext) -> dict[str, Any]:
        """Return a price."""
        ledger.enter(f"price {city}")
        tool_context.state[f"price {city}"] = 400
        tool_context.state["app:asked"] = tool_context.state.get("app:asked", 0) + 1
        tool_context.state["temp:secret"] = "not stored"
        return {"price": 400}

    def book(city: str, tool_context: ToolContext) -> dict[str, Any]:
        """Book a trip."""
        ledger.enter(f"book {city}")
        tool_context.state["booked"] = city
        tool_context.state["user:trips"] = [*tool_context.state.get("user:trips", []), city]
        tool_context.state["app:sold"] = tool_context.state.get("app:sold", 0) + 1
        return {"booked": city}

    agent = LlmAgent(name="booker", model=Scripted(ledger=ledger), instruction="Book trips.", tools=[price, book])
    app = App(name="travel", root_agent=agent, resumability_config=ResumabilityConfig(is_resumable=True))
    return Runner(app=app, session_service=SessionService(store))


async def drive(runner: Runner, way: str, acknowledged: Path | None = None) -> str:
    """Begin or continue the trip; return the last text."""
    service, said, text = runner.session_service, types.UserContent("Book a trip"), ""
    session = await service.get_session(app_name="travel", **WHO)
    if session is None:
        await service.create_session(app_name="travel", **WHO)
    begun = session is not None and session.events
    what = {"invocation_id": session.events[-1].invocation_id} if begun and way == "resumed" else {"new_message": said}
    async for event in runner.run_async(**WHO, **what):
        if acknowledged is not None:
            with acknowledged.open("a") as file:
                file.write(f"{event.id}\n")
        for part in event.content.parts if event.content and event.content.parts else ():
            text = part.text or text
    return text


def main() -> None:
    url, ledger, way, number = sys.argv[1:]
    with everstep.open(url) as store:
        print(asyncio.run(drive(make(Ledger(Path(ledger), int(number)), store), way, Path(ledger + ".acknowledged"))))


if __name__ == "__main__":
    main()

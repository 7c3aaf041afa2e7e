"""The scope of one run of an agent: whose turn it is, and which turn each tool call belongs to. Also what a durable run is called with."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from agents import ModelResponse

import everstep

Price = Callable[[ModelResponse, str], float]


class Scope:
    """One run of an agent inside a durable run: the outermost, or one that a tool or guardrail has started."""

    def __init__(self, price: Price | None):
        self.price = price
        self.loop = asyncio.get_running_loop()
        self.agent = "model"
        self.turn = 0
        self.turns: dict[str, int] = {}

    def here(self) -> Any | None:
        """Return the handle of the durable run, or None where its steps can't be recorded: in the event loop of another thread."""
        return everstep.current() if asyncio.get_running_loop() is self.loop else None

    def responded(self, response: ModelResponse) -> None:
        """Note the tool calls of a response."""
        self.turn += 1
        for item in response.output:
            call_id = item.get("call_id") if isinstance(item, dict) else getattr(item, "call_id", None)
            if isinstance(call_id, str):
                self.turns[call_id] = self.turn


inside: ContextVar[Scope | None] = ContextVar("everstep.adapters.openai_agents.inside", default=None)

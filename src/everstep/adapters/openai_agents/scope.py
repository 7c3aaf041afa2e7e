"""The scope of one run of an agent: whose turn it is, and which turn each tool call belongs to. Also what a durable run is called with."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from agents import ModelResponse, Usage

import everstep

Price = Callable[[ModelResponse, str], float]


class Spent:
    """The usage of the agents that one tool call runs. The framework adds it to the usage of the caller, so a recorded call must know it."""

    def __init__(self, shared: Any):
        self.shared = shared
        self.usage = Usage()


class Scope:
    """One run of an agent inside a durable run: the outermost, or one that a tool or guardrail has started."""

    def __init__(self, price: Price | None, context: Any = None):
        self.price = price
        around = spending.get()
        self._spent = around if around is not None and getattr(context, "usage", None) is around.shared else None
        self.since = Usage()
        self.loop = asyncio.get_running_loop()
        self.agent = "model"
        self.turn = 0
        self.turns: dict[str, int] = {}

    def here(self) -> Any | None:
        """Return the handle of the durable run, or None where its steps can't be recorded: in the event loop of another thread."""
        return everstep.current() if asyncio.get_running_loop() is self.loop else None

    def spend(self, usage: Usage) -> None:
        """Note usage for the tool call that has started this run."""
        self.since.add(usage)
        if self._spent is not None:
            self._spent.usage.add(usage)

    def responded(self, response: ModelResponse) -> None:
        """Note the usage and the tool calls of a response."""
        self.spend(response.usage)
        self.turn += 1
        items: list[Any] = list(response.output)
        for item in items:
            call_id = item.get("call_id") if isinstance(item, dict) else getattr(item, "call_id", None)
            if isinstance(call_id, str):
                self.turns[call_id] = self.turn


inside: ContextVar[Scope | None] = ContextVar("everstep.adapters.openai_agents.inside", default=None)
spending: ContextVar[Spent | None] = ContextVar("everstep.adapters.openai_agents.spending", default=None)

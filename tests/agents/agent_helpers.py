"""For the tests of agents: a loop driven either way, a model that follows a script, and a way to die."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

import everstep


class Killed(BaseException):
    """As if the process had died here: nothing of it is an error that anybody deals with."""


class Ways:
    """Runs an agent in a thread or in a task. `fit` makes a function async where the way is."""

    def __init__(self, way: str):
        self.way = way

    def fit(self, function: Callable[..., Any]) -> Callable[..., Any]:
        if self.way == "sync":
            return function
        parameters = len(inspect.signature(function).parameters)

        async def one(a: Any) -> Any:
            await asyncio.sleep(0)
            return function(a)

        async def two(a: Any, b: Any) -> Any:
            await asyncio.sleep(0)
            return function(a, b)

        return one if parameters == 1 else two

    def run(self, loop: everstep.AgentLoop, store: everstep.Store, *args: Any, **options: Any) -> everstep.Outcome:
        if self.way == "sync":
            return loop.run(store, *args, **options)
        return asyncio.run(loop.arun(store, *args, **options))


class Script:
    """A model that says what the script says, turn by turn, and counts what it is asked."""

    def __init__(self, *lines: Any):
        self.lines = lines
        self.asked: list[int] = []

    def __call__(self, state: everstep.AgentState) -> Any:
        self.asked.append(state.turn + 1)
        line = self.lines[state.turn]
        return line(state) if callable(line) else line


def call(tool: str, **given: Any) -> dict[str, Any]:
    return {"tool": tool, "input": given}

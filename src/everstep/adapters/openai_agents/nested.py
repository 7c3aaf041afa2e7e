"""Runs that a tool or a guardrail starts with `Runner.run` inside a durable run: their calls are steps as well, inside the tool's step.

The framework asks one object to run agents; this module puts itself before it, once. Outside of durable runs it passes everything on.
"""

from __future__ import annotations

import asyncio
from typing import Any

import agents.run
from agents import RunConfig, Usage

from everstep.adapters.openai_agents.approvals import decided
from everstep.adapters.openai_agents.durable_agent import Copies
from everstep.adapters.openai_agents.result import reachable
from everstep.adapters.openai_agents.scope import Scope, inside
from everstep.errors import InvalidArgument


class NestedRunner(agents.run.AgentRunner):
    """Runs agents inside durable runs durably."""

    def __init__(self, runner: agents.run.AgentRunner):
        self.runner = runner

    async def run(self, starting_agent: Any, input: Any, **kwargs: Any) -> Any:
        outer = inside.get()
        here = outer.here() if outer is not None else None
        if outer is None or here is None:
            return await self.runner.run(starting_agent, input, **kwargs)
        copies = Copies(scope := Scope(outer.price, kwargs.get("context")))
        kwargs["run_config"] = copies.config(kwargs.get("run_config") or RunConfig())
        agent = copies.durable(starting_agent)
        token = inside.set(scope)
        try:
            result = await self.runner.run(agent, input, **kwargs)
            shared = getattr(kwargs.get("context"), "usage", None)
            while result.interruptions:
                state = await decided(here, result)
                scope.since = Usage()
                result = await self.runner.run(agent, state, **kwargs)
                if shared is not None and result.context_wrapper.usage is not shared:  # a resumed state has a copy of the usage
                    shared.add(scope.since)
        finally:
            inside.reset(token)
        return result

    def run_sync(self, starting_agent: Any, input: Any, **kwargs: Any) -> Any:
        return self.runner.run_sync(starting_agent, input, **kwargs)

    def run_streamed(self, starting_agent: Any, input: Any, **kwargs: Any) -> Any:
        outer = inside.get()
        if outer is None or outer.loop is not asyncio.get_running_loop():
            return self.runner.run_streamed(starting_agent, input, **kwargs)
        for tool in [tool for one in reachable(starting_agent) for tool in one.tools]:
            if getattr(tool, "needs_approval", False) is not False:  # its step would end while the approval is open
                raise InvalidArgument(
                    f"{tool.name} needs an approval, but its agent is streamed inside a tool, where no gate can be opened",
                    remedy="Leave on_stream out of as_tool, or use Runner.run instead of Runner.run_streamed in the tool.",
                )
        copies = Copies(Scope(outer.price, kwargs.get("context")))
        kwargs["run_config"] = copies.config(kwargs.get("run_config") or RunConfig())
        return self.runner.run_streamed(copies.durable(starting_agent), input, **kwargs)


def framework_runner() -> agents.run.AgentRunner:
    """Return the framework's own runner, and see to it that nested runs are durable."""
    present = agents.run.DEFAULT_AGENT_RUNNER
    if isinstance(present, NestedRunner):
        return present.runner
    agents.run.set_default_agent_runner(NestedRunner(present))
    return present

"""Durable copies of an agent and of all agents that it can hand over to."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from agents import Agent, Handoff, Model, RunConfig, handoff

from everstep.adapters.openai_agents.model import StepProvider, step_model
from everstep.adapters.openai_agents.scope import Scope
from everstep.adapters.openai_agents.tools import step_guardrail, step_handoff, step_tool


class Copies:
    """The durable copies of agents in one scope. The originals are not changed."""

    def __init__(self, scope: Scope, names: Mapping[int, str] | None = None):
        self._scope = scope
        self._names = names or {}  # of agents that have another name in the store, by id()
        self._by_id: dict[int, Agent[Any]] = {}
        self._originals: dict[int, Agent[Any]] = {}

    def durable(self, agent: Agent[Any]) -> Agent[Any]:
        """Return the durable copy of an agent. Agents may hand over to each other in circles."""
        if id(agent) in self._originals or not isinstance(agent, Agent):
            return agent
        if id(agent) in self._by_id:
            return self._by_id[id(agent)]
        made = copy.copy(agent)
        self._by_id[id(agent)], self._originals[id(made)] = made, agent
        if isinstance(agent.model, Model):
            made.model = step_model(agent.model, self._scope)
        made.handoffs = [
            step_handoff(each if isinstance(each, Handoff) else handoff(each), self._scope, self.durable) for each in agent.handoffs
        ]
        made.input_guardrails = [step_guardrail(each, self._scope, self.original) for each in agent.input_guardrails]
        made.output_guardrails = [step_guardrail(each, self._scope, self.original) for each in agent.output_guardrails]
        tools: dict[int, Any] = {}  # a tool is wrapped once: the framework compares tools by identity

        async def get_all_tools(run_context: Any) -> list[Any]:
            self._scope.agent = self._names.get(id(agent), agent.name)
            found = (
                await Agent.get_all_tools(made, run_context) if type(agent) is Agent else await type(agent).get_all_tools(made, run_context)
            )
            return [tools.setdefault(id(tool), (tool, step_tool(tool, self._scope)))[1] for tool in found]

        made.get_all_tools = get_all_tools  # type: ignore[method-assign]
        return made

    def original(self, agent: Any) -> Any:
        """Return the agent that the program knows."""
        return self._originals.get(id(agent), agent)

    def config(self, given: RunConfig) -> RunConfig:
        """Return a copy of a configuration whose models and guardrails are steps."""
        made = copy.copy(given)
        provider = given.model_provider
        made.model_provider = StepProvider(provider.provider if isinstance(provider, StepProvider) else provider, self._scope)
        if isinstance(given.model, Model):
            made.model = step_model(given.model, self._scope)
        if given.input_guardrails:
            made.input_guardrails = [step_guardrail(each, self._scope, self.original) for each in given.input_guardrails]
        if given.output_guardrails:
            made.output_guardrails = [step_guardrail(each, self._scope, self.original) for each in given.output_guardrails]
        return made

"""The result of a durable run of an agent: the same whether this process ran it or read it from the store."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from agents import Agent, AgentOutputSchema, Handoff, RunResult, RunResultStreaming, Usage
from agents.usage import deserialize_usage, serialize_usage
from pydantic import TypeAdapter

import everstep
from everstep.adapters.shared.plain import is_plain, to_plain


class Result:
    """The answer of an agent, or the gates at which it waits."""

    def __init__(self, agent: Agent[Any], kept: dict[str, Any] | None, outcome: everstep.Outcome | None = None):
        self._kept = kept or {}
        self.outcome = outcome
        self.last_agent = _named(agent, self._kept.get("agent")) or agent
        self.final_output = _give(self.last_agent, self._kept.get("output"))

    @property
    def status(self) -> str:
        """`succeeded`, or `waiting` for an approval, a budget or a pause."""
        return self.outcome.status if self.outcome is not None else "succeeded"

    @property
    def gates(self) -> list[Any]:
        """The approvals that the run waits for."""
        return list(self.outcome.gates) if self.outcome is not None else []

    @property
    def usage(self) -> Usage:
        """The tokens and requests of the whole run, each counted once however often it was resumed."""
        return deserialize_usage(self._kept.get("usage") or {})

    @property
    def last_response_id(self) -> str | None:
        """The id of the last response, for `previous_response_id`."""
        return self._kept.get("response_id")

    def to_input_list(self) -> list[Any]:
        """Return the whole conversation, as input of the next run."""
        return [dict(item) for item in self._kept.get("items", ())]

    def __repr__(self) -> str:
        return f"<Result {self.status}: {self.final_output!r:.60}>"


def keep_result(result: RunResult | RunResultStreaming, original: Any) -> dict[str, Any]:
    """Return what the store keeps of a result of the framework."""
    last = original(result.last_agent)
    return {
        "output": _keep(last, result.final_output),
        "agent": last.name,
        "items": [to_plain(item) for item in result.to_input_list()],
        "usage": serialize_usage(result.context_wrapper.usage),
        "response_id": result.last_response_id,
    }


def _type(agent: Agent[Any]) -> Any:
    wanted = agent.output_type
    if isinstance(wanted, AgentOutputSchema):
        return wanted.output_type
    return wanted if wanted is not None and wanted is not str and not hasattr(wanted, "validate_json") else None


def _keep(agent: Agent[Any], output: Any) -> list[Any]:
    wanted = _type(agent)
    if wanted is not None and not is_plain(output):
        return ["typed", TypeAdapter(wanted).dump_python(output, mode="json")]
    return ["plain", to_plain(output)]


def _give(agent: Agent[Any], kept: Any) -> Any:
    if kept is None:
        return None
    form, value = kept
    return TypeAdapter(_type(agent)).validate_python(value) if form == "typed" else value


def _named(agent: Agent[Any], name: str | None) -> Agent[Any] | None:
    return next((one for one in reachable(agent) if one.name == name), None)


def reachable(agent: Agent[Any]) -> Iterator[Agent[Any]]:
    """Yield an agent and all agents that it can hand over to, as far as that is known."""
    seen: set[int] = set()
    ahead: list[Any] = [agent]
    while ahead:
        one = ahead.pop()
        if id(one) in seen or not isinstance(one, Agent):
            continue
        seen.add(id(one))
        yield one
        for each in one.handoffs:
            reference = getattr(each, "_agent_ref", None) if isinstance(each, Handoff) else None
            ahead.append(each if reference is None else reference())

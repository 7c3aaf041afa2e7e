"""Durable runs of an agent: `run`, `run_sync` and `workflow`.

The framework's own loop runs inside a workflow. A resume runs it again from its beginning, with the recorded results of all finished
calls, so it takes the same path. Where the framework stops for an approval, the workflow waits at a gate.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import agents.run
from agents import Agent, RunConfig, RunErrorDetails, Runner

import everstep
from everstep.adapters.openai_agents.approvals import decided
from everstep.adapters.openai_agents.durable_agent import Copies
from everstep.adapters.openai_agents.nested import framework_runner
from everstep.adapters.openai_agents.result import Result, keep_result, reachable
from everstep.adapters.openai_agents.scope import Price, Scope, inside
from everstep.adapters.openai_agents.tools import refuse_local
from everstep.adapters.shared import starting
from everstep.adapters.shared.plain import to_plain
from everstep.errors import InvalidArgument

_PREFIX = "openai-agents:"


class Call:
    """An agent and the options of one call of `run`."""

    def __init__(
        self, agent: Agent[Any], price: Price | None, options: dict[str, Any], sink: Callable[[Any], None] | None = None, *,
        name: str | None = None,
    ):  # fmt: skip
        if not isinstance(agent, Agent):
            raise InvalidArgument(f"agent must be an agents.Agent, got {agent!r:.60}")
        for option in ("session", "conversation_id", "previous_response_id", "auto_previous_response_id"):
            if options.get(option):
                raise InvalidArgument(
                    f"{option} can't be used in a durable run: a resume would send its messages twice",
                    remedy="Pass the earlier messages as input: result.to_input_list() + [message].",
                )
        unknown = set(options) - set(inspect.signature(Runner.run).parameters)
        if unknown:
            raise InvalidArgument(f"run has no option {sorted(unknown)[0]!r:.60}")
        if getattr(options.get("run_config"), "sandbox", None) is not None:
            raise InvalidArgument("a sandbox can't be used in a durable run: its actions are not recorded")
        for tool in [tool for one in reachable(agent) for tool in one.tools]:
            refuse_local(tool)
        self.agent, self.price, self.options, self.sink = agent, price, options, sink
        if name is not None and (not isinstance(name, str) or not name):
            raise InvalidArgument(f"name must be text that is not empty, got {name!r:.60}")
        self.name = name or agent.name


# The details of an error hold the agents and the whole conversation: a recorded error does without them.
_no_details: Any = lambda fields: None  # noqa: E731
everstep.register(RunErrorDetails, name="openai-agents:RunErrorDetails", encode=lambda details: {}, decode=_no_details)

_call: ContextVar[Call | None] = ContextVar("everstep.adapters.openai_agents.call", default=None)
_calls: dict[str, Call] = {}  # by the name of the workflow: what a resume by name uses
_flows: dict[str, Any] = {}


async def run(
    agent: Agent[Any], input: Any, *, id: str | None = None, store: Any = None, name: str | None = None, price: Price | None = None,
    **options: Any,
) -> Result:  # fmt: skip
    """Run an agent durably; return its `Result`. Run again with the same id and input, it resumes, or returns the recorded result.

    `store` is a store or its address; by default the configured one. `name` is the name of the agent in the store: give the old one after
    you have renamed it, and its runs continue. `price(response, model)` returns the cost of a response. Further options (context, max_turns,
    hooks, run_config, error_handlers) go to `Runner.run`. Inside a run of Everstep, the calls are steps of that run.
    """
    call = Call(agent, price, options, name=name)
    here = starting.current_run()
    if here is not None:
        starting.refuse_place(id, store)
        return Result(agent, await drive(call, here, check_input(input)))
    return await start(call, check_input(input), id, store)


def run_sync(agent: Agent[Any], input: Any, **options: Any) -> Result:
    """Do what `run` does, outside of an event loop."""
    return asyncio.run(run(agent, input, **options))


def workflow(agent: Agent[Any], *, name: str | None = None, price: Price | None = None, **options: Any) -> Any:
    """Make an agent a workflow, which takes the input: for `store.enqueue`, workers, and `everstep resume --import MODULE`.

    `run` uses the same workflow; its default name is `openai-agents:` and the name of the agent. The result of its runs is a dict.
    """
    title = name or f"{_PREFIX}{agent.name}"
    call = Call(agent, price, options, name=title.removeprefix(_PREFIX) if title.startswith(_PREFIX) else None)
    _calls[title] = call
    return _flow(title)


def _flow(title: str) -> Any:
    if title not in _flows:

        async def openai_agent(input: Any) -> Any:
            return await drive(_call.get() or _calls[title], everstep.current(), input)

        _flows[title] = everstep.workflow(openai_agent, name=title)
    return _flows[title]


async def start(call: Call, input: Any, id: str | None, store: Any) -> Result:
    """Start or resume the run of a call, in a store or at an address."""
    title = f"{_PREFIX}{call.name}"
    _calls.setdefault(title, call)
    token = _call.set(call)
    try:
        outcome = await starting.start(_flow(title), (input,), id, store)
    finally:
        _call.reset(token)
    return Result(call.agent, outcome.result, outcome)


async def drive(call: Call, run: Any, input: Any) -> dict[str, Any]:
    """Run the framework's loop in an open run until the agent has answered."""
    copies = Copies(scope := Scope(call.price), {id(call.agent): call.name})
    options = dict(call.options)
    config = options.pop("run_config", None) or RunConfig()
    options["run_config"] = copies.config(config)
    agent = copies.durable(call.agent)
    runner = framework_runner()
    token = inside.set(scope)
    try:
        result = await _run_once(runner, call, agent, input, options)
        while result.interruptions:
            result = await _run_once(runner, call, agent, await decided(run, result), options)
    finally:
        inside.reset(token)
        if config is not call.options.get("run_config"):
            await config.model_provider.aclose()
    return keep_result(result, copies.original)


async def _run_once(runner: agents.run.AgentRunner, call: Call, agent: Agent[Any], input: Any, options: dict[str, Any]) -> Any:
    if call.sink is None:
        return await runner.run(agent, input, **options)
    streamed = runner.run_streamed(agent, input, **options)
    async for event in streamed.stream_events():
        call.sink(event)
    return streamed


def check_input(given: Any) -> Any:
    if isinstance(given, str):
        return given
    if not isinstance(given, list):
        raise InvalidArgument(f"input must be text or a list of items, got {given!r:.60}")
    return [to_plain(item) for item in given]

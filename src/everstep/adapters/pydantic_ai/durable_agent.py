"""`durable(agent)`: an agent whose runs are durable.

The framework's own loop runs inside a workflow. A resume runs it again from its beginning, with the recorded results of all finished
calls, so it takes the same path. Where a tool call needs an approval, the workflow waits at a gate.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterable, AsyncIterator, Callable
from contextvars import ContextVar
from typing import Any

from pydantic import TypeAdapter
from pydantic_ai.agent import AbstractAgent
from pydantic_ai.messages import FinalResultEvent, ModelMessagesTypeAdapter, PartDeltaEvent, PartEndEvent, PartStartEvent, UserPromptPart

import everstep
from everstep.adapters.pydantic_ai.approvals import gates
from everstep.adapters.pydantic_ai.durability import Durability, Price, inside
from everstep.adapters.pydantic_ai.result import Result, keep_result
from everstep.adapters.shared import starting
from everstep.errors import InvalidArgument

_OF_THE_MODEL = (FinalResultEvent, PartDeltaEvent, PartEndEvent, PartStartEvent)
Sink = Callable[[Any], None]
_PROMPT = TypeAdapter(UserPromptPart)
_REFUSED = ("conversation", "deferred_tool_results", "run_id", "conversation_id", "event_stream_handler", "cancellation_token")
_call: ContextVar[tuple[dict[str, Any], Sink | None] | None] = ContextVar("everstep.adapters.pydantic_ai.call", default=None)
_agents: dict[str, DurableAgent] = {}
_flows: dict[str, Any] = {}


def durable(agent: AbstractAgent[Any, Any], *, name: str | None = None, store: Any = None, price: Price | None = None) -> DurableAgent:
    """Return a durable form of an agent: `await durable(agent).run("hi", id="order-7")`. The agent itself is not changed.

    `name` identifies it in the store, by default the agent's own name. `store` is a store or its address; by default the configured one.
    `price(response)` returns the cost of a response; by default that of the framework's price list.
    """
    return DurableAgent(agent, name, store, price)


class DurableAgent:
    """An agent whose model requests and tool calls are steps."""

    def __init__(self, agent: AbstractAgent[Any, Any], name: str | None, store: Any, price: Price | None):
        if not isinstance(agent, AbstractAgent):
            raise InvalidArgument(f"agent must be a pydantic_ai.Agent, got {agent!r:.60}")
        if not (name or agent.name):
            raise InvalidArgument(
                "a durable agent must have a name", remedy='Give one: Agent(..., name="clerk") or durable(agent, name="clerk").'
            )
        self.agent, self.name, self._store, self._price = agent, str(name or agent.name), store, price
        _agents[f"pydantic-ai:{self.name}"] = self

    @property
    def workflow(self) -> Any:
        """The workflow of this agent, which takes a prompt: for `store.enqueue`, workers, and `everstep resume --import MODULE`."""
        return _flow(f"pydantic-ai:{self.name}")

    async def run(
        self, user_prompt: Any = None, *, id: str | None = None, message_history: Any = None, store: Any = None, **options: Any
    ) -> Result:  # fmt: skip
        """Run the agent durably; return its `Result`. Run again with the same id and input, it resumes, or returns the recorded result.

        Further options (deps, model, model_settings, usage_limits, …) go to `Agent.run`. Inside a run of Everstep, the calls are steps of it.
        """
        self._check(options)
        here = starting.current_run()
        if here is not None:
            starting.refuse_place(id, store)
            return Result(self._output(options), await self._drive(here, user_prompt, message_history, options, None))
        return await self._start(_input(user_prompt, message_history), id, store, options, None)

    def run_sync(self, user_prompt: Any = None, **options: Any) -> Result:
        """Do what `run` does, outside of an event loop."""
        return asyncio.run(self.run(user_prompt, **options))

    def run_stream_events(
        self, user_prompt: Any = None, *, id: str | None = None, message_history: Any = None, store: Any = None, **options: Any
    ) -> Stream:  # fmt: skip
        """Run the agent durably and show its events: `async for event in agent.run_stream_events(...)`. The options are those of `run`."""
        self._check(options)
        stream = Stream()
        stream.watch(self._start(_input(user_prompt, message_history), id, store, options, stream.sink))
        return stream

    async def _start(self, input: tuple[Any, ...], id: str | None, store: Any, options: dict[str, Any], sink: Sink | None) -> Result:
        token = _call.set((options, sink))
        try:
            outcome = await starting.start(self.workflow, input, id, self._store if store is None else store)
        finally:
            _call.reset(token)
        return Result(self._output(options), outcome.result, outcome)

    async def drive(self, run: Any, prompt: Any, history: Any) -> dict[str, Any]:
        """Run the framework's loop in the workflow of this agent, with stored input."""
        options, sink = _call.get() or ({}, None)
        messages = None if history is None else ModelMessagesTypeAdapter.validate_python(history)
        return await self._drive(run, None if prompt is None else _as_prompt(prompt), messages, options, sink)

    async def _drive(self, run: Any, prompt: Any, history: Any, options: dict[str, Any], sink: Sink | None) -> dict[str, Any]:
        durability = Durability(self.name, f"{run.id}", self._price, sink)
        given = dict(options)
        given["capabilities"] = [*(given.get("capabilities") or ()), gates(self.name), durability]
        token = inside.set(asyncio.get_running_loop())
        try:
            result = await self.agent.run(
                prompt, message_history=history, event_stream_handler=None if sink is None else _shown(durability, sink), **given
            )
        finally:
            inside.reset(token)
        return keep_result(result, self._output(options))

    def _output(self, options: dict[str, Any]) -> Any:
        return options.get("output_type") or self.agent.output_type

    def _check(self, options: dict[str, Any]) -> None:
        for name in options:
            if name in _REFUSED:
                raise InvalidArgument(f"{name} can't be used in a durable run, because it is not recorded")
            if name not in inspect.signature(self.agent.run).parameters:
                raise InvalidArgument(f"run has no option {name!r:.60}")


class Stream(starting.Watched):
    """A durable run and its events, as `Agent.run_stream_events` gives them. Awaiting it waits for the `Result`.

    After a crash, the recorded part comes first, each text in one piece. For a run that had ended before, there are no events.
    """

    def __aiter__(self) -> AsyncIterator[Any]:
        return self.events()


def _flow(title: str) -> Any:
    if title not in _flows:

        async def pydantic_agent(prompt: Any = None, history: Any = None) -> Any:
            return await _agents[title].drive(everstep.current(), prompt, history)

        _flows[title] = everstep.workflow(pydantic_agent, name=title)
    return _flows[title]


def _shown(durability: Durability, sink: Sink) -> Any:
    async def handle(context: Any, events: AsyncIterable[Any]) -> None:
        async for event in events:
            if not (durability.shown[0] and isinstance(event, _OF_THE_MODEL)):
                sink(event)

    return handle


def _input(prompt: Any, history: Any) -> tuple[Any, ...]:
    """Return the input of the workflow, as plain data."""
    try:
        stored = (
            prompt if prompt is None or isinstance(prompt, str) else _PROMPT.dump_python(UserPromptPart(prompt), mode="json")["content"]
        )
        messages = None if history is None else ModelMessagesTypeAdapter.dump_python(list(history), mode="json", warnings="none")
        _as_prompt(stored or "")
        ModelMessagesTypeAdapter.validate_python(messages or [])
    except Exception as error:
        raise InvalidArgument(f"the prompt must be text or a list of contents, and message_history a list of messages: {error}") from error
    return (stored,) if messages is None else (stored, messages)


def _as_prompt(stored: Any) -> Any:
    return _PROMPT.validate_python({"content": stored, "part_kind": "user-prompt"}).content

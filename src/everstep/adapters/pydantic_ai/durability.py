"""The capability that makes the requests and tool calls of a run steps, on the framework's own extension point for durable execution.

Results are kept as JSON by the framework's codec. The first attempt decodes them as a resume does, so both see the same values.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterable, Awaitable, Callable
from contextvars import ContextVar
from typing import Any, ClassVar

from pydantic import TypeAdapter
from pydantic_ai.durable_exec import (
    JSON_CODEC,
    BaseDurabilityCapability,
    CallableOperationBackend,
    DurabilityEngineSpec,
    JournalOperationNamer,
    ModelCompactMessagesId,
    ModelRequestId,
    RoleBasedOperationConfig,
    ToolsetCallToolId,
    conversation_id_from_run_id,
)
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.usage import RunUsage

import everstep
from everstep.adapters.shared.plain import key_of, name_of, to_text

Price = Callable[[ModelResponse], float]
Body = Callable[[], Awaitable[Any]]
inside: ContextVar[asyncio.AbstractEventLoop | None] = ContextVar("everstep.adapters.pydantic_ai.inside", default=None)
_SPENT = "everstep.usage"
_USAGE = TypeAdapter(RunUsage)
_COMPARED = ("part_kind", "content", "tool_name", "args", "tool_call_id")
_NO_CONFIG = RoleBasedOperationConfig[None](model=None, event=None, capability=None, tool=None)


@everstep.step(kind="llm", ignore=("body",))
async def _ask(messages: Any, body: Body) -> Any:
    return await body()


@everstep.step(kind="tool", ignore=("body",))
async def _use(arguments: Any, body: Body) -> Any:
    return await body()


@everstep.step(ignore=("body",))
async def _do(body: Body) -> Any:
    return await body()


class Durability(BaseDurabilityCapability[Any]):
    """Makes one run of an agent durable. `sink` gets the events of the model while it answers."""

    engine_spec: ClassVar = DurabilityEngineSpec(
        engine_name="Everstep",
        durable_unit_noun="step",
        durable_container_noun="run",
        codec=JSON_CODEC,
        serialization_failure=lambda error: UserError(f"Everstep can't keep the result of a step as JSON: {error}"),
        toolset_lifecycles={"function": "enter-always", "mcp": "enter-in-durable-unit", "dynamic": "enter-never"},
    )

    def __init__(self, name: str, run_id: str, price: Price | None = None, sink: Callable[[Any], None] | None = None):
        super().__init__(name=name)
        self.price, self.sink, self._run_id = price, sink, run_id
        self.shown = [False]  # whether the events of the newest response were shown while it came; shared with the bound copy

    @property
    def in_durable_context(self) -> bool:
        loop = inside.get()
        return loop is not None and loop is asyncio.get_running_loop()

    def get_durable_operation_backend(self) -> Steps:
        return Steps(self)

    def get_default_run_id(self) -> str | None:
        return self._run_id

    def get_default_conversation_id(self, run_id: str) -> str | None:
        return conversation_id_from_run_id(run_id)

    def _model_stream_event_handler(self) -> Any:
        if self.sink is None:
            return None

        async def show(context: Any, stream: AsyncIterable[Any]) -> None:
            assert self.sink is not None
            self.shown[0] = True
            async for event in stream:
                self.sink(event)

        return show


class Names(JournalOperationNamer):
    """Names for people: a request has the name of its agent, a tool call that of its tool."""

    def __init__(self, agent: str):
        super().__init__(agent)
        self._agent = agent

    def operation_name(self, operation_id: Any) -> str:
        if isinstance(operation_id, ModelRequestId):  # streamed or not: the result is the same
            return self._agent
        return super().operation_name(operation_id)


class Steps(CallableOperationBackend[None]):
    """Runs each operation of the framework as a step."""

    def __init__(self, owner: Durability):
        super().__init__(namer=Names(owner.name), config=_NO_CONFIG)
        self._owner = owner

    async def execute(self, *, operation_id: Any, name: str, body: Body, cache_key: tuple[object, ...], config: None) -> object:
        run = everstep.current()
        if isinstance(operation_id, (ModelRequestId, ModelCompactMessagesId)):
            return await self._request(run, operation_id, name, body, cache_key)
        if isinstance(operation_id, ToolsetCallToolId):
            return await self._call(run, str(cache_key[0]), cache_key[1], cache_key[2], body)
        return await run.step(name_of(name, "step"), _do, body)

    async def _call(self, run: Any, tool: str, arguments: Any, context: Any, body: Body) -> object:
        """Run a tool call as a step. Its record has the usage that the tool adds to that of the run, by other agents that it runs."""
        total: RunUsage = context.usage
        before = copy.copy(total)

        async def counted() -> Any:
            context.usage = copy.copy(before)  # of this call alone: others run at the same time
            payload = await body()
            spent = context.usage - before
            return {**payload, _SPENT: _USAGE.dump_python(spent, mode="json")} if spent.has_values() else payload

        key = key_of(context.run_step, f"{context.tool_call_id}.{context.retry}")
        payload = dict(await run.step(name_of(tool, "tool"), _use, to_text(arguments), counted, key=key))
        if spent := payload.pop(_SPENT, None):
            total.incr(_USAGE.validate_python(spent))
        return payload

    async def _request(self, run: Any, operation_id: Any, name: str, body: Body, cache_key: tuple[object, ...]) -> object:
        messages = compared(cache_key[1]) if isinstance(operation_id, ModelRequestId) else None
        self._owner.shown[0] = False

        async def counted() -> Any:
            payload = await body()
            response = JSON_CODEC.load(ModelResponse, payload)
            everstep.current().usage(tokens=response.usage.total_tokens, cost=self._cost(response))
            return payload

        return await run.step(name_of(name, "model"), _ask, messages, counted)

    def _cost(self, response: ModelResponse) -> float:
        if self._owner.price is not None:
            return float(self._owner.price(response))
        try:
            return float(response.cost().total_price)
        except (LookupError, ValueError, AssertionError):  # a model whose price is not known
            return 0.0


def compared(messages: Any) -> list[Any]:
    """Return the part of a request that a resume compares: who said what, without times, ids and instructions."""
    listed: list[ModelMessage] = list(messages)
    return [[message.kind, *(_part(part) for part in message.parts)] for message in listed]


def _part(part: Any) -> dict[str, str]:
    return {name: to_text(getattr(part, name)) for name in _COMPARED if hasattr(part, name)}

"""A model whose calls are steps, and the provider that gives it. A recorded response is not asked for again, nor streamed in pieces again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from agents import Model, ModelBehaviorError, ModelProvider, ModelResponse
from agents.usage import Usage
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseOutputItemDoneEvent,
    ResponseTextDeltaEvent,
    ResponseUsage,
)

import everstep
from everstep.adapters.openai_agents.scope import Scope
from everstep.adapters.openai_agents.values import compared, give_response, keep_response
from everstep.adapters.shared.plain import name_of

_FAILED = {"response.incomplete", "response.failed", "error", "response.error"}


@everstep.step(kind="llm", ignore=("call",))
async def _ask(input: Any, call: Callable[[], Awaitable[Any]]) -> Any:
    return await call()


class StepModel(Model):
    """A model whose calls are steps of the run that makes them, with the name of the agent that calls."""

    def __init__(self, model: Model, scope: Scope, title: str = ""):
        self.model = model
        self._scope = scope
        self._title = title

    async def get_response(self, system_instructions: Any, input: Any, *args: Any, **kwargs: Any) -> ModelResponse:
        """Ask the model, or return its recorded response."""
        run = self._scope.here()
        if run is None:
            return await self.model.get_response(system_instructions, input, *args, **kwargs)

        async def call() -> Any:
            return self._counted(await self.model.get_response(system_instructions, input, *args, **kwargs))

        response = give_response(await run.step(name_of(self._scope.agent, "model"), _ask, compared(input), call))
        self._scope.responded(response)
        return response

    async def stream_response(self, system_instructions: Any, input: Any, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        """Stream the model's response while it is made a step. The last event comes when the response is recorded.

        A recorded response comes as one piece for each part.
        """
        run = self._scope.here()
        if run is None:
            async for event in self.model.stream_response(system_instructions, input, *args, **kwargs):
                yield event
            return
        live: asyncio.Queue[Any] = asyncio.Queue()
        last: list[Any] = []

        async def call() -> Any:
            response = await _received(self.model.stream_response(system_instructions, input, *args, **kwargs), live, last)
            return self._counted(response)

        step = asyncio.ensure_future(run.step(name_of(self._scope.agent, "model"), _ask, compared(input), call))
        step.add_done_callback(lambda _: live.put_nowait(None))
        try:
            while (event := await live.get()) is not None:
                yield event
            response = give_response(await step)
        finally:
            if not step.done():
                step.cancel()
                await asyncio.wait([step])
        self._scope.responded(response)
        for event in last or _as_events(response):
            yield event

    def _counted(self, response: ModelResponse) -> dict[str, Any]:
        price = self._scope.price
        cost = price(response, self._title) if price is not None else 0.0
        everstep.current().usage(tokens=response.usage.total_tokens, cost=cost)
        return keep_response(response)

    def get_retry_advice(self, request: Any) -> Any:
        return self.model.get_retry_advice(request)

    async def close(self) -> None:
        await self.model.close()


async def _received(stream: AsyncIterator[Any], live: asyncio.Queue[Any], last: list[Any]) -> ModelResponse:
    """Pass on the events of a stream, and return the whole response. The event that ends it goes to `last`."""
    items: list[Any] = []
    done: Response | None = None
    async for event in stream:
        if isinstance(event, ResponseCompletedEvent):
            done = event.response
            last.append(event)
            continue
        if getattr(event, "type", None) in _FAILED:
            said = getattr(getattr(event, "response", None), "error", None) or getattr(event, "message", None) or ""
            raise ModelBehaviorError(f"Responses stream ended with terminal event `{event.type}`. {said}".strip())
        if isinstance(event, ResponseOutputItemDoneEvent):
            items.append(event.item)
        live.put_nowait(event)
    if done is None:
        raise ModelBehaviorError("Model did not produce a final response!")
    return ModelResponse(
        output=done.output or items, usage=_usage(done.usage), response_id=done.id, request_id=getattr(done, "_request_id", None)
    )


def _usage(said: ResponseUsage | None) -> Usage:
    if said is None:
        return Usage(requests=1)
    return Usage(
        requests=1,
        input_tokens=said.input_tokens,
        output_tokens=said.output_tokens,
        total_tokens=said.total_tokens,
        input_tokens_details=said.input_tokens_details,
        output_tokens_details=said.output_tokens_details,
    )


def _as_events(response: ModelResponse) -> list[Any]:
    """Return the events of a recorded response: the text of each part in one piece, then its end."""
    events: list[Any] = []
    for index, item in enumerate(response.output):
        parts: list[Any] = list(getattr(item, "content", None) or ()) if getattr(item, "type", None) == "message" else []
        for number, part in enumerate(parts):
            place: dict[str, Any] = {"output_index": index, "content_index": number, "item_id": getattr(item, "id", None) or ""}
            if text := getattr(part, "text", None):
                delta = {"type": "response.output_text.delta", "delta": text, "logprobs": [], "sequence_number": len(events)}
                events.append(ResponseTextDeltaEvent.model_validate(delta | place))
        ended: dict[str, Any] = {"type": "response.output_item.done", "item": item, "output_index": index, "sequence_number": len(events)}
        events.append(ResponseOutputItemDoneEvent.construct(**ended))
    whole = Response.construct(
        id=response.response_id or "", created_at=time.time(), model="", object="response", output=response.output,
        parallel_tool_calls=False, tool_choice="auto", tools=[], usage=_as_said(response.usage),
    )  # fmt: skip
    events.append(ResponseCompletedEvent.construct(type="response.completed", response=whole, sequence_number=len(events)))
    return events


def _as_said(usage: Usage) -> ResponseUsage:
    return ResponseUsage(
        input_tokens=usage.input_tokens, output_tokens=usage.output_tokens, total_tokens=usage.total_tokens,
        input_tokens_details=usage.input_tokens_details, output_tokens_details=usage.output_tokens_details,
    )  # fmt: skip


class StepProvider(ModelProvider):
    """A provider whose models are `StepModel`s."""

    def __init__(self, provider: ModelProvider, scope: Scope):
        self.provider = provider
        self._scope = scope

    def get_model(self, model_name: str | None) -> Model:
        return step_model(self.provider.get_model(model_name), self._scope, model_name or "")

    async def aclose(self) -> None:
        await self.provider.aclose()


def step_model(model: Model, scope: Scope, title: str = "") -> StepModel:
    """Return a model whose calls are steps in this scope, also if they already were steps in another one."""
    plain = model.model if isinstance(model, StepModel) else model
    return StepModel(plain, scope, title or str(getattr(plain, "model", "") or ""))

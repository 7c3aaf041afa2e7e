"""Tools, handoffs and guardrails whose calls are steps. Each is a copy: the agent that the program has made is not changed."""

from __future__ import annotations

import copy
import inspect
import weakref
from collections.abc import Awaitable, Callable
from typing import Any

from agents import (
    Agent,
    ApplyPatchTool,
    ComputerTool,
    CustomTool,
    FunctionTool,
    GuardrailFunctionOutput,
    LocalShellTool,
    ShellTool,
    ToolGuardrailFunctionOutput,
)
from agents.tool import invoke_function_tool
from agents.usage import deserialize_usage, serialize_usage

import everstep
from everstep.adapters.openai_agents.scope import Scope, Spent, spending
from everstep.adapters.openai_agents.values import SPENT, give_output, keep_output
from everstep.adapters.shared.plain import key_of, name_of, to_plain
from everstep.errors import InvalidArgument

_LOCAL = (ApplyPatchTool, ComputerTool, CustomTool, LocalShellTool)


@everstep.step(kind="tool", ignore=("call",))
async def _use(arguments: str, call: Callable[[], Awaitable[Any]]) -> Any:
    return await call()


@everstep.step(kind="handoff", ignore=("call",))
async def _hand_off(arguments: str, call: Callable[[], Awaitable[Any]]) -> Any:
    return await call()


@everstep.step(kind="guardrail", ignore=("call",))
async def _check(call: Callable[[], Awaitable[Any]]) -> Any:
    return await call()


def refuse_local(tool: Any) -> None:
    """Refuse a tool that runs in this process, but not as a function."""
    if isinstance(tool, _LOCAL) or (isinstance(tool, ShellTool) and tool.executor is not None):
        raise InvalidArgument(
            f"{type(tool).__name__} can't be used in a durable run: its calls are not steps, so a resume would make them again",
            remedy="Make it a function tool (@function_tool), or run the agent without everstep.",
        )


def step_tool(tool: Any, scope: Scope) -> Any:
    """Return a function tool whose calls are steps; a tool that the model's provider runs as it is. Any other one is refused."""
    if not isinstance(tool, FunctionTool):
        refuse_local(tool)
        return tool
    wrapped = copy.copy(tool)
    wrapped.timeout_seconds = None  # its timeout is kept inside of the step: a resume must not wait for it again
    for name in ("tool_input_guardrails", "tool_output_guardrails"):
        setattr(wrapped, name, [step_tool_guardrail(each, scope) for each in getattr(tool, name) or ()] or getattr(tool, name))

    async def invoke(context: Any, arguments: str) -> Any:
        async def use() -> Any:
            if tool.timeout_seconds is None:
                return await tool.on_invoke_tool(context, arguments)
            return await invoke_function_tool(function_tool=tool, context=context, arguments=arguments)

        spent, live = Spent(context.usage), False

        async def call() -> Any:
            nonlocal live
            live = True
            token = spending.set(spent)
            try:
                output = keep_output(await use())
            finally:
                spending.reset(token)
            return {SPENT: serialize_usage(spent.usage), "output": output} if spent.usage.requests else output

        run = scope.here()
        if run is None:
            return await use()
        call_id = str(getattr(context, "tool_call_id", ""))
        key = key_of(scope.turns.get(call_id, 0), call_id)
        kept = await run.step(name_of(tool.name, "tool"), _use, arguments, call, key=key)
        if type(kept) is dict and SPENT in kept:
            usage, kept = deserialize_usage(kept[SPENT]), kept["output"]
            scope.spend(usage)
            if not live:
                context.usage.add(usage)
        return give_output(kept)

    wrapped.on_invoke_tool = invoke
    return wrapped


def step_handoff(handoff: Any, scope: Scope, durable: Callable[[Any], Any]) -> Any:
    """Return a handoff that is a step: what it calls is called once. `durable` returns the durable copy of the agent it leads to."""
    wrapped = copy.copy(handoff)
    reference = getattr(handoff, "_agent_ref", None)
    target = reference() if reference is not None else None
    if target is not None:
        wrapped._agent_ref = weakref.ref(durable(target))

    async def invoke(context: Any, arguments: str) -> Any:
        run = scope.here()
        if run is None or target is None:  # a handoff of one's own chooses the agent when it is called: there is nothing to record
            return durable(await handoff.on_invoke_handoff(context, arguments))

        async def call() -> str:
            return str((await handoff.on_invoke_handoff(context, arguments)).name)

        await run.step(name_of(handoff.tool_name, "handoff"), _hand_off, arguments or "", call)
        return durable(target)

    wrapped.on_invoke_handoff = invoke
    return wrapped


def step_guardrail(guardrail: Any, scope: Scope, public: Callable[[Any], Any]) -> Any:
    """Return a guardrail of an agent that is a step. `public` returns the agent that the program knows."""

    async def function(context: Any, agent: Agent[Any], checked: Any) -> GuardrailFunctionOutput:
        async def call() -> Any:
            output = await _called(guardrail.guardrail_function, context, public(agent), checked)
            return {"info": to_plain(output.output_info), "tripwire": bool(output.tripwire_triggered)}

        kept = await _recorded(scope, guardrail.get_name(), call)
        return GuardrailFunctionOutput(output_info=kept["info"], tripwire_triggered=kept["tripwire"])

    wrapped = copy.copy(guardrail)
    wrapped.guardrail_function, wrapped.name = function, guardrail.get_name()
    return wrapped


def step_tool_guardrail(guardrail: Any, scope: Scope) -> Any:
    """Return a guardrail of a tool that is a step."""

    async def function(data: Any) -> ToolGuardrailFunctionOutput:
        async def call() -> Any:
            output = await _called(guardrail.guardrail_function, data)
            return {"info": to_plain(output.output_info), "behavior": dict(output.behavior)}

        kept = await _recorded(scope, guardrail.get_name(), call)
        return ToolGuardrailFunctionOutput(output_info=kept["info"], behavior=kept["behavior"])

    wrapped = copy.copy(guardrail)
    wrapped.guardrail_function, wrapped.name = function, guardrail.get_name()
    return wrapped


async def _recorded(scope: Scope, name: str, call: Callable[[], Awaitable[Any]]) -> Any:
    run = scope.here()
    return await call() if run is None else await run.step(name_of(name, "guardrail"), _check, call)


async def _called(function: Any, *args: Any) -> Any:
    output = function(*args)
    return await output if inspect.isawaitable(output) else output

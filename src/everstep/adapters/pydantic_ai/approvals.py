"""Approvals and calls that are made elsewhere: each is a gate. `everstep answer RUN GATE yes` answers it, in any process."""

from __future__ import annotations

import asyncio
from typing import Any

from pydantic_ai.capabilities import HandleDeferredToolCalls
from pydantic_ai.tools import DeferredToolRequests, DeferredToolResults, ToolApproved, ToolDenied

import everstep
from everstep.adapters.shared.approvals import ANSWERS, read_answer
from everstep.adapters.shared.plain import name_of, to_text


def gates(agent: str) -> HandleDeferredToolCalls[Any]:
    """Return the capability that asks at gates."""

    async def ask(context: Any, requests: DeferredToolRequests) -> DeferredToolResults:
        run = everstep.current()
        asked = [
            run.gate(name_of(f"approve-{call.tool_name}", "approve"), f"Let {agent} call {_shown(call)}?", schema=ANSWERS)
            for call in requests.approvals
        ]
        wanted = [run.gate(name_of(f"call-{call.tool_name}", "call"), f"Give the result of {_shown(call)}") for call in requests.calls]
        answers = await asyncio.gather(*asked, *wanted)
        results = DeferredToolResults()
        for call, said in zip(requests.approvals, answers, strict=False):
            approved, reason, _ = read_answer(said)
            denied = ToolDenied(f"refused by a person: {reason}" if reason else "refused by a person")
            results.approvals[call.tool_call_id] = ToolApproved() if approved else denied
        for call, result in zip(requests.calls, answers[len(asked) :], strict=True):
            results.calls[call.tool_call_id] = result
        return results

    return HandleDeferredToolCalls(handler=ask)


def _shown(call: Any) -> str:
    return f"{call.tool_name}({to_text(call.args or '')[:500]})"

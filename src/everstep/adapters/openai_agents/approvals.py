"""Approvals: each tool call that needs one is a gate. `everstep answer RUN GATE yes` answers it, in any process."""

from __future__ import annotations

import asyncio
from typing import Any

from everstep.adapters.shared.approvals import ANSWERS, read_answer
from everstep.adapters.shared.plain import name_of


async def decided(run: Any, result: Any) -> Any:
    """Ask for all approvals that a result waits for, all at once; return the state that continues with the answers."""
    items = list(result.interruptions)
    answers = await asyncio.gather(*(run.gate(_name(item), _question(item), schema=ANSWERS) for item in items))
    state = result.to_state()
    for item, said in zip(items, answers, strict=True):
        answer, reason, always = read_answer(said)
        if answer:
            state.approve(item, always_approve=always)
        else:
            state.reject(item, always_reject=always, rejection_message=f"refused by a person: {reason}" if reason else None)
    return state


def _name(item: Any) -> str:
    return name_of(f"approve-{item.tool_name or 'tool'}", "approve")


def _question(item: Any) -> str:
    arguments = getattr(item, "arguments", None) or ""
    return f"Let {item.agent.name} call {item.tool_name}({str(arguments)[:500]})?"

"""Gates return what their schema or their choices say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, assert_type

import everstep


@dataclass
class Decision:
    approved: bool
    comment: str = ""


@everstep.workflow
def publish(text: str) -> str:
    decision = everstep.gate("editor", "Publish?", schema=Decision, timeout="2d", default=None)
    assert_type(decision, Decision | None)
    if everstep.gate("legal", choices=["yes", "no"]) == "yes" and decision is not None and decision.approved:
        return text
    run = everstep.current()
    assert_type(run.gate("boss", schema=Decision), Decision)
    assert_type(run.gate("level", choices=[1, 2, 3]), int)
    anything: Any = run.gate("anything", "What now?")
    return str(anything)


def answer(store: everstep.Store) -> None:
    for gate in store.gates("p1"):
        if gate.open:
            store.answer("p1", gate.name, {"approved": True}, by="eva")

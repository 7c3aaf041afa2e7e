"""Everstep: the memory that long-running agents and workflows can't lose."""

from typing import TYPE_CHECKING, Any

from everstep.api import Store, open
from everstep.codec.kinds import Unknown, register
from everstep.errors import EverstepError, NonDeterminism, StepFailed
from everstep.snapshot.diff import Change
from everstep.store.model import Checkpoint, RunInfo

if TYPE_CHECKING:
    from everstep.runtime.agent import AgentLoop
    from everstep.runtime.agent_state import AgentState
    from everstep.runtime.budget import Budget
    from everstep.runtime.context import current
    from everstep.runtime.decision import Action, Decision
    from everstep.runtime.gates import gate, sleep
    from everstep.runtime.outcome import Outcome
    from everstep.runtime.policy import every, manual, off, on
    from everstep.runtime.retry import Retry
    from everstep.runtime.run import Run
    from everstep.runtime.step_options import step
    from everstep.runtime.workflow import workflow

__version__ = "0.1.0"
__all__ = [
    "Action",
    "AgentLoop",
    "AgentState",
    "Budget",
    "Change",
    "Checkpoint",
    "Decision",
    "EverstepError",
    "NonDeterminism",
    "Outcome",
    "Retry",
    "Run",
    "RunInfo",
    "StepFailed",
    "Store",
    "Unknown",
    "current",
    "every",
    "gate",
    "manual",
    "off",
    "on",
    "open",
    "register",
    "sleep",
    "step",
    "workflow",
]
_LATER = {
    "Action": "decision",
    "AgentLoop": "agent",
    "AgentState": "agent_state",
    "Budget": "budget",
    "Decision": "decision",
    "Outcome": "outcome",
    "Retry": "retry",
    "Run": "run",
    "current": "context",
    "every": "policy",
    "gate": "gates",
    "manual": "policy",
    "off": "policy",
    "on": "policy",
    "sleep": "gates",
    "step": "step_options",
    "workflow": "workflow",
}


def __getattr__(name: str) -> Any:
    """What only some programs use is imported when they do."""
    if name not in _LATER:
        raise AttributeError(f"module 'everstep' has no attribute {name!r}")
    from importlib import import_module

    found = globals()[name] = getattr(import_module(f"everstep.runtime.{_LATER[name]}"), name)
    return found

"""Everstep: durable execution and time travel for Python agents and workflows."""

import sys
from typing import TYPE_CHECKING, Any

if sys.platform == "win32":
    raise ImportError("Everstep does not support Windows: use it inside WSL (https://learn.microsoft.com/windows/wsl)")

if TYPE_CHECKING:
    from everstep.agents.decision import Action, Decision
    from everstep.agents.loop import AgentLoop
    from everstep.agents.state import AgentState
    from everstep.api import Store, open
    from everstep.async_store import AsyncStore
    from everstep.codec.kinds import Unknown, register
    from everstep.codec.opaque import Opaque
    from everstep.errors import EverstepError, NonDeterminism, StepFailed, Waiting
    from everstep.ids import quote, unquote
    from everstep.redact import Redactor
    from everstep.runtime.aio import AsyncRun
    from everstep.runtime.drivers import drives
    from everstep.runtime.engine.context import current
    from everstep.runtime.limits.budget import Budget
    from everstep.runtime.limits.policy import every, manual, off, on
    from everstep.runtime.outcome import Outcome
    from everstep.runtime.run import Run
    from everstep.runtime.steps.options import step
    from everstep.runtime.steps.retry import Retry
    from everstep.runtime.waits.gates import gate, sleep
    from everstep.runtime.workflow import workflow
    from everstep.secret import Secret
    from everstep.snapshot.diff import Change
    from everstep.store.encryption.encrypt import encrypt
    from everstep.store.repair.repair import repair
    from everstep.store.retention.retention import Retention
    from everstep.store.views import Checkpoint, RunInfo

__version__ = "0.1.0"
__all__ = [
    "Action",
    "AgentLoop",
    "AgentState",
    "AsyncRun",
    "AsyncStore",
    "Budget",
    "Change",
    "Checkpoint",
    "Decision",
    "EverstepError",
    "NonDeterminism",
    "Opaque",
    "Outcome",
    "Redactor",
    "Retention",
    "Retry",
    "Run",
    "RunInfo",
    "Secret",
    "StepFailed",
    "Store",
    "Unknown",
    "Waiting",
    "current",
    "drives",
    "encrypt",
    "every",
    "gate",
    "manual",
    "off",
    "on",
    "open",
    "quote",
    "register",
    "repair",
    "sleep",
    "step",
    "unquote",
    "workflow",
]
_WHERE = {
    "Action": "agents.decision",
    "AgentLoop": "agents.loop",
    "AgentState": "agents.state",
    "AsyncRun": "runtime.aio",
    "AsyncStore": "async_store",
    "Budget": "runtime.limits.budget",
    "Change": "snapshot.diff",
    "Checkpoint": "store.views",
    "Decision": "agents.decision",
    "EverstepError": "errors",
    "NonDeterminism": "errors",
    "Opaque": "codec.opaque",
    "Outcome": "runtime.outcome",
    "Redactor": "redact",
    "Retention": "store.retention.retention",
    "Retry": "runtime.steps.retry",
    "Run": "runtime.run",
    "RunInfo": "store.views",
    "Secret": "secret",
    "StepFailed": "errors",
    "Store": "api",
    "Unknown": "codec.kinds",
    "Waiting": "errors",
    "current": "runtime.engine.context",
    "drives": "runtime.drivers",
    "encrypt": "store.encryption.encrypt",
    "every": "runtime.limits.policy",
    "gate": "runtime.waits.gates",
    "manual": "runtime.limits.policy",
    "off": "runtime.limits.policy",
    "on": "runtime.limits.policy",
    "open": "api",
    "quote": "ids",
    "register": "codec.kinds",
    "repair": "store.repair.repair",
    "sleep": "runtime.waits.gates",
    "step": "api",
    "unquote": "ids",
    "workflow": "runtime.workflow",
}


def __getattr__(name: str) -> Any:
    """Import a public name on first use: the command line and most programs need only a few of them."""
    if name not in _WHERE:
        raise AttributeError(f"module 'everstep' has no attribute {name!r}")
    from importlib import import_module

    found = globals()[name] = getattr(import_module(f"everstep.{_WHERE[name]}"), name)
    return found


def __dir__() -> list[str]:
    return [*__all__, "__version__"]

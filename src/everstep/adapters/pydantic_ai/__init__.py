"""Pydantic AI: durable runs of an agent, and a store for the steps that its harness records.

`durable(agent)` makes every model request and tool call a step, and every approval a gate. Relies on the public names of Everstep, and on the
extension point of pydantic-ai for durable execution (the extra `pydantic-ai`). Never calls a model or a tool by itself.
"""

from typing import TYPE_CHECKING, Any

try:
    from everstep.adapters.pydantic_ai.durable_agent import DurableAgent, Stream, durable
    from everstep.adapters.pydantic_ai.result import Result
except ImportError as error:  # not installed, or another version
    wanted = "pydantic-ai-slim 2.62 to 2.66"
    raise ImportError(f"everstep.adapters.pydantic_ai needs {wanted}: pip install 'everstep[pydantic-ai]' ({error})") from error

if TYPE_CHECKING:
    from everstep.adapters.pydantic_ai.step_store import StepStore

__all__ = ["DurableAgent", "Result", "StepStore", "Stream", "durable"]


def __getattr__(name: str) -> Any:
    """Import `StepStore` on first use: only it needs the harness."""
    if name != "StepStore":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from everstep.adapters.pydantic_ai.step_store import StepStore

    return StepStore

"""Pydantic AI: durable runs of an agent.

`durable(agent)` makes every model request and tool call a step, and every approval a gate. Relies on the public names of Everstep, and on the
extension point of pydantic-ai for durable execution (the extra `pydantic-ai`). Never calls a model or a tool by itself.
"""

try:
    import pydantic_ai.durable_exec as _durable_exec
except ImportError as error:
    raise ImportError("everstep.adapters.pydantic_ai needs pydantic-ai-slim 2.62 or newer: pip install 'everstep[pydantic-ai]'") from error

from everstep.adapters.pydantic_ai.durable_agent import DurableAgent, Stream, durable
from everstep.adapters.pydantic_ai.result import Result

__all__ = ["DurableAgent", "Result", "Stream", "durable"]
del _durable_exec

"""OpenAI Agents: durable runs of an agent, and durable sessions.

`run`, `run_sync` and `run_streamed` make every model call, tool call, handoff and guardrail a step, and every approval a gate. Relies on the
public names of Everstep, and on openai-agents (the extra `openai-agents`). Never calls a model or a tool by itself.
"""

try:
    from everstep.adapters.openai_agents.result import Result
    from everstep.adapters.openai_agents.running import run, run_sync, workflow
    from everstep.adapters.openai_agents.session import Session, Turn
    from everstep.adapters.openai_agents.streaming import Stream, run_streamed
except ImportError as error:  # not installed, another version, or another package that is named agents
    raise ImportError(
        f"everstep.adapters.openai_agents needs openai-agents 0.24: pip install 'everstep[openai-agents]' ({error})"
    ) from error

__all__ = ["Result", "Session", "Stream", "Turn", "run", "run_streamed", "run_sync", "workflow"]

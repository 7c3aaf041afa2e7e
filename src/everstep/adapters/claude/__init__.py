"""Claude Agent SDK: `ClaudeAgentOptions(session_store=SessionStore())` keeps sessions in an Everstep store.

`durable(options, id=…)` also makes permissions questions that people answer with `everstep answer`; `resume(options)` lets `everstep resume` and
workers continue sessions. Relies on the public names of Everstep, and on claude-agent-sdk (the extra `claude`).
"""

try:
    from everstep.adapters.claude.approvals import Approvals
    from everstep.adapters.claude.options import durable, resume
    from everstep.adapters.claude.session_store import SessionStore
except ImportError as error:  # not installed, or another version
    raise ImportError(f"everstep.adapters.claude needs claude-agent-sdk 0.2.182: pip install 'everstep[claude]' ({error})") from error

__all__ = ["Approvals", "SessionStore", "durable", "resume"]

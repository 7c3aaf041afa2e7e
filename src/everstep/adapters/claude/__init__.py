"""Claude Agent SDK: `ClaudeAgentOptions(session_store=SessionStore())` keeps sessions in an Everstep store.

Relies on the public names of Everstep, and on claude-agent-sdk (the extra `claude`). Never starts the `claude` program by itself.
"""

try:
    from everstep.adapters.claude.session_store import SessionStore
except ImportError as error:  # not installed, or another version
    raise ImportError(f"everstep.adapters.claude needs claude-agent-sdk 0.2.182: pip install 'everstep[claude]' ({error})") from error

__all__ = ["SessionStore"]

"""Google ADK: durable sessions. `Runner(agent=agent, app_name="shop", session_service=SessionService())`.

`SessionService` keeps sessions, their events, and the `app:` and `user:` state in an Everstep store; `resume(runner)` lets `everstep resume` and
workers continue sessions. Relies on the public names of Everstep, and on
google-adk (the extra `adk`). Never calls a model or a tool by itself.
"""

try:
    from everstep.adapters.adk.driver import resume
    from everstep.adapters.adk.service import SessionService
except ImportError as error:  # not installed, or another version
    raise ImportError(f"everstep.adapters.adk needs google-adk 2.13: pip install 'everstep[adk]' ({error})") from error

__all__ = ["SessionService", "resume"]

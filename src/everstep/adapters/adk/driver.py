"""Continues sessions from outside of the program that runs the agent: `everstep resume --import app RUN`, `store.wake`, workers.

The driver holds the lease of the session's run while the agent runs; the service saves through it. It sends the answers that have come to what
the session waits for, or continues the invocation that a killed process has left.
"""

from __future__ import annotations

from typing import Any

from google.adk.events.event import Event
from google.adk.runners import Runner
from google.adk.sessions.session import Session

import everstep
from everstep.adapters.adk.runs import label_of, place_of
from everstep.adapters.adk.service import SessionService
from everstep.errors import InvalidArgument, NotFound


def resume(runner: Runner) -> Runner:
    """Let `everstep resume`, `store.wake` and workers of this process continue the sessions of a runner's app; return the runner."""
    service = getattr(runner, "session_service", None)
    if not isinstance(runner, Runner) or not isinstance(service, SessionService):
        found = type(service).__name__ if isinstance(runner, Runner) else type(runner).__name__
        raise InvalidArgument(
            f"resume needs a Runner with Everstep's SessionService, got {found}",
            remedy="runner = Runner(..., session_service=SessionService()); resume(runner)",
        )

    async def drive(run: Any) -> Any:
        place = place_of(run.id)
        if place is None or place.app != runner.app_name:
            raise InvalidArgument(f"run {run.id!r} is not a session of the app {runner.app_name!r}")
        return await _continued(runner, service, user_id=place.user, session_id=place.session)

    everstep.drives(label_of(runner.app_name), drive)
    return runner


async def _continued(runner: Runner, service: SessionService, **who: Any) -> str | None:
    """Continue a session until it waits or has nothing to do; return the last text of the agent."""
    while (answers := await service.answers(app_name=runner.app_name, **who)) is not None:
        async for _ in runner.run_async(**who, new_message=answers):
            pass  # the service has stored it
    session = await service.get_session(app_name=runner.app_name, **who)
    if session is None:
        raise NotFound(f"session {who['session_id']!r} of user {who['user_id']!r} does not exist")
    if _was_cut_off(session) and not await service.waits(app_name=runner.app_name, **who):
        _refuse_not_resumable(runner, session)
        async for event in runner.run_async(**who, invocation_id=session.events[-1].invocation_id):
            session.events.append(event)
    return _last_text(session)


def _was_cut_off(session: Session) -> bool:
    """Whether the newest invocation has not come to its end: its last event is neither the agent's last word nor the mark of its end."""
    events = [event for event in session.events if event.content is not None or event.actions.end_of_agent]
    if not events:
        return False
    last = events[-1]
    return not last.actions.end_of_agent and (last.author == "user" or not last.is_final_response())


def _refuse_not_resumable(runner: Runner, session: Session) -> None:
    config = runner.resumability_config
    if config is None or not config.is_resumable:
        raise InvalidArgument(
            f"session {session.id!r} was cut off in an invocation, and its app {runner.app_name!r} is not resumable",
            remedy="Use App(..., resumability_config=ResumabilityConfig(is_resumable=True)), or send a message to the session.",
        )


def _last_text(session: Session) -> str | None:
    return next((text for event in reversed(session.events) if (text := _text(event))), None)


def _text(event: Event) -> str:
    parts = event.content.parts if event.content is not None and event.author != "user" else None
    return "".join(part.text for part in parts or () if part.text and not part.thought)

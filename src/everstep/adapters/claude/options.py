"""Options of the SDK for a durable session, and the driver that resumes sessions from outside: `everstep resume --import app RUN`, workers."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKError, ResultMessage, project_key_for_directory, query

import everstep
from everstep.adapters.claude import keys
from everstep.adapters.claude.approvals import Approvals
from everstep.adapters.claude.session_store import SessionStore
from everstep.adapters.claude.transcript import WORKFLOW
from everstep.errors import InvalidArgument

PROMPT = "Continue. If a call of a tool was stopped to wait for an approval, make the same call again now."


async def durable(
    options: ClaudeAgentOptions | None = None, *, id: str | None = None, store: Any = None, wait: float | None = None
) -> ClaudeAgentOptions:
    """Return options that start the session with this id, or resume it if the store has it. Permissions become questions to people.

    `store` is a `SessionStore`, a store or its address. A `can_use_tool` of the options is kept. `wait` is that of `Approvals`.
    """
    given = options or ClaudeAgentOptions()
    sessions = store if isinstance(store, SessionStore) else SessionStore(store)
    session = str(uuid4()) if id is None else _checked(id)
    found = await sessions.load({"project_key": project_key_for_directory(given.cwd), "session_id": session})
    return replace(
        given,
        session_store=sessions,
        session_store_flush="eager",  # otherwise kill -9 in a turn would lose the turn
        can_use_tool=given.can_use_tool or Approvals(sessions, session, cwd=given.cwd, wait=wait),
        resume=session if found else None,
        session_id=None if found else session,
        continue_conversation=False,
    )


def resume(options: ClaudeAgentOptions, *, store: Any = None, prompt: str = PROMPT, wait: float = 0) -> ClaudeAgentOptions:
    """Let `everstep resume`, `store.wake` and workers of this process continue sessions with these options; return the options.

    A session gets `prompt`. A question without an answer stops it again after `wait` seconds.
    """

    def drive(run: Any) -> Any:
        return asyncio.run(_driven(run.id, options, store, prompt, wait))

    everstep.drives(WORKFLOW, drive)
    return options


async def _driven(run: str, options: ClaudeAgentOptions, store: Any, prompt: str, wait: float) -> Any:
    session, subpath = keys.split(run)
    if subpath is not None:
        raise InvalidArgument(
            f"run {run!r} is the transcript of a subagent", remedy=f"Resume its session: {run.removesuffix('/' + subpath)}"
        )
    if keys.run_of({"project_key": project_key_for_directory(options.cwd), "session_id": session}) != run:
        raise InvalidArgument(
            f"run {run!r} belongs to another folder than the options: {project_key_for_directory(options.cwd)!r}",
            remedy="Register options with the cwd that the session was started in.",
        )
    sessions = store if isinstance(store, SessionStore) else SessionStore(store)
    try:
        made = await durable(options, id=session, store=sessions, wait=wait)
        try:
            last = None
            async for message in query(prompt=prompt, options=made):
                if isinstance(message, ResultMessage):
                    last = message
            if last is None or last.is_error:
                raise ClaudeSDKError(f"Claude ended with {last.subtype if last else 'no result'}: {last.result if last else None}")
        except ClaudeSDKError:
            if any(gate.open for gate in await (await sessions.opened()).gates(run)):
                return None  # it was stopped to wait for answers
            raise
        await sessions.flush()  # otherwise the run would succeed without its last entries
        return last.result
    finally:
        if sessions is not store:
            await sessions.close()


def _checked(id: str) -> str:
    try:
        return str(UUID(id))
    except (ValueError, AttributeError, TypeError):
        raise InvalidArgument(f"the id of a session must be a UUID, got {id!r:.60}", remedy="Use str(uuid.uuid4()).") from None

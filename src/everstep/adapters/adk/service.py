"""The session service: `Runner(..., session_service=SessionService())`. One session is one run of the store.

Thin: `sessions` reads and writes in threads, where saves that happen at the same time share one commit to disk. Appends to one session wait for
each other, as those of parallel agents share one session object.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from contextvars import copy_context
from functools import partial
from typing import Any, TypeVar
from uuid import uuid4

from google.adk.events.event import Event
from google.adk.platform import time as platform_time
from google.adk.sessions.base_session_service import BaseSessionService, GetSessionConfig, ListSessionsResponse
from google.adk.sessions.session import Session
from google.genai.types import Content

import everstep
from everstep.adapters.adk.events import describe, to_message
from everstep.adapters.adk.layout import Appended, split
from everstep.adapters.adk.questions import answered_by, asked_by
from everstep.adapters.adk.runs import Place
from everstep.adapters.adk.sessions import Sessions
from everstep.errors import InvalidArgument

T = TypeVar("T")
_WORKERS = 32
if "_storage_update_marker" not in Session.__private_attributes__:
    raise ImportError("google-adk has no Session._storage_update_marker")


class SessionService(BaseSessionService):
    """Keeps the sessions of ADK agents in an Everstep store.

    `store` is an open store, or its address; by default the configured one. It is opened on first use.
    """

    def __init__(self, store: everstep.Store | str | os.PathLike[str] | None = None):
        if isinstance(store, everstep.AsyncStore):
            raise InvalidArgument(
                "SessionService needs a store, got its async handle",
                remedy="store = everstep.open(…); SessionService(store); async with store as handle: …",
            )
        self._given = store
        self._opened: Sessions | None = None
        self._opening = threading.Lock()
        self._turns: dict[Any, tuple[asyncio.Lock, int]] = {}  # by event loop and session, while one is in use
        # A pool of its own: tools that wait for a save may fill asyncio's, and the save would never start.
        self._pool = ThreadPoolExecutor(_WORKERS, thread_name_prefix="everstep-adk")

    async def create_session(
        self, *, app_name: str, user_id: str, state: dict[str, Any] | None = None, session_id: str | None = None
    ) -> Session:
        """Create a session; `AlreadyExistsError` if its id is taken. Without an id, it gets a new one."""
        id = (session_id or "").strip() or str(uuid4())
        return await self._call(Sessions.create, Place(app_name, user_id, id), split(state), platform_time.get_time())

    async def get_session(self, *, app_name: str, user_id: str, session_id: str, config: GetSessionConfig | None = None) -> Session | None:
        """Return a session with the events that `config` asks for, or None."""
        return await self._call(Sessions.get, Place(app_name, user_id, _stripped(session_id)), config)

    async def list_sessions(self, *, app_name: str, user_id: str | None = None) -> ListSessionsResponse:
        """Return the sessions of a user, or of all users, without their events; the most recently active one is the last."""
        return ListSessionsResponse(sessions=await self._call(Sessions.listed, app_name, user_id))

    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        """Delete a session and its events, if it exists."""
        await self._call(Sessions.delete, Place(app_name, user_id, _stripped(session_id)))

    async def get_user_state(self, *, app_name: str, user_id: str) -> dict[str, Any]:
        """Return the state of a user, by keys without `user:`."""
        return await self._call(Sessions.user_state, Place(app_name, user_id, ""))

    async def append_event(self, session: Session, event: Event) -> Event:
        """Append an event: one commit with all changes of the state.

        `StaleSessionError` if another writer has appended to the session since this object was read; then nothing is written.
        """
        if event.partial:
            return event
        place = Place(session.app_name, session.user_id, session.id)
        async with self._turn(place):
            if any(known.id == event.id and known == event for known in reversed(session.events)):
                return event  # delivered again
            self._apply_temp_state(session, event)
            event = self._trim_temp_delta_state(event)
            delta = split(event.actions.state_delta)
            appended = Appended(to_message(event), delta, describe(event), asked_by(event), answered_by(event))
            marker, last = session._storage_update_marker, session.events[-1].id if session.events else None
            saving = asyncio.ensure_future(self._call(Sessions.append, place, marker, last, appended))
            try:
                await asyncio.shield(saving)
            finally:
                if not saving.done():  # cancelled: the commit is still made, and the session must know it
                    await asyncio.wait([saving])
                if not saving.cancelled() and saving.exception() is None:
                    session._storage_update_marker = saving.result()
                    session.last_update_time = event.timestamp
                    self._commit_event_to_session(session, event)
        return event

    async def answers(self, *, app_name: str, user_id: str, session_id: str) -> Content | None:
        """Return the answers of people to what a session waits for, as the message to send to the runner; None if there are none.

        Those are confirmations of tools, requests for input, and results of tools that run long.
        """
        parts = await self._call(Sessions.answers, Place(app_name, user_id, _stripped(session_id)))
        return Content(role="user", parts=parts) if parts else None

    async def waits(self, *, app_name: str, user_id: str, session_id: str) -> bool:
        """Return whether a session waits for a person."""
        return await self._call(Sessions.waits, Place(app_name, user_id, _stripped(session_id)))

    async def close(self) -> None:
        """Close the store, if this service has opened it. Its next use opens it again."""
        with self._opening:
            opened, self._opened = self._opened, None
        if opened is not None and opened.store is not self._given:
            await asyncio.to_thread(opened.store.close)

    async def __aenter__(self) -> SessionService:
        return self

    async def __aexit__(self, *problem: object) -> None:
        await self.close()

    async def _call(self, function: Callable[..., T], *args: Any) -> T:
        """Call a method of the sessions in a thread."""
        call = partial(copy_context().run, self._in_thread, function, *args)
        return await asyncio.get_running_loop().run_in_executor(self._pool, call)

    def _in_thread(self, function: Callable[..., T], *args: Any) -> T:
        with self._opening:
            if self._opened is None:
                self._opened = Sessions(self._given if isinstance(self._given, everstep.Store) else everstep.open(self._given))
            sessions = self._opened
        return function(sessions, *args)

    @asynccontextmanager
    async def _turn(self, place: Place) -> AsyncIterator[None]:
        """Wait for other appends of this event loop to the session."""
        key = (asyncio.get_running_loop(), place)
        lock, users = self._turns.get(key, (asyncio.Lock(), 0))
        self._turns[key] = (lock, users + 1)
        try:
            async with lock:
                yield
        finally:
            lock, users = self._turns.pop(key)
            if users > 1:
                self._turns[key] = (lock, users - 1)


def _stripped(session_id: str) -> str:
    return session_id.strip() if isinstance(session_id, str) else session_id

"""A session in a store: one session is one run, whose state has the items and, beside them, the state of an interrupted run.

Each call is one checkpoint, all or nothing. Several processes may use one session: an update that another process has overtaken is made
again on top of it, so none is lost. Relies on lines (`store.line`), so it holds no lease and needs no event loop of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from agents import Agent, RunState, SessionSettings
from agents.memory.session_settings import resolve_session_limit

import everstep
from everstep.adapters.shared.opening import Opening
from everstep.adapters.shared.plain import to_copy
from everstep.errors import Conflict, InvalidArgument

Change = Callable[[Any], Any]
WORKFLOW = "openai-session"


class Session:
    """The history of a conversation, durable: `Runner.run(agent, "hi", session=Session("user@example.com"))`.

    `store` is a store or its address; by default the configured one. The id may be any text.
    """

    def __init__(self, session_id: str, store: Any = None, *, session_settings: SessionSettings | None = None):
        self.session_id = session_id
        self.session_settings = session_settings
        self.run_id = everstep.quote(session_id)
        self._place = Opening(store)
        self._line: Any = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._turn: list[Change] | None = None

    async def get_items(self, limit: int | None = None) -> list[Any]:
        """Return the newest `limit` items, oldest first; all of them without a limit."""
        most = resolve_session_limit(limit, self.session_settings)
        async with self._alone:
            state = await self._state(newest=True)
            items = state["items"]
            first = 0 if most is None or most < 0 else max(0, len(items) - most)
            return [to_copy(items[n]) for n in range(first, len(items))]

    async def add_items(self, items: list[Any]) -> None:
        """Add items, all of them or none."""
        plain = [to_copy(item) for item in items]
        if plain:
            # A copy each time, which only the state holds: otherwise the next save compares the items again.
            await self._change(lambda state: state["items"].extend([to_copy(item) for item in plain]))

    async def pop_item(self) -> Any | None:
        """Remove the newest item and return it; None if there is none."""
        popped: list[Any] = []

        def pop(state: Any) -> Any:
            items = state["items"]
            if popped:  # made again in a turn: the same item, wherever it is now
                found = next((n for n in reversed(range(len(items))) if to_copy(items[n]) == popped[0]), None)
                if found is not None:
                    del items[found]
            elif items:
                popped.append(to_copy(items.pop()))
            return popped[0] if popped else None

        async with self._alone:
            if not len((await self._state(newest=True))["items"]):
                return None
        return await self._change(pop, again=popped.clear)

    async def clear_session(self) -> None:
        """Remove all items, and the state of an interrupted run."""

        def clear(state: Any) -> None:
            state["items"].clear()
            state["run_state"] = None

        async with self._alone:
            empty = not len((await self._state(newest=True))["items"]) and not self._line.exists
        if not empty:
            await self._change(clear)

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[Turn]:
        """Save everything that the block adds in one commit, when it ends; nothing, if it raises.

        `turn.save(result)` saves the state of an interrupted run with it. One turn at a time; use a `Session` of its own for each conversation.
        """
        async with self._alone:
            if self._turn is not None:
                raise InvalidArgument(
                    f"session {self.session_id!r:.60} already has an open turn", remedy="Use a Session object for each task."
                )
            await self._state(newest=True)
            self._turn = []
        try:
            yield Turn(self)
        except BaseException:
            self._forget()
            raise
        else:
            made, self._turn = self._turn, None
            if made:
                await self._change(lambda state: [change(state) for change in made], applied=True)
        finally:
            self._turn = None

    async def run_state(self, agent: Agent[Any], **options: Any) -> RunState[Any] | None:
        """Return the saved state of an interrupted run, or None. The options are those of `RunState.from_json`."""
        async with self._alone:
            kept = (await self._state(newest=True))["run_state"]
            plain = None if kept is None else to_copy(kept)
        return None if plain is None else await RunState.from_json(agent, plain, **options)

    async def save_state(self, state: RunState[Any] | None, **options: Any) -> None:
        """Save the state of an interrupted run beside the items; None removes it. The options are those of `RunState.to_json`."""
        plain = None if state is None else to_copy(state.to_json(**options))

        def put(kept: Any) -> None:
            kept["run_state"] = plain

        await self._change(put)

    async def close(self) -> None:
        """Close the store, if this session has opened it."""
        self._forget()
        await self._place.close()

    async def __aenter__(self) -> Session:
        return self

    async def __aexit__(self, *problem: object) -> None:
        await self.close()

    async def _change(self, change: Change, *, applied: bool = False, again: Callable[[], None] | None = None) -> Any:
        """Make a change and save it; in a turn, save it at its end. A change that was overtaken is made again on the newest state."""
        async with self._alone:
            state = await self._state()
            try:
                result = None if applied else change(state)
                if self._turn is not None:
                    self._turn.append(change)
                    return result
                while True:
                    try:
                        await self._line.checkpoint()
                    except Conflict:
                        if again is not None:
                            again()
                        result = change(await self._state())
                    else:
                        return result
            except BaseException:
                self._forget()  # what was not saved must not be saved by the next call
                raise

    async def _state(self, newest: bool = False) -> Any:
        """Return the live state of the session."""
        if self._line is None:
            await self._open()
        elif newest and self._turn is None:
            await self._line.refresh()
        state = await self._line.state()
        if not isinstance(state, dict) or "items" not in state or "run_state" not in state:
            self._forget()
            raise InvalidArgument(f"run {self.run_id!r} is not a session of openai-agents", remedy="Choose another session id.")
        return state

    async def _open(self) -> None:
        first: dict[str, Any] = {"items": [], "run_state": None}
        self._line = await (await self._place.opened()).line(self.run_id, state=first, workflow=WORKFLOW)

    @property
    def _alone(self) -> asyncio.Lock:
        """The lock of this event loop. A session that is used in another loop opens its line again."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop, self._lock, self._line = loop, asyncio.Lock(), None
        return self._lock

    def _forget(self) -> None:
        if self._line is not None:
            self._line.close()
        self._line = None


class Turn:
    """A turn of a conversation that is saved as a whole."""

    def __init__(self, session: Session):
        self._session = session

    async def save(self, result: Any, **options: Any) -> None:
        """Save the state of a run that waits for approvals; forget it, if the run has ended. The options are those of `RunState.to_json`."""
        await self._session.save_state(result.to_state() if result.interruptions else None, **options)

"""The SDK's session store in an Everstep store: one transcript is one run, of a session or of a subagent.

Several processes may use one store, and one session: no entry is lost. Relies on `transcript.py` for appends. Needs asyncio.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from claude_agent_sdk import SessionKey, SessionListSubkeysKey, SessionStoreEntry, SessionStoreListEntry, SessionSummaryEntry
from claude_agent_sdk import SessionStore as Protocol

from everstep.adapters.claude import keys
from everstep.adapters.claude.entries import to_stored
from everstep.adapters.claude.transcript import ADAPTER, SUMMARY, Owed, Transcript, checked, entries_of, folded
from everstep.adapters.shared.opening import Opening
from everstep.errors import NotFound

_log = logging.getLogger("everstep.adapters.claude")
_MOST_OPEN = 32  # transcripts that are kept open for appends; each keeps its state in memory


class SessionStore(Protocol):
    """Keeps the sessions of the Claude Agent SDK: `ClaudeAgentOptions(session_store=SessionStore())`.

    `store` is a store or its address; by default the configured one. An append that fails is made again before the next one, and by `close`;
    until then, `failed` is its error.
    """

    def __init__(self, store: Any = None):
        self._place = Opening(store)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._open: OrderedDict[str, Transcript] = OrderedDict()
        self._summaries: dict[str, tuple[Any, dict[str, Any]]] = {}
        self._owed: dict[str, Owed] = {}
        self._error: BaseException | None = None

    @property
    def failed(self) -> BaseException | None:
        """The error of the last append that failed, as long as its entries are not saved."""
        return self._error if self._owed else None

    async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        """Append entries, all of them or none. An entry whose uuid the transcript has is left out."""
        stored = [to_stored(entry) for entry in entries]
        if stored:
            await self._append(key, stored)

    async def flush(self) -> None:
        """Save the entries of the appends that have failed."""
        for key, _ in list(self._owed.values()):
            await self._append(key, [])

    async def _append(self, key: Mapping[str, Any], stored: list[dict[str, Any]]) -> None:
        try:
            await (await self.transcript(key)).append(stored)
        except BaseException as error:
            self._error = error
            _log.error("an append to the transcript %r was not saved: %s", keys.run_of(key), error)  # the SDK only reports it in its stream
            raise

    async def load(self, key: SessionKey) -> list[SessionStoreEntry] | None:
        """Return all entries of a transcript; None if it has none."""
        run = keys.run_of(key)
        try:
            state = await (await self._store()).load(run)
        except NotFound:
            return None
        found: Any = entries_of(state, run, key["session_id"])
        return found or None

    async def list_sessions(self, project_key: str) -> list[SessionStoreListEntry]:
        """Return the ids of the sessions of a project, and when each was last written."""
        return [{"session_id": id, "mtime": _ms(info)} for id, info in await self._sessions(project_key)]

    async def list_session_summaries(self, project_key: str) -> list[SessionSummaryEntry]:
        """Return the SDK's summaries of the sessions of a project. A session that did not change is not read again."""
        found: list[SessionSummaryEntry] = []
        for id, info in await self._sessions(project_key):
            version = (info.created_at, info.checkpoints)
            known = self._summaries.get(info.id)
            if known is None or known[0] != version:
                try:
                    known = (version, await self._summary(info.id, {"project_key": project_key, "session_id": id}))
                except NotFound:
                    continue  # deleted by another process
                self._summaries[info.id] = known
            found.append({"session_id": id, "mtime": _ms(info), "data": dict(known[1])})
        return found

    async def delete(self, key: SessionKey) -> None:
        """Delete a session with the transcripts of its subagents, or, with a subpath, that transcript alone."""
        run, store = keys.run_of(key), await self._store()
        runs = [] if key.get("subpath") is not None else [info.id for info in await store.runs(prefix=f"{run}/")]
        for id in [*runs, run]:  # the session last: after a crash, it is still found and can be deleted again
            opened = self._open.pop(id, None)
            if opened is not None:
                opened.forget()
            self._summaries.pop(id, None)
            self._owed.pop(id, None)
            try:
                await store.delete(id)
            except NotFound:
                continue

    async def list_subkeys(self, key: SessionListSubkeysKey) -> list[str]:
        """Return the subpaths of the transcripts of a session's subagents."""
        run = keys.run_of({"project_key": key["project_key"], "session_id": key["session_id"]})
        runs = await (await self._store()).runs(prefix=f"{run}/")
        found = [
            _named(keys.split(info.id)[1], info, "subpath") for info in runs if info.meta.get("adapter") == ADAPTER and info.checkpoints
        ]
        return sorted(name for name in found if name is not None)

    async def close(self) -> None:
        """Save what has failed, and close the store, if this object has opened it."""
        try:
            await self.flush()
        finally:
            self._forget()
            await self._place.close()

    async def __aenter__(self) -> SessionStore:
        return self

    async def __aexit__(self, *problem: object) -> None:
        await self.close()

    async def transcript(self, key: Mapping[str, Any]) -> Transcript:
        """Return a transcript that can be appended to."""
        store, run = await self._store(), keys.run_of(key)
        found = self._open.get(run)
        if found is None:
            found = self._open[run] = Transcript(store, key, self._owed)
        self._open.move_to_end(run)
        for old in [name for name, one in self._open.items() if not one.lock.locked()][: max(0, len(self._open) - _MOST_OPEN)]:
            if old != run:
                self._open.pop(old).forget()
        return found

    async def opened(self) -> Any:
        """Return the store of Everstep, open for this event loop."""
        return await self._store()

    async def _store(self) -> Any:
        """Return the store. In another event loop, all transcripts are opened again."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._forget()
            self._loop = loop
        return await self._place.opened()

    async def _sessions(self, project_key: str) -> list[tuple[str, Any]]:
        runs = await (await self._store()).runs(prefix=keys.project_prefix(project_key))
        ours = [(*keys.split(info.id), info) for info in runs if info.meta.get("adapter") == ADAPTER and info.checkpoints]
        named = [(_named(session, info, "session_id"), info) for session, subpath, info in ours if subpath is None]
        return [(id, info) for id, info in named if id is not None]

    async def _summary(self, run: str, key: dict[str, Any]) -> dict[str, Any]:
        state = checked(await (await self._store()).load(run), run)
        return folded(None, key, entries_of(state, run, key["session_id"])) if state[SUMMARY] is None else dict(state[SUMMARY])

    def _forget(self) -> None:
        for one in self._open.values():
            one.forget()
        self._open.clear()


def _named(part: str | None, info: Any, name: str) -> str | None:
    """Return the text of a part of an id. A part that was shortened has its text in the metadata."""
    text = None if part is None else keys.plain(part)
    return info.meta.get(name) if text is None else text


def _ms(info: Any) -> int:
    return int(info.updated_at.timestamp() * 1000)

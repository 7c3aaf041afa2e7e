"""One transcript: a run whose state has the entries in order, and beside them `$summary`, `$session` and `$used`, which commands leave out.

An append is one checkpoint that stores only the new entries, all of them or none. An entry whose uuid the transcript has is left out. If
another process appends first, the entries are added after its own. Relies on lines (`store.line`), so it holds no lease.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, cast

from claude_agent_sdk import SessionKey, SessionSummaryEntry, fold_session_summary

from everstep.adapters.claude import keys
from everstep.adapters.claude.entries import from_stored, note_of, uuid_of
from everstep.errors import Conflict, InvalidArgument, RunDeleted

WORKFLOW = "claude"
ADAPTER = "claude"
_MOST_NOTE = 200  # characters; the SDK may hand over several messages at once
ENTRIES, SUMMARY, SESSION, USED = "entries", "$summary", "$session", "$used"


Owed = tuple[Mapping[str, Any], list[dict[str, Any]]]  # the key of a transcript, and the entries of its appends that have failed


class Transcript:
    """A transcript that is open for appending, by the tasks of one event loop."""

    def __init__(self, store: Any, key: Mapping[str, Any], owed: dict[str, Owed]):
        self.key = dict(key)
        self.run = keys.run_of(key)
        self._owed = owed
        self.lock = asyncio.Lock()
        self._store = store
        self._line: Any = None
        self._seen: set[str] = set()
        self._scanned = 0

    async def line(self) -> Any:
        """Return the line of the run, which may not exist yet. The caller holds the lock."""
        if self._line is None:
            self._seen, self._scanned = set(), 0
            meta = {"adapter": ADAPTER, **{name: value for name, value in self.key.items() if isinstance(value, str)}}
            first = {ENTRIES: [], SUMMARY: None, SESSION: self.key["session_id"]}
            fields = {"workflow": WORKFLOW, "session": self.key["session_id"][:200], "meta": meta}
            self._line = await self._store.line(self.run, state=first, **fields)
        return self._line

    async def append(self, stored: Sequence[dict[str, Any]]) -> None:
        """Append entries in one commit. Entries that are there already are left out; if all are, nothing is written.

        Those of appends that have failed come first: the SDK drops them after three attempts, and the transcript would have a hole.
        """
        async with self.lock:
            owed = self._owed.get(self.run, (self.key, []))[1]
            batch = owed if owed[len(owed) - len(stored) :] == list(stored) else [*owed, *stored]  # or another attempt
            try:
                while await self._appended(batch) is None:
                    pass
            except BaseException as error:
                self.forget()  # the state in memory has entries that were not saved
                if not isinstance(error, InvalidArgument):
                    self._owed[self.run] = self.key, batch
                raise
            self._owed.pop(self.run, None)

    async def begin(self) -> Any:
        """Create the run if it does not exist; return its line, up to date. The caller holds the lock."""
        line = await self.line()
        try:
            await line.refresh()
        except RunDeleted:
            self.forget()
            line = await self.line()
        while not line.exists:
            try:
                await line.checkpoint(note="started")
            except Conflict:
                continue  # another process has created it
        return line

    def forget(self) -> None:
        """Close the line; the next call opens it again."""
        if self._line is not None:
            self._line.close()
        self._line = None

    async def _appended(self, stored: Sequence[dict[str, Any]]) -> bool | None:
        """Return whether entries were written, or None if another process was faster."""
        line = await self.line()
        state = checked(await line.state(), self.run)
        new = self._new(state[ENTRIES], stored)
        if not new:
            try:
                if not await line.refresh():
                    return False
            except RunDeleted:
                pass
            self.forget()  # others have written, or deleted the run: look again
            return None
        if self.key.get("subpath") is None:
            state[SUMMARY] = folded(state[SUMMARY], self.key, [from_stored(one, self.run) for one in new])
        state[ENTRIES].extend(new)
        notes = [note for note in map(note_of, new) if note]
        try:
            await line.checkpoint(note=" · ".join(notes)[:_MOST_NOTE] or None)
        except (Conflict, RunDeleted):
            self.forget()
            return None
        self._seen.update(uuid for uuid in map(uuid_of, new) if uuid)
        self._scanned += len(new)
        return True

    def _new(self, entries: Any, stored: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        for n in range(self._scanned, len(entries)):
            uuid = uuid_of(entries[n])
            if uuid:
                self._seen.add(uuid)
        self._scanned = len(entries)
        new, given = [], set()
        for one in stored:
            uuid = uuid_of(one)
            if uuid is None or (uuid not in self._seen and uuid not in given):
                new.append(one)
                given.add(uuid)
        return new


def checked(state: Any, run: str) -> Any:
    """Return the state of a transcript; refuse that of another run."""
    if not isinstance(state, Mapping) or not isinstance(state.get(ENTRIES), Sequence) or SESSION not in state:
        raise InvalidArgument(f"run {run!r} is not a transcript of Claude", remedy="Use another session id, or another store.")
    return state


def entries_of(state: Any, run: str, session_id: str) -> list[dict[str, Any]]:
    """Return the entries of a loaded state. Those of a fork get the session id of the fork, else the session could not be resumed."""
    entries = [from_stored(one, run) for one in checked(state, run)[ENTRIES]]
    origin = state[SESSION]
    if origin != session_id:
        entries = [{**one, "sessionId": session_id} if one.get("sessionId") == origin else one for one in entries]
    return entries


def folded(before: Any, key: Mapping[str, Any], entries: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what the SDK keeps for its list of sessions, with further entries."""
    known = None if before is None else cast(SessionSummaryEntry, {"session_id": key["session_id"], "mtime": 0, "data": dict(before)})
    return dict(fold_session_summary(known, cast(SessionKey, key), cast(Any, entries))["data"])

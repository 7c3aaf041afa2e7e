"""A store for the harness's `StepPersistence`: `StepPersistence(store=StepStore())`. Needs pydantic-ai-harness.

One agent run is one run of the store, with the id `steps:` and its own id. A snapshot is a checkpoint, whose state has the messages: only what is
new is written. Events and tool effects are entries attached to its first checkpoint, so an event with a key that was seen is not kept again.
"""

from __future__ import annotations

import asyncio
from dataclasses import fields
from hashlib import sha256
from typing import Any
from uuid import uuid4

from pydantic_ai.messages import ModelMessagesTypeAdapter

try:
    from pydantic_ai_harness.step_persistence import ContinuableSnapshot, RunRecord, StepEvent, ToolEffectRecord
except ImportError as error:
    raise ImportError("StepStore needs pydantic-ai-harness: pip install pydantic-ai-harness") from error

import everstep
from everstep.adapters.shared.opening import Opening
from everstep.adapters.shared.plain import to_copy
from everstep.errors import Conflict, InvalidArgument, NotFound

WORKFLOW = "pydantic-ai-steps"
_FIRST = 1


class StepStore:
    """Keeps the events, snapshots and tool effects of agent runs. `store` is a store or its address; by default the configured one."""

    def __init__(self, store: Any = None):
        self._place = Opening(store)
        self._lines: dict[str, Any] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    async def register_run(self, record: RunRecord) -> None:
        """Keep the record of a run; a later one replaces it."""
        kept = _kept(record)
        await self._change(record.run_id, record, "registered", lambda state: state.__setitem__("record", kept))

    async def get_run(self, *, run_id: str) -> RunRecord | None:
        """Return the record of a run, or None."""
        state = await self._load(_id(run_id))
        return None if state is None or state["record"] is None else RunRecord(**state["record"])

    async def list_runs(self, *, parent_run_id: str | None = None, conversation_id: str | None = None) -> list[RunRecord]:
        """Return the records of all runs, or of those with this parent and conversation, oldest first."""
        store = await self._place.opened()
        wanted: dict[str, Any] = {} if parent_run_id is None else {"meta": {"parent": parent_run_id}}
        if conversation_id is not None:
            wanted["session"] = conversation_id
        states = [await self._load(info.id) for info in await store.runs(workflow=WORKFLOW, **wanted)]
        records = [RunRecord(**state["record"]) for state in states if state is not None and state["record"] is not None]
        return sorted(records, key=lambda record: record.started_at)

    async def append_event(self, event: StepEvent) -> None:
        """Keep an event, unless one with its key was kept before."""
        line = await self._begun(event.run_id, event)
        name = uuid4().hex if event.idempotency_key is None else f"key:{_short(event.idempotency_key)}"
        await line.attach(_FIRST, f"event:{name}", _kept(event))

    async def list_events(self, *, run_id: str) -> list[StepEvent]:
        """Return the events of a run, in order."""
        return [StepEvent(**kept) for kept in await self._attached(run_id, "event:")]

    async def save_snapshot(self, snapshot: ContinuableSnapshot) -> None:
        """Keep a snapshot, unless one with its key, or a later one, was kept before."""
        kept = _kept(snapshot)
        kept.pop("messages")
        messages = ModelMessagesTypeAdapter.dump_python(snapshot.messages, mode="json")
        key = snapshot.idempotency_key

        def put(state: Any) -> Any:
            if key is not None:
                number = _sequence(key)
                if key in state["keys"] or (number is not None and number < state["newest"]):
                    return False
                state["keys"].append(key)
                state["newest"] = state["newest"] if number is None else number
            state["messages"], state["snapshot"] = messages, kept
            return True

        meta = {"snapshot": snapshot.state, "step": snapshot.step_index}
        await self._change(snapshot.run_id, snapshot, f"step {snapshot.step_index}, {snapshot.state}", put, meta)

    async def latest_snapshot(self, *, run_id: str, include_interrupted: bool = False) -> ContinuableSnapshot | None:
        """Return the newest complete snapshot, or the newest of all; None if there is none."""
        found = await self._snapshots(run_id, include_interrupted, newest=True)
        return found[0] if found else None

    async def list_snapshots(self, *, run_id: str, include_interrupted: bool = False) -> list[ContinuableSnapshot]:
        """Return the snapshots of a run, oldest first."""
        return (await self._snapshots(run_id, include_interrupted, newest=False))[::-1]

    async def record_tool_effect(self, record: ToolEffectRecord) -> None:
        """Keep the newest status of a tool call."""
        line = await self._begun(record.run_id, record)
        await line.attach(_FIRST, f"effect:{_short(record.tool_call_id)}", _kept(record), replace=True)

    async def get_tool_effect(self, *, run_id: str, tool_call_id: str) -> ToolEffectRecord | None:
        """Return the newest status of a tool call, or None."""
        name = f"effect:{_short(tool_call_id)}"
        found = [ToolEffectRecord(**kept) for kept in await self._attached(run_id, name)]
        return next((record for record in found if record.tool_call_id == tool_call_id), None)

    async def list_unresolved_tool_effects(self, *, run_id: str) -> list[ToolEffectRecord]:
        """Return the tool calls that have begun and not ended."""
        found = [ToolEffectRecord(**kept) for kept in await self._attached(run_id, "effect:")]
        return [record for record in found if record.status == "started"]

    async def close(self) -> None:
        """Close the store, if this object has opened it."""
        self._lines.clear()
        await self._place.close()

    async def _change(self, run_id: str, about: Any, note: str, change: Any, meta: dict[str, Any] | None = None) -> None:
        """Change the state of a run and save it; again on the newest state, if another process has saved meanwhile."""
        line = await self._line(run_id, about)
        try:
            while change(_checked(await line.state(), line.id)) is not False:
                try:
                    await line.checkpoint(note, meta=meta)
                except Conflict:
                    continue
                return
        except BaseException:
            self._lines.pop(line.id, None)  # what was not saved must not be saved by the next call
            raise

    async def _begun(self, run_id: str, about: Any) -> Any:
        """Return the line of a run that has a first checkpoint."""
        line = await self._line(run_id, about)
        if not line.number:
            await self._change(run_id, about, "begun", lambda state: None)
        return line

    async def _line(self, run_id: str, about: Any) -> Any:
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop, self._lines = loop, {}
        id = _id(run_id)
        if id not in self._lines:
            first: dict[str, Any] = {"record": None, "snapshot": None, "messages": [], "keys": [], "newest": -1}
            meta = {"parent": getattr(about, "parent_run_id", None), "agent": getattr(about, "agent_name", None)}
            given = {name: value for name, value in meta.items() if value is not None}
            session = getattr(about, "conversation_id", None)
            store = await self._place.opened()
            if len(self._lines) >= 100:
                self._lines.pop(next(iter(self._lines)))
            self._lines[id] = await store.line(id, state=first, workflow=WORKFLOW, session=session, meta=given)
        return self._lines[id]

    async def _load(self, ref: str) -> Any:
        try:
            return _checked(await (await self._place.opened()).load(ref), ref)
        except NotFound:
            return None

    async def _attached(self, run_id: str, prefix: str) -> list[Any]:
        try:
            found = await (await self._place.opened()).attached(_id(run_id), _FIRST, prefix=prefix)
        except NotFound:
            return []
        return [entry.value for entry in found]

    async def _snapshots(self, run_id: str, interrupted: bool, newest: bool) -> list[ContinuableSnapshot]:
        store = await self._place.opened()
        try:
            listed = await store.checkpoints(_id(run_id))
        except NotFound:
            return []
        wanted = ("complete", "interrupted") if interrupted else ("complete",)
        found = []
        for checkpoint in listed:
            if checkpoint.meta.get("snapshot") in wanted:
                state = await self._load(checkpoint.ref)
                messages = ModelMessagesTypeAdapter.validate_python(state["messages"])
                found.append(ContinuableSnapshot(messages=messages, **state["snapshot"]))
                if newest:
                    break
        return found


def _id(run_id: str) -> str:
    return f"steps:{everstep.quote(run_id)}"


def _short(text: str) -> str:
    return text if len(text) <= 100 and text.isprintable() else sha256(text.encode()).hexdigest()


def _kept(record: Any) -> dict[str, Any]:
    return {
        field.name: value if field.name == "messages" else to_copy(value)
        for field in fields(record)
        for value in [getattr(record, field.name)]
    }


def _sequence(key: str) -> int | None:
    """Return the number that a key of `StepPersistence` begins with: keys of earlier numbers are retries of what is already there."""
    first, colon, _ = key.partition(":")
    return int(first) if colon and first.isdecimal() else None


def _checked(state: Any, ref: str) -> Any:
    if not isinstance(state, dict) or not {"record", "snapshot", "messages"} <= state.keys():
        raise InvalidArgument(f"run {ref!r} was not written by StepStore", remedy="Use another store, or delete the run.")
    return state

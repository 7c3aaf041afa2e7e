"""Permissions as gates: `can_use_tool=Approvals(sessions, session_id)` asks people, who answer with `everstep answer`, in any process.

The question belongs to the run of the session. After a crash, the model makes a call again under a new id, so an answer counts for a call of the
same tool with the same input. A `yes` counts for one call: before the tool may run, a checkpoint adds the name of the gate to `$used`. Of two
processes, one gets the answer. A tool whose process died may have run, so its next call is a new question. A `no` counts until the transcript has
its result. Which calls a gate was for is attached to the run: the entry `$call:GATE:ID` has `gate`, and `parked` if the session was stopped to wait.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from hashlib import sha256
from typing import Any
from uuid import uuid4

from claude_agent_sdk import PermissionResultAllow, PermissionResultDeny, ToolPermissionContext, project_key_for_directory

from everstep.adapters.claude.entries import from_stored
from everstep.adapters.claude.session_store import SessionStore
from everstep.adapters.claude.transcript import ENTRIES, USED, Transcript, checked
from everstep.adapters.shared.approvals import ANSWERS, read_answer
from everstep.adapters.shared.plain import name_of
from everstep.errors import Conflict, InvalidArgument

_SHORTEST, _SHARE = 0.1, 20  # a look for an answer takes at most a twentieth of the time
PARKED = "A person has to approve this call first. The session stops here and is resumed after the answer."
MAY_HAVE_RUN = " A call like this was approved before, and its result was not saved: it may have been made."
Result = PermissionResultAllow | PermissionResultDeny


class Approvals:
    """Asks people whether Claude may use a tool.

    `cwd` is that of the options. `wait` is how many seconds to wait for an answer, by default without end. After that, the session is stopped; the
    question stays open, and when the session is resumed after the answer, the call is made without asking again.
    """

    def __init__(self, sessions: SessionStore, session_id: str, *, cwd: Any = None, wait: float | None = None):
        if wait is not None and (isinstance(wait, bool) or not isinstance(wait, (int, float)) or not wait >= 0):
            raise InvalidArgument(f"wait must be a number of at least 0, got {wait!r:.60}")
        self._sessions, self._wait = sessions, wait
        self._key = {"project_key": project_key_for_directory(cwd), "session_id": session_id}
        self._taken: set[str] = set()  # calls that wait here, or have got an answer from here
        self._given: dict[str, str] = {}  # the gates of the calls that were approved here: the CLI may ask twice for one call

    async def __call__(self, tool: str, input: dict[str, Any], context: ToolPermissionContext) -> Result:
        """Return the answer of a person."""
        transcript = await self._sessions.transcript(self._key)
        base, call = _base(tool, input), context.tool_use_id or uuid4().hex
        self._taken.add(call)
        try:
            while True:
                gate = await self._asked(transcript, base, call, _question(tool, input, context))
                found = await self._answer(transcript.run, gate)
                if found is None:
                    await self._bind(transcript, base, call, gate, parked=True)
                    self._taken.discard(call)
                    return PermissionResultDeny(message=PARKED, interrupt=True)
                if await self._received(transcript, call, found):
                    return _result(found.answer, context)
        except BaseException:
            self._taken.discard(call)
            raise

    async def _asked(self, transcript: Transcript, base: str, call: str, question: str) -> str:
        """Return the gate of a call: one whose answer was not used yet, or a new one."""
        async with transcript.lock:
            line, store = await transcript.begin(), await self._sessions.opened()
            state = checked(await line.state(), transcript.run)
            results = _results(state[ENTRIES], transcript.run)
            gates = {gate.name: gate for gate in await store.gates(transcript.run)}
            calls: dict[str, dict[str, bool]] = {}
            for one in await store.attached(transcript.run, prefix=f"$call:{base}:"):
                calls.setdefault(one.value["gate"], {})[one.name.rpartition(":")[2]] = one.value["parked"]
            number, unsure = 1, False
            while True:
                name = _name(base, number)
                bound, spent = calls.get(name, {}), name in state.get(USED, ()) and self._given.get(call) != name
                if not spent and not self._is_used(gates.get(name), bound, results, call):
                    break
                unsure = spent and not any(one in self._taken or (one in results and not parked) for one, parked in bound.items())
                number += 1
            await line.attach(line.number, f"$call:{base}:{call}", {"gate": name, "parked": False}, replace=True)
            if name not in gates:
                await line.ask(name, question + (MAY_HAVE_RUN if unsure else ""), schema=ANSWERS)
            return name

    async def _received(self, transcript: Transcript, call: str, gate: Any) -> bool:
        """Record the answer, and that an approval is used. False: another call has used it."""
        async with transcript.lock:
            line = await transcript.line()
            await line.answers()  # otherwise the run would be due, and a worker would resume it
            if not read_answer(gate.answer)[0] or self._given.get(call) == gate.name:
                return True
            while True:
                used = checked(await line.state(), transcript.run).setdefault(USED, [])
                if gate.name in used:
                    return False
                used.append(gate.name)
                try:
                    await line.checkpoint(note=f"approved: {gate.name}")
                except Conflict:
                    continue  # another process has written; look again
                except BaseException:
                    transcript.forget()  # the next append must not save it
                    raise
                self._given[call] = gate.name
                return True

    def _is_used(self, gate: Any, calls: Mapping[str, bool], results: set[str], call: str) -> bool:
        if gate is None or call in calls:
            return False
        if gate.cancelled or (gate.answered and not calls):
            return True  # whose answer it was is not known: rather ask again
        return any(one in self._taken or (one in results and not parked) for one, parked in calls.items())

    async def _bind(self, transcript: Transcript, base: str, call: str, gate: str, *, parked: bool) -> None:
        async with transcript.lock:
            line = await transcript.line()
            await line.attach(line.number, f"$call:{base}:{call}", {"gate": gate, "parked": parked}, replace=True)

    async def _answer(self, run: str, name: str) -> Any:
        """Return the answered gate, or None if the wait is over."""
        store, until = await self._sessions.opened(), None if self._wait is None else time.monotonic() + self._wait
        while True:
            begun = time.monotonic()
            gate = next((one for one in await store.gates(run) if one.name == name), None)
            if gate is not None and gate.answered:
                return gate
            now = time.monotonic()
            if gate is None or gate.cancelled or (until is not None and now >= until):
                return None
            await asyncio.sleep(min(max(_SHORTEST, _SHARE * (now - begun)), 5.0 if until is None else max(0.0, until - now)))


def _name(base: str, number: int) -> str:
    return base if number == 1 else f"{base}-{number}"


def _base(tool: str, input: Mapping[str, Any]) -> str:
    digest = sha256(json.dumps([tool, input], sort_keys=True).encode()).hexdigest()[:8]
    return f"{name_of(f'approve-{tool}', 'approve')[:80].replace(':', '-')}-{digest}"


def _question(tool: str, input: Mapping[str, Any], context: ToolPermissionContext) -> str:
    shown = json.dumps(input, ensure_ascii=False).encode(errors="replace").decode().replace("\x00", "")
    who = f"subagent {context.agent_id}" if context.agent_id else "Claude"
    reason = f" {context.decision_reason}" if context.decision_reason else ""
    return f"Let {who} use {tool}({shown[:800]})?{reason[:200]}"


def _results(entries: Any, run: str) -> set[str]:
    """Return the ids of the calls that a transcript has a result of."""
    found = set()
    for one in entries:
        message = from_stored(dict(one), run).get("message")
        content = message.get("content") if isinstance(message, Mapping) else None
        for part in content if isinstance(content, list) else ():
            if isinstance(part, Mapping) and part.get("type") == "tool_result":
                found.add(str(part.get("tool_use_id")))
    return found


def _result(said: Any, context: ToolPermissionContext) -> Result:
    allowed, reason, always = read_answer(said)
    if not allowed:
        return PermissionResultDeny(message=f"refused by a person: {reason}" if reason else "refused by a person")
    return PermissionResultAllow(updated_permissions=list(context.suggestions) if always and context.suggestions else None)

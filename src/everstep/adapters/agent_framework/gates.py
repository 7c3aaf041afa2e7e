"""Requests for information as gates: `ctx.request_info(…)` asks a question of the run, which `everstep answer` and the inbox can answer.

A gate is named by the executor that asks and a digest of the request and of the checkpoint that has it first, so an old answer never counts
for a new request with the same id. If the program itself responds, its value is recorded as the answer; if the request is cancelled, the
question is closed. An approval of a tool call is answered with yes or no.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from typing import Any

from agent_framework import Content, WorkflowCheckpoint
from pydantic import TypeAdapter

import everstep
from everstep.adapters.agent_framework.layout import ABOUT, GATES, is_functional
from everstep.adapters.shared.approvals import ANSWERS, read_answer
from everstep.adapters.shared.plain import name_of, to_plain
from everstep.errors import AlreadyAnswered, EverstepError, InvalidArgument

_MOST_TEXT = 1_000
_DIGITS = 8
PROGRAM, MOVED_ON = "program", "moved on"
_APPROVAL = "function_approval_request"
_YES_NO = {"anyOf": [{"type": "boolean"}, {"enum": ["yes", "no"]}]}


def names_of(checkpoint: WorkflowCheckpoint, known: Mapping[str, str]) -> dict[str, str]:
    """Return the gate of each pending request: the one of the checkpoint before, or a new one.

    A functional workflow runs again from its start and asks for all responses again, so the gates of answered requests are kept there.
    """
    pending = {id: known.get(id) or _name(event, id, checkpoint) for id, event in checkpoint.pending_request_info_events.items()}
    return {**known, **pending} if is_functional(checkpoint) else pending


def _name(event: Any, id: str, checkpoint: WorkflowCheckpoint) -> str:
    digest = sha256(f"{id}\n{checkpoint.checkpoint_id}".encode()).hexdigest()[:_DIGITS]
    return f"{name_of(event.source_executor_id, 'request')[:80]}-{digest}"


def ask(line: Any, checkpoint: WorkflowCheckpoint, names: Mapping[str, str], asked: Iterable[everstep.Gate]) -> None:
    """Record a question for each pending request. One that was asked already, open or answered, is not asked again."""
    had = {gate.name for gate in asked if gate.by != MOVED_ON}
    for id, event in checkpoint.pending_request_info_events.items():
        if names[id] in had:
            continue
        for schema in _schemas(event):
            try:
                line.ask(names[id], question(event), schema=schema)
                break
            except InvalidArgument:
                if schema is None:
                    raise


def is_approval(event: Any) -> bool:
    """Whether a request asks to approve a tool call."""
    return isinstance(event.data, Content) and event.data.type == _APPROVAL and event.response_type is Content


def _schema(type_: Any) -> Any:
    if type_ is bool:
        return _YES_NO
    return None if type_ is None or type_ is Any or type_ is object or type_ is Content else type_


def _schemas(event: Any) -> Iterator[Any]:
    """Yield what answers must look like, the best description first. With the last one, none, the framework checks the answer."""
    if is_approval(event):
        yield ANSWERS
    yield _schema(event.response_type)
    yield _json_schema(event.response_type)
    yield None


def _json_schema(type_: Any) -> Any:
    """Return what pydantic says about a type that Everstep cannot describe, such as a dataclass with a tuple; None if it can't either."""
    try:
        return TypeAdapter(type_).json_schema()
    except Exception:  # noqa: BLE001 - any class may be a response type
        return None


def question(event: Any) -> str:
    """Return the data of a request as text for people."""
    data = event.data
    if is_approval(event):
        call = data.function_call
        arguments = call.arguments if isinstance(call.arguments, str) else json.dumps(to_plain(call.arguments), ensure_ascii=False)
        data = f"Approve {call.name}({arguments})?"
    if not isinstance(data, str):
        data = json.dumps(to_plain(data), ensure_ascii=False, default=str)
    return str(data).replace("\x00", "")[:_MOST_TEXT] or "(empty)"


def close(store: everstep.Store, line: Any, checkpoint: WorkflowCheckpoint, names: Mapping[str, str], known: Mapping[str, str]) -> None:
    """Close the questions that the workflow does not wait for any more; the program's own response is recorded as the answer.

    `names` are the gates of this checkpoint by request id, `known` those of the one before.
    """
    pending = {names[id] for id in checkpoint.pending_request_info_events}
    stale = [gate for gate in store.gates(line.id) if gate.open and gate.name not in pending]
    if not stale and pending.issuperset(known.values()):
        return  # no request was answered or cancelled here
    sent = [(one.original_request_info_event, one.data) for batch in checkpoint.messages.values() for one in batch]
    given = {known.get(event.request_id): data for event, data in sent if event is not None}
    for gate in stale:
        value, by = (to_plain(given[gate.name]), PROGRAM) if gate.name in given else (None, MOVED_ON)
        try:
            store.answer(line.id, gate.address, value, by=by)
        except AlreadyAnswered:
            continue  # a person was faster; the workflow has a value
        except EverstepError:
            store.answer(line.id, gate.address, f"{value!r:.200}", by=by)  # only shown: the workflow has its value
    if not any(gate.answered and gate.name in pending for gate in store.gates(line.id)):
        line.answers()  # otherwise the run would be due, and a worker would resume it


def responses(store: everstep.Store, run: str, state: Mapping[str, Any], checkpoint: WorkflowCheckpoint) -> dict[str, Any]:
    """Return the responses that have come to the requests of a checkpoint, by their ids."""
    names = state[ABOUT].get(GATES, {})
    found = {gate.name: gate for gate in store.gates(run)} if names else {}
    out = {}
    for id, name in names.items():
        gate, event = found.get(name), checkpoint.pending_request_info_events.get(id)
        if gate is not None and gate.answered and gate.by != MOVED_ON:
            said = read_answer(gate.answer)[0] if gate.schema == _YES_NO else gate.answer
            out[id] = said if event is None else _response(event, said)
    return out


def _response(event: Any, answer: Any) -> Any:
    """Return an answer as the type that the executor expects."""
    if is_approval(event):
        return event.data.to_function_approval_response(read_answer(answer)[0])
    if _schema(event.response_type) is None or (isinstance(event.response_type, type) and isinstance(answer, event.response_type)):
        return answer
    try:
        return TypeAdapter(event.response_type).validate_python(answer)
    except Exception:  # noqa: BLE001 - the framework converts it, or says what is wrong with it
        return answer

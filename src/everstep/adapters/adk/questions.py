"""Calls that wait for a person as gates: confirmations of tools, requests for input, and tools that run long.

A gate is named by the tool and the end of the call's id: `confirm-send-1f83a2`, `input-1f83a2`, `result-order-1f83a2`. The state notes which
call belongs to which gate, in the commit of the event that has the call; a user's response to the call closes the gate. Relies on `line.ask`, `store.answer` and `store.gates`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from google.adk.events.event import Event
from google.adk.flows.llm_flows.functions import (
    REQUEST_CONFIRMATION_FUNCTION_CALL_NAME as CONFIRM,
)
from google.adk.flows.llm_flows.functions import (
    REQUEST_EUC_FUNCTION_CALL_NAME as CREDENTIAL,
)
from google.adk.flows.llm_flows.functions import (
    REQUEST_INPUT_FUNCTION_CALL_NAME as INPUT,
)
from google.genai import types

import everstep
from everstep.adapters.adk.values import to_plain
from everstep.adapters.shared.plain import name_of, to_text
from everstep.errors import AlreadyAnswered

_MOST_TEXT = 1_000
_NO_HINT = "Please approve or reject the tool call"  # ADK's own, for programs that answer
_PROGRAM, _MOVED_ON = "program", "moved on"
_YES_OR_NO = {
    "anyOf": [
        {"enum": ["yes", "no"]},
        {"type": "boolean"},
        {
            "type": "object",
            "properties": {"answer": {"enum": ["yes", "no"]}, "payload": {}},
            "required": ["answer"],
            "additionalProperties": False,
        },
    ]
}


class Asked(NamedTuple):
    """A call that waits for a person."""

    call: str
    function: str
    gate: str
    text: str
    invocation: str = ""

    @property
    def stored(self) -> dict[str, str]:
        return {"gate": self.gate, "function": self.function, "text": self.text, "invocation": self.invocation}


def asked_by(event: Event) -> list[Asked]:
    """Return the calls of an event that wait for a person. Requests for credentials are left out: a secret must not be stored as an answer."""
    ids, found = event.long_running_tool_ids or set(), []
    for call in event.get_function_calls():
        if call.id and call.id in ids and call.name and call.name != CREDENTIAL:
            found.append(_asked(call.id, call.name, call.args or {})._replace(invocation=event.invocation_id))
    return found


def answered_by(event: Event) -> dict[str, Any]:
    """Return the responses of the user in an event, by the ids of their calls, as plain data."""
    if event.author != "user":
        return {}  # a tool that runs long may report its progress itself
    return {result.id: to_plain(result.response, "event") for result in event.get_function_responses() if result.id}


def ask(line: Any, asked: list[Asked]) -> None:
    """Record a question for each call."""
    for one in asked:
        _ask(line, one.stored)


def _ask(line: Any, one: Mapping[str, str]) -> None:
    line.ask(one["gate"], one["text"], schema=_YES_OR_NO if one["function"] == CONFIRM else None)


def close(store: everstep.Store, line: Any, answered: Mapping[str, Any]) -> None:
    """Record the responses of the program as the answers to its gates, which need no other answer any more."""
    if answered:
        _answer(store, line, [gate for gate in store.gates(line.id) if gate.open and gate.name in answered], _PROGRAM, answered)


def answers(store: everstep.Store, line: Any, asked: Mapping[str, Mapping[str, str]]) -> list[types.Part]:
    """Return the responses to the calls that have an answer, of one invocation: ADK does not take those of several in one message.

    Questions that a killed process left open after its response are closed.
    """
    gates = {gate.name: gate for gate in line.answers()}  # the newest of a name
    waits = {one["gate"] for one in asked.values()}
    _answer(store, line, [gate for gate in gates.values() if gate.open and gate.name not in waits], _MOVED_ON, {})
    found: list[types.Part] = []
    invocation = None
    for call, one in asked.items():
        gate = gates.get(one["gate"])
        if gate is None:
            _ask(line, one)  # a fork of the session has no questions yet
        elif gate.answered and invocation in (None, one["invocation"]):
            invocation = one["invocation"]
            response = types.FunctionResponse(id=call, name=one["function"], response=_response(one["function"], gate.answer))
            found.append(types.Part(function_response=response))
    return found


def _asked(id: str, function: str, args: Mapping[str, Any]) -> Asked:
    end = name_of(id, "call").replace("-", "")[-6:]
    if function == CONFIRM:
        call, hint = args.get("originalFunctionCall") or {}, (args.get("toolConfirmation") or {}).get("hint")
        tool = str(call.get("name") or "tool")
        text = f"Let the agent call {tool}({to_text(call.get('args') or {})})?" + (
            f" {hint}" if hint and not hint.startswith(_NO_HINT) else ""
        )
        return Asked(id, function, f"confirm-{name_of(tool, 'tool')[:100]}-{end}", _shown(text))
    if function == INPUT:
        return Asked(id, function, f"input-{end}", _shown(str(args.get("message") or "The agent needs an input.")))
    return Asked(
        id, function, f"result-{name_of(function, 'tool')[:100]}-{end}", _shown(f"The result of {function}({to_text(dict(args))})?")
    )


def _shown(text: str) -> str:
    return text.replace("\x00", "")[:_MOST_TEXT]


def _response(function: str, answer: Any) -> dict[str, Any]:
    """Return what ADK expects as the response to a call."""
    if function == CONFIRM:
        if isinstance(answer, Mapping):
            return {"confirmed": answer["answer"] == "yes", **({"payload": answer["payload"]} if "payload" in answer else {})}
        return {"confirmed": answer in (True, "yes")}
    return dict(answer) if isinstance(answer, Mapping) else {"result": answer}


def _answer(store: everstep.Store, line: Any, gates: list[Any], by: str, answered: Mapping[str, Any]) -> None:
    for gate in gates:
        value = answered.get(gate.name)
        if gate.schema is not None:
            value = "yes" if isinstance(value, Mapping) and value.get("confirmed") is True else "no"
        try:
            store.answer(line.id, gate.address, value, by=by)
        except AlreadyAnswered:
            continue  # another process was faster; ADK has its response
    if gates:
        line.answers()  # otherwise the run would be due, and a worker would look at it

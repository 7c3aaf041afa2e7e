"""Interrupts as gates: `interrupt(…)` in a node asks a question of the run, which `everstep answer` and the inbox can answer.

A gate is named by the id of its interrupt. If the program itself resumes the graph, its value is recorded as the answer; if the graph moves on
without one, the question is closed. Relies on `line.ask`, `store.answer` and `store.gates`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from langgraph.checkpoint.serde.types import INTERRUPT
from langgraph.types import Interrupt

import everstep
from everstep.adapters.langgraph.pending import merged
from everstep.errors import AlreadyAnswered, EverstepError, InvalidArgument

_MOST_TEXT = 1_000
PROGRAM, MOVED_ON = "program", "moved on"


def gate_of(interrupt_id: str) -> str:
    """Return the name of the gate of an interrupt."""
    return f"interrupt-{interrupt_id[:12]}"


def ask(line: Any, interrupts: Any) -> None:
    """Record a question for each interrupt. A question that is open already is not asked again."""
    for one in interrupts if isinstance(interrupts, (list, tuple)) else ():
        if not isinstance(one, Interrupt):
            continue
        name, text = gate_of(one.id), question(one.value)
        schema = getattr(one, "response_schema", None)
        try:
            line.ask(name, text, schema=schema if isinstance(schema, dict) else None)
        except InvalidArgument:
            if not isinstance(schema, dict):
                raise
            line.ask(name, text)  # a schema with words that Everstep does not know: LangGraph checks the answer


def question(value: Any) -> str:
    """Return the value of an interrupt as text for people."""
    if not isinstance(value, str):
        value = json.dumps(value, ensure_ascii=False, default=str)
    return value.replace("\x00", "")[:_MOST_TEXT] or "(empty)"


def close(store: everstep.Store, line: Any, attached: Iterable[Any], task: str, values: Any) -> None:
    """Record the value that the program has resumed a task with as the answer to the task's open questions."""
    names = {
        gate_of(one["fields"]["id"])
        for found, _, _, channel, stored in merged(attached)
        if found == task and channel == INTERRUPT and isinstance(stored, (list, tuple))
        for one in stored
        if isinstance(one, dict)
    }
    open_ones = [gate for gate in store.gates(line.id) if gate.open and gate.name in names] if names else []
    value = values[-1] if isinstance(values, (list, tuple)) and values else values
    _answer(store, line, open_ones, value, PROGRAM)


def close_all(store: everstep.Store, line: Any) -> None:
    """Close the questions that the graph does not wait for any more."""
    _answer(store, line, [gate for gate in store.gates(line.id) if gate.open and gate.name.startswith("interrupt-")], None, MOVED_ON)


def _answer(store: everstep.Store, line: Any, gates: Iterable[Any], value: Any, by: str) -> None:
    answered = False
    for gate in gates:
        try:
            store.answer(line.id, gate.address, value, by=by)
        except AlreadyAnswered:
            continue  # another process was faster; the graph has its value
        except EverstepError:
            store.answer(line.id, gate.address, f"{value!r:.200}", by=by)  # the answer is only shown: the graph has its value
        answered = True
    if answered:
        line.answers()  # otherwise the run would be due, and a worker would resume it


def answers(store: everstep.Store, run: str, interrupts: Iterable[Any]) -> dict[str, Any]:
    """Return the answers to interrupts, by their ids; those without one are left out."""
    found = {gate.name: gate for gate in store.gates(run)}  # the newest of a name
    out = {}
    for one in interrupts:
        gate = found.get(gate_of(one.id))
        if gate is not None and gate.answered and gate.by != MOVED_ON:
            out[one.id] = gate.answer
    return out

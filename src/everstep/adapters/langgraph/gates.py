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
_TAKEN = "$taken/"  # an entry that is attached in the same commit as the value: the interrupt has got it, and no other one may
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


def taken(attached: Iterable[Any], task: str, again: Any) -> dict[str, bool]:
    """Return the entries that say which interrupts of a task have got their values: those that are stored and not raised again."""
    raised = {one.id for one in again if isinstance(one, Interrupt)} if isinstance(again, (list, tuple)) else set()
    ids = {
        one["fields"]["id"]
        for found, _, _, channel, stored in merged(attached)
        if found == task and channel == INTERRUPT and isinstance(stored, (list, tuple))
        for one in stored
        if isinstance(one, dict)
    }
    return dict.fromkeys([f"{_TAKEN}{id}" for id in sorted(ids - raised)], True)


def close(store: everstep.Store, line: Any, given: Iterable[str], values: Any) -> None:
    """Record the value that the program has resumed a task with as the answer to the questions of the interrupts that have got theirs."""
    names = {gate_of(name.removeprefix(_TAKEN)) for name in given}
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


def answers(store: everstep.Store, run: str, number: int, interrupts: Iterable[Interrupt]) -> dict[str, Any]:
    """Return the answers to the interrupts that a checkpoint waits for, by their ids; those without one are left out.

    An answer is given once. If the process dies after a subgraph has used an answer and before the graph above knows, the interrupt is still
    stored there; LangGraph would take the answer for the next question of the same task.
    """
    waiting = list(interrupts)
    if not waiting:
        return {}
    found = {gate.name: gate for gate in store.gates(run)}  # the newest of a name
    gone = {one.name for one in store.attached(run, prefix=_TAKEN) if one.number >= number}
    out = {}
    for one in waiting:
        if f"{_TAKEN}{one.id}" in gone:
            continue
        gate = found.get(gate_of(one.id))
        if gate is not None and gate.answered and gate.by != MOVED_ON:
            out[one.id] = gate.answer
    return out

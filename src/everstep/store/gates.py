"""The gates of a run, from its journal: question, deadline and answer. Reads only."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from everstep.backends.contract.core import Backend
from everstep.codec.values import decode
from everstep.fields import Shape, replace
from everstep.records import Kind, Record, RunRow, Status
from everstep.store.journal.entries import AnswerEntry, GateEntry, open_entry
from everstep.store.journal.steps import name_of
from everstep.store.load import checked_from
from everstep.store.views import when


class Gate(Shape, frozen=True):
    """A decision that a run waits for, or waited for. `schema` is a JSON Schema, or None if any answer is valid."""

    run: str
    address: str
    ask: str | None
    schema: dict[str, Any] | None
    asked_at: datetime
    deadline: datetime | None = None
    answered: bool = False
    answer: Any = None
    by: str | None = None
    cancelled: bool = False

    @property
    def open(self) -> bool:
        """Whether the run waits for an answer: there is none yet, and neither the gate nor the run was cancelled."""
        return not self.answered and not self.cancelled

    @property
    def name(self) -> str:
        return name_of(self.address)

    @property
    def choices(self) -> list[Any] | None:
        return self.schema.get("enum") if self.schema else None


def list_gates(backend: Backend, row: RunRow) -> list[Gate]:
    """Return all gates that a run has reached, in the order in which they were asked."""
    found: dict[str, Gate] = {}
    for record in checked_from(backend, row, 1):
        if record.kind not in (Kind.GATE, Kind.ANSWER):
            continue
        address, entry = record.note or "", open_entry(record)
        if isinstance(entry, GateEntry):
            found[address] = _asked(row, record, address, entry)
        elif isinstance(entry, AnswerEntry):
            found[address] = _answered(row, record, address, entry, found.get(address))
    if row.status == Status.CANCELLED:
        return [replace(gate, cancelled=True) if gate.open else gate for gate in found.values()]
    return list(found.values())


def open_gates(backend: Backend, row: RunRow) -> list[Gate]:
    return [gate for gate in list_gates(backend, row) if gate.open]


def _asked(row: RunRow, record: Record, address: str, gate: GateEntry) -> Gate:
    return Gate(row.id, address, gate.ask, gate.schema, when(record.at), None if gate.deadline is None else when(gate.deadline))


def _answered(row: RunRow, record: Record, address: str, answer: AnswerEntry, gate: Gate | None) -> Gate:
    known = gate or Gate(row.id, address, None, None, when(record.at))
    if answer.flags.get("cancelled"):
        return Gate(row.id, address, known.ask, known.schema, known.asked_at, known.deadline, cancelled=True)
    return Gate(
        row.id, address, known.ask, known.schema, known.asked_at, known.deadline, True,
        None if answer.flags.get("expired") else decode(answer.value), answer.by,
    )  # fmt: skip

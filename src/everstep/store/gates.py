"""The gates of a run, from its journal: question, deadline and answer. Reads only."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from everstep.backends.contract.core import Backend
from everstep.codec.values import decode
from everstep.errors import DamagedRecord, DamagedRun
from everstep.fields import Shape, replace
from everstep.records import ZERO, Kind, Message, Record, RunRow, Status, record_fault
from everstep.store.encryption.frames import content_of_message, frames_of
from everstep.store.journal.entries import AnswerEntry, GateEntry, open_as, open_entry
from everstep.store.journal.steps import name_of
from everstep.store.load import checked_from, refuse_deleted
from everstep.store.refs import verified
from everstep.store.views import Page, when


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
    """Return all gates that a run has reached, in the order in which they were asked. Proves the whole journal."""
    return _gates(row, checked_from(backend, row, 1))


def indexed_gates(backend: Backend, row: RunRow) -> list[Gate]:
    """Do the same by an index: proves each record, and does not read the others."""
    records = [record.opened_by(frames_of(backend, row)) for record in backend.gates(row.id) if record.seq <= row.head_seq]
    prove(backend, row, records)
    return _gates(row, records)


def with_posted(backend: Backend, row: RunRow, gates: list[Gate]) -> list[Gate]:
    """Return gates with the answers that were posted and that the run has not recorded yet."""
    if not any(gate.open for gate in gates):
        return gates
    said = {message.name: _proved(backend, row, message) for message in backend.messages(row.id)}  # all: damage may have changed a name
    return [_posted(backend, row, gate, said.get(f"answer:{gate.address}")) if gate.open else gate for gate in gates]


def _proved(backend: Backend, row: RunRow, message: Message) -> Message:
    if message.digest(backend.seal) != message.check or message.key != row.key:
        raise DamagedRun(f"the message {message.name!r} to run {row.id!r} does not match its digest")
    return message


def _posted(backend: Backend, row: RunRow, gate: Gate, message: Message | None) -> Gate:
    if message is None:
        return gate
    said = content_of_message(backend, row, message)
    if not isinstance(said, dict) or "value" not in said:
        raise DamagedRun(f"the message {message.name!r} to run {row.id!r} does not contain an answer")
    return replace(gate, answered=True, answer=said["value"], by=said.get("by"))


def prove(backend: Backend, row: RunRow, records: Sequence[Record]) -> None:
    """Check single records against their digests; this needs only the digests of the records before them."""
    before = backend.digests(row.id, [record.seq - 1 for record in records]) if records else {}
    for record in records:
        fault = record_fault(before.get(record.seq - 1, ZERO), record, row.key, backend.seal)
        if fault:
            refuse_deleted(backend, row)
            raise DamagedRecord(row.id, record.seq, fault)


def _gates(row: RunRow, records: Iterable[Record]) -> list[Gate]:
    return with_records(row, (), records)


def with_records(row: RunRow, gates: Iterable[Gate], records: Iterable[Record]) -> list[Gate]:
    """Return gates with those that later records ask or answer."""
    found = {gate.address: gate for gate in gates}
    for record in records:
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


def questions(backend: Backend, workflow: str | None, after: int, limit: int | None) -> Page[Gate]:
    """Return the open gates of all waiting runs, those that were created first first. An answer that was posted counts."""
    found = backend.unanswered(workflow, after, None if limit is None else limit + 1)
    page: Page[Gate] = Page()
    rows: dict[str, RunRow | None] = {}
    for _, record in found[:limit]:
        if record.run not in rows:
            rows[record.run] = backend.run(record.run)
        row = rows[record.run]
        if row is None or record.seq > verified(row, backend.seal).head_seq:
            continue  # deleted meanwhile
        prove(backend, row, [record])
        gate = _asked(row, record, record.note or "", open_as(record.opened_by(frames_of(backend, row)), GateEntry))
        page += [one for one in with_posted(backend, row, [gate]) if one.open]
    page.next = found[limit - 1][0] if limit is not None and len(found) > limit else None
    return page

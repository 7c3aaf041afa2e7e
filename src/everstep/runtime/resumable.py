"""Whether a run can be resumed by this process, and what stands in the way. Reads only; whatever it accepts, `resume` can do."""

from __future__ import annotations

from everstep.backends.contract.core import Backend
from everstep.clock import clock
from everstep.errors import EverstepError
from everstep.fields import Shape, field
from everstep.records import RunRow, Status
from everstep.runtime import workflow
from everstep.runtime.driving_store import Host
from everstep.store.gates import open_gates
from everstep.store.journal.entries import read
from everstep.store.load import load
from everstep.store.refs import find_run


class Resumable(Shape, frozen=True):
    """True if a resume would go on with the run; otherwise the reasons say why not."""

    run: str
    reasons: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return not self.reasons

    def __str__(self) -> str:
        return f"{self.run} can be resumed" if self else f"{self.run} cannot be resumed: {'; '.join(self.reasons)}"


def can_resume(store: Host, run_id: str) -> Resumable:
    row = find_run(store.backend, run_id)
    broken = _journal(store.backend, row)
    if broken is not None:
        return Resumable(row.id, [broken])  # nothing else can be told of it
    reasons = (_status(store.backend, row), _definition(store, row), _waits(store.backend, row))
    return Resumable(row.id, [reason for reason in reasons if reason])


def _status(backend: Backend, row: RunRow) -> str | None:
    if row.status in (Status.SUCCEEDED, Status.CANCELLED):
        return f"it has {row.status}" if row.status == Status.SUCCEEDED else "it was cancelled"
    holder = backend.holder(row)
    return None if holder is None else f"process {holder.pid} on {holder.host} has it open"


def _journal(backend: Backend, row: RunRow) -> str | None:
    try:
        read(backend, row, 1)
        if row.checkpoints:
            load(backend, row, row.checkpoints)
    except EverstepError as error:
        return error.message
    return None


def _definition(store: Host, row: RunRow) -> str | None:
    try:
        flow = workflow.workflow_of(store, row.id)
        workflow.definition_change(store, row, flow, workflow.beginning(store, row), False)
    except EverstepError as error:
        return error.message
    return None


def _waits(backend: Backend, row: RunRow) -> str | None:
    if row.status != Status.WAITING or row.id in backend.due(clock.now_us()):
        return None
    gates = open_gates(backend, row)
    return f"it waits for an answer at {', '.join(gate.address for gate in gates)}" if gates else None

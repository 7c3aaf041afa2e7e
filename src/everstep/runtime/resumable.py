"""Whether this process can resume a run, and what prevents it. Reads only; `resume` succeeds on every run that this accepts."""

from __future__ import annotations

from everstep.backends.contract.core import Backend, Query
from everstep.clock import clock
from everstep.errors import EverstepError
from everstep.fields import Shape, field
from everstep.records import CHILD, RunRow, Status
from everstep.runtime import workflow
from everstep.runtime.engine_store import EngineStore
from everstep.runtime.outcome import waited_for
from everstep.store.load import checked_from, load
from everstep.store.refs import find_run


class Resumable(Shape, frozen=True):
    """True if a resume would continue the run; otherwise `reasons` says why not."""

    run: str
    reasons: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return not self.reasons

    def __str__(self) -> str:
        return f"{self.run} can be resumed" if self else f"{self.run} cannot be resumed: {'; '.join(self.reasons)}"


def can_resume(store: EngineStore, run_id: str) -> Resumable:
    row = find_run(store.backend, run_id)
    broken = _journal(store.backend, row)
    if broken is not None:
        return Resumable(row.id, [broken])  # the other checks cannot read it
    reasons = (_status(store.backend, row), _definition(store, row), _waits(store, row))
    return Resumable(row.id, [reason for reason in reasons if reason])


def _status(backend: Backend, row: RunRow) -> str | None:
    if row.status in (Status.SUCCEEDED, Status.CANCELLED):
        return f"it has {row.status}" if row.status == Status.SUCCEEDED else "it was cancelled"
    holder = backend.holder(row)
    return None if holder is None else f"process {holder.pid} on {holder.host} has it open"


def _journal(backend: Backend, row: RunRow) -> str | None:
    try:
        checked_from(backend, row, 1)
        if row.checkpoints:
            load(backend, row, row.checkpoints)
    except EverstepError as error:
        return error.message
    return None


def _definition(store: EngineStore, row: RunRow) -> str | None:
    try:
        flow = workflow.workflow_of(store, row.id)
        if isinstance(flow, workflow.Workflow):
            workflow.definition_change(store, row, flow, workflow.beginning(store, row), False)
    except EverstepError as error:
        return error.message
    return None


def _waits(store: EngineStore, row: RunRow) -> str | None:
    """Return what a resume would wait for again. A pause does not count: a resume lifts it."""
    if row.status != Status.WAITING or _has_news(store.backend, row, clock.now_us()):
        return None
    gates = [gate.address if gate.run == row.id else f"{gate.address} of run {gate.run}" for gate in waited_for(store, row)]
    return f"it waits for an answer at {', '.join(gates)}" if gates else None


def _has_news(backend: Backend, row: RunRow, now: int) -> bool:
    """Whether an answer or a time that a run, or one of its children, waits for has come."""
    if any(message.due is not None and message.due <= now for message in backend.messages(row.id)):
        return True
    children = backend.runs(Query(parent=row.id, status=Status.WAITING))
    return any(child.parent_number == CHILD and _has_news(backend, child, now) for _, child in children)

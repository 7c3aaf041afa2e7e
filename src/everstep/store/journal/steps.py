"""The recorded steps of a run, for listings. Reads the journal, proved by its chain; writes nothing."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from everstep.backends.contract.core import Backend
from everstep.fields import Shape, field
from everstep.records import Kind, Record, RunRow
from everstep.store.journal.entries import StepEntry, open_as
from everstep.store.journal.results import load_result, show_input
from everstep.store.load import checked_from
from everstep.store.views import when


class Step(Shape, frozen=True):
    """A recorded step."""

    address: str
    status: str
    attempt: int
    started: datetime
    ended: datetime
    tokens: int
    cost: float
    worker: str
    input: str
    error: dict[str, Any] | None
    skipped: bool
    seq: int
    epoch: int
    _load: Callable[[], Any] = field(repr=False, compare=False)

    @property
    def name(self) -> str:
        return name_of(self.address)

    @property
    def seconds(self) -> float:
        return (self.ended - self.started).total_seconds()

    @property
    def result(self) -> Any:
        """The result of the step; read on access."""
        return self._load()


def name_of(address: str) -> str:
    """Return the name in the last part of an address."""
    last = address.rpartition("/")[2]
    return last.partition("@")[0] if "@" in last else last.rpartition("#")[0]


def list_steps(backend: Backend, row: RunRow) -> list[Step]:
    """Return every recorded step of a run, in the order in which they ended, failed attempts too."""
    records = [r for r in checked_from(backend, row, 1) if r.kind == Kind.STEP and r.body is not None]
    return [as_step(backend, row, record) for record in records]


def as_step(backend: Backend, row: RunRow, record: Record) -> Step:
    step = open_as(record, StepEntry)
    return Step(
        record.note or "", step.status, step.attempt, when(step.started), when(step.ended), step.tokens, step.cost, step.worker,
        show_input(step.input), step.error, bool(step.flags.get("skipped")), record.seq, record.epoch,
        lambda: load_result(backend, row.family, step.form, step.result),
    )  # fmt: skip

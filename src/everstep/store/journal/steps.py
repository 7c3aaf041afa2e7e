"""The recorded steps of a run, for listings. Reads the journal, proved by its chain; writes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

from everstep.backends.contract.core import Backend
from everstep.errors import InvalidArgument, NotFound
from everstep.fields import Shape, field
from everstep.records import Kind, Record, RunRow
from everstep.store.journal.entries import StepEntry, open_as
from everstep.store.journal.results import Arguments, kept_arguments, load_result, show_input
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
    drawn: bool = False
    """Whether it is a value of `run.now()`, `run.random()` or `run.uuid()`, not the call of a function."""

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


class StepDetail(Shape, frozen=True):
    """One step of a run with all its recorded attempts. Its status, input and error are those of the newest attempt."""

    run: str
    address: str
    attempts: tuple[Step, ...]
    arguments: Arguments | None
    """The input as values, if it was short enough to be kept whole; `input` describes it in any case."""
    output: Any
    """The return value; None if it has not succeeded."""
    error: BaseException | None
    """The error of the newest attempt, if that failed; `StepFailed` if its class is not known here."""

    @property
    def name(self) -> str:
        return name_of(self.address)

    @property
    def status(self) -> str:
        """succeeded, failed or running."""
        return self.attempts[-1].status

    @property
    def input(self) -> str:
        """The input in words, shortened if it is long."""
        return self.attempts[-1].input

    def __repr__(self) -> str:
        count = f", attempts={len(self.attempts)}" if len(self.attempts) > 1 else ""
        return f"<everstep.StepDetail {self.run} {self.address} {self.status}{count}>"


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
        lambda: load_result(backend, row.family, step.form, step.result), bool(step.flags.get("value")),
    )  # fmt: skip


def step_detail(backend: Backend, row: RunRow, step: str) -> StepDetail:
    """Return one step by its address, or by its name for its first use."""
    steps = [r for r in checked_from(backend, row, 1) if r.kind == Kind.STEP]
    address = address_named(step, (r.note for r in steps))
    records = [r for r in steps if r.note == address and r.body is not None]
    if not records:
        raise _no_step(backend, row, address)
    attempts = tuple(as_step(backend, row, record) for record in records)
    newest = attempts[-1]
    error = None
    if newest.error is not None:
        from everstep.store.journal.failures import rebuilt  # only when something failed

        error = rebuilt(newest.error, f"step {address} of run {row.id}")
    return StepDetail(row.id, address, attempts, kept_arguments(open_as(records[-1], StepEntry).input), newest.result, error)


def address_named(step: str, recorded: Iterable[str | None]) -> str:
    """Return the address that a name means: its first use, also if all uses have keys. `recorded` has the addresses of the run, in order."""
    if not isinstance(step, str) or not step:
        raise InvalidArgument(f"step must be a name or an address, got {step!r:.60}", remedy="store.steps(run_id) shows the addresses.")
    last = step.rpartition("/")[2]
    if "#" in last or "@" in last:
        return step
    first, known = f"{step}#0", list(recorded)
    if first in known:
        return first
    return next((note for note in known if note and note.startswith(f"{step}@") and "/" not in note[len(step) :]), first)


def _no_step(backend: Backend, row: RunRow, address: str) -> NotFound:
    from difflib import get_close_matches

    known = {r.note for r in checked_from(backend, row, 1) if r.kind == Kind.STEP and r.note}
    near = get_close_matches(address, known, 3, 0.5)
    asked = f"Did you mean {', '.join(near)}?" if near else f"store.steps({row.id!r}) lists its steps."
    return NotFound(f"run {row.id!r} has no recorded step {address!r}", remedy=asked)

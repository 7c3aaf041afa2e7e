"""The outcome of an attempt, or of a run now, masked: its input, its result or error, the gates that it waits at, and its report."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from everstep.fields import Shape
from everstep.views.json import Stored
from everstep.views.masking import Masking
from everstep.views.run import GateView, gate_view

if TYPE_CHECKING:
    from everstep.api import Store
    from everstep.runtime.outcome import Outcome
    from everstep.runtime.report import Report
    from everstep.runtime.steps.difference import Difference
    from everstep.store.journal.results import Arguments


class ErrorView(Shape, frozen=True):
    """The class and the text of an error."""

    type: str
    message: str


class InputView(Shape, frozen=True):
    """The arguments of a call."""

    args: Stored
    kwargs: Stored


class DifferenceView(Shape, frozen=True):
    """A difference between a recorded and a validated step."""

    step: str
    what: str
    path: Stored
    recorded: str
    now: str


class ReportView(Shape, frozen=True):
    """The report of an attempt: steps kept and run, and what that saved."""

    attempt: int
    kept: int
    executed: int
    seconds: float
    seconds_saved: float
    tokens_saved: int
    cost_saved: float
    unused: list[str]
    new: list[str]
    not_reached: list[str]
    definition_changed: bool
    differences: tuple[DifferenceView, ...]


class OutcomeView(Shape, frozen=True):
    """The end of one attempt at a run."""

    run: str
    status: str
    result: Stored
    error: ErrorView | None
    reason: str | None
    gates: tuple[GateView, ...]
    report: ReportView
    input: InputView | None = None


def outcome(store: Store, mask: Masking, run: str) -> OutcomeView:
    """Return the outcome of a run at this moment, with its input and, if it has ended, its result or error."""
    return outcome_view(store.outcome(run), mask)


def outcome_view(outcome: Outcome[Any], mask: Masking) -> OutcomeView:
    """Return an outcome, masked."""
    error = outcome.error
    return OutcomeView(
        outcome.run, outcome.status, mask(outcome.result), None if error is None else ErrorView(type(error).__qualname__, mask.text(str(error))),
        mask(outcome.reason), tuple(gate_view(gate, mask) for gate in outcome.gates), report_view(outcome.report, mask),
        input_view(outcome.input, mask),
    )  # fmt: skip


def input_view(given: Arguments | None, mask: Masking) -> InputView | None:
    """Return the arguments of a call, masked."""
    return None if given is None else InputView(mask(list(given.args)), mask(given.kwargs))


def report_view(report: Report, mask: Masking) -> ReportView:
    """Return a report, masked."""
    return ReportView(
        report.attempt, report.kept, report.executed, report.seconds, report.seconds_saved, report.tokens_saved, report.cost_saved,
        report.unused, report.new, report.not_reached, bool(report.changed), tuple(_difference(one, mask) for one in report.differences),
    )  # fmt: skip


def _difference(one: Difference, mask: Masking) -> DifferenceView:
    return DifferenceView(one.address, one.what, mask(list(one.path)), mask(one.recorded), mask(one.now))

"""One step of a run, masked: its input, its output or error, and its attempts."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from everstep.fields import Shape
from everstep.store.journal.results import Arguments
from everstep.views.json import Stored
from everstep.views.masking import Masking
from everstep.views.outcome import InputView, input_view

if TYPE_CHECKING:
    from everstep.api import Store
    from everstep.store.journal.steps import Step


class StepError(Shape, frozen=True):
    """The recorded error of an attempt."""

    type: str
    message: str
    traceback: str


class AttemptView(Shape, frozen=True):
    """One recorded attempt at a step, masked."""

    attempt: int
    status: str
    started: datetime
    ended: datetime
    seconds: float
    tokens: int
    cost: float
    worker: str
    skipped: bool
    error: StepError | None


class StepView(Shape, frozen=True):
    """A step of a run, masked. `arguments` is None if the input was too long to be kept: `input` then describes it in words."""

    run: str
    step: str
    name: str
    status: str
    input: str
    arguments: InputView | None
    output: Stored
    error: StepError | None
    attempts: tuple[AttemptView, ...]


def step(store: Store, mask: Masking, run: str, address: str) -> StepView:
    """Return one step of a run by its address, or by its name, which means the first step with that name."""
    found = store.step(run, address)
    attempts = tuple(_attempt(one, mask) for one in found.attempts)
    arguments = input_view(found.arguments, mask)
    words = mask.text(found.input) if arguments is None else str(Arguments(tuple(arguments.args), arguments.kwargs))
    return StepView(
        found.run, found.address, found.name, found.status, words, arguments, mask(found.output), attempts[-1].error,
        attempts,
    )  # fmt: skip


def _attempt(one: Step, mask: Masking) -> AttemptView:
    return AttemptView(
        one.attempt, one.status, one.started, one.ended, one.seconds, one.tokens, one.cost, one.worker, one.skipped, _error(one, mask)
    )


def _error(one: Step, mask: Masking) -> StepError | None:
    said = one.error
    if said is None:
        return None
    return StepError(str(said.get("type")), mask.text(str(said.get("message"))), mask.text(str(said.get("traceback") or "")))

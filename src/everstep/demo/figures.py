"""What a demo has shown, as data: each figure is read from the store or from the report of a resume. No I/O."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from everstep.fields import Shape


class Killed(Shape, frozen=True):
    """The process that died, and what was on disk by then."""

    run: str
    pid: int
    signal: int
    inside: str
    steps_on_disk: int
    checkpoints_on_disk: int


class Resumed(Shape, frozen=True):
    """What the new process kept and did; the figures are those of the resume report."""

    pid: int
    steps_kept: int
    steps_run: int
    seconds_saved: float
    tokens_saved: int
    cost_saved: float


class Compared(Shape, frozen=True):
    """The run that was killed beside one that nobody disturbed."""

    run: str
    pid: int
    answer: str
    undisturbed_answer: str
    same_answer: bool
    same_state: bool


class Forked(Shape, frozen=True):
    """The fork before the decision, and how its ending differs."""

    run: str
    ref: str
    edit: dict[str, str]
    steps_kept: int
    steps_run: int
    answer: str
    changes: list[dict[str, Any]]


class Sizes(Shape, frozen=True):
    """Bytes. A full copy is the state of a checkpoint as JSON; `stored` holds the results of all steps, too."""

    checkpoints: int
    full_copies: int
    stored: int


class Facts(Shape, frozen=True):
    """All that a demo has shown."""

    store: str
    question: str
    killed: Killed
    resumed: Resumed
    compared: Compared
    forked: Forked
    sizes: Sizes
    whole: bool
    commands: list[str]
    seconds: float

    @property
    def ok(self) -> bool:
        """Whether all came out as promised."""
        return self.compared.same_answer and self.compared.same_state and bool(self.forked.changes) and self.whole

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "ok": self.ok}

"""The results of a demo, as data: each figure is read from the store or from the report of a resume. No I/O."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from everstep.fields import Shape


class Killed(Shape, frozen=True):
    """The killed process, and the records on disk at that time."""

    run: str
    pid: int
    signal: int
    inside: str
    steps_on_disk: int
    checkpoints_on_disk: int


class Resumed(Shape, frozen=True):
    """The steps that the new process kept and ran, with the figures of the resume report."""

    pid: int
    steps_kept: int
    steps_run: int
    seconds_saved: float
    tokens_saved: int
    cost_saved: float


class Compared(Shape, frozen=True):
    """The killed run compared with an undisturbed one."""

    run: str
    pid: int
    answer: str
    undisturbed_answer: str
    same_answer: bool
    same_state: bool


class Forked(Shape, frozen=True):
    """The fork before the decision, and the differences of its result."""

    run: str
    ref: str
    edit: dict[str, str]
    steps_kept: int
    steps_run: int
    answer: str
    changes: list[dict[str, Any]]


class Sizes(Shape, frozen=True):
    """Sizes in bytes. A full copy is the state of a checkpoint as JSON; `stored` includes the results of all steps."""

    checkpoints: int
    full_copies: int
    stored: int


class Figures(Shape, frozen=True):
    """All results of a demo."""

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
        """Whether every comparison came out as promised."""
        return self.compared.same_answer and self.compared.same_state and bool(self.forked.changes) and self.whole

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "ok": self.ok}

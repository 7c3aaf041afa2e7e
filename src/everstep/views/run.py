"""One run: its checkpoints, the gates that it waits at, its forks and its queue entry. Reads no state and not the whole journal."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any

from everstep.errors import Damaged
from everstep.fields import Shape
from everstep.records import Status
from everstep.store.gates import Gate
from everstep.store.lookup import unanswered
from everstep.store.views import Checkpoint
from everstep.views.json import Beside, Stored
from everstep.views.masking import Masking
from everstep.views.queues import QueueEntryView, TaskView, queue_entry_view, task_view
from everstep.views.runs import RunView, list_runs, run_view

if TYPE_CHECKING:
    from everstep.api import Store
    from everstep.views.outcome import InputView

_PAGE = 500


class CheckpointView(Shape, frozen=True):
    """A checkpoint, masked."""

    ref: str
    run: str
    number: int
    at: datetime
    kind: str
    trigger: str | None
    step: str | None
    note: str | None
    tags: tuple[str, ...]
    meta: Stored
    progress: tuple[float, float] | None
    used: dict[str, float]
    digest: str
    pruned: bool
    percent: Beside[float | None] = None


class GateView(Shape, frozen=True):
    """A gate, masked. `gate` is its name, which `answer` takes."""

    run: str
    gate: str
    address: str
    ask: str | None
    schema: Stored
    asked_at: datetime
    deadline: datetime | None
    answered: bool
    answer: Stored
    by: str | None
    cancelled: bool

    @property
    def open(self) -> bool:
        """Whether the run waits for its answer."""
        return not self.answered and not self.cancelled

    @property
    def choices(self) -> list[Stored] | None:
        found = self.schema.get("enum") if isinstance(self.schema, dict) else None
        return found if isinstance(found, list) else None


class RunDetail(Shape, frozen=True):
    """A run with its newest checkpoints, its open gates, its newest forks and children, and its queue entry."""

    run: RunView
    checkpoints: tuple[CheckpointView, ...]
    gates: tuple[GateView, ...]
    forks: tuple[RunView, ...]
    queue_entry: QueueEntryView | None
    input: InputView | None = None
    """The arguments of the workflow; None for a run that was opened with `store.run`."""
    result: Stored = None
    """The result of a run that has succeeded."""
    task: Beside[TaskView | None] = None
    """The request with which it was enqueued; also for a run that has ended and has no queue entry any more."""
    unread: Beside[str | None] = None
    """Why the input and the result could not be read."""


def checkpoint_view(one: Checkpoint, mask: Masking) -> CheckpointView:
    """A checkpoint, masked."""
    return CheckpointView(
        one.ref, one.run, one.number, one.at, one.kind, one.trigger, one.step, mask(one.note), one.tags, mask(one.meta), one.progress,
        one.used, one.digest, one.pruned, one.percent,
    )  # fmt: skip


def gate_view(gate: Gate, mask: Masking) -> GateView:
    """A gate, masked."""
    return GateView(
        gate.run, gate.name, gate.address, mask(gate.ask), mask(gate.schema), gate.asked_at, gate.deadline, gate.answered,
        mask(gate.answer), gate.by, gate.cancelled,
    )  # fmt: skip


def checkpoint(store: Store, mask: Masking, ref: str) -> CheckpointView:
    """Return the checkpoint that a ref names."""
    return checkpoint_view(store.checkpoint(ref), mask)


def open_gates(store: Store, mask: Masking, run: str) -> list[GateView]:
    """Return the gates that a run waits at."""
    return [gate_view(gate, mask) for gate in store.gates(run) if gate.open]


def inbox(store: Store, mask: Masking, limit: int, progress: Callable[[int, int], object], **filters: Any) -> tuple[list[GateView], bool]:
    """Return the gates of all runs that need an answer, those of the oldest runs first, and whether there are more than `limit`."""
    found: list[GateView] = []
    after, done = None, 0
    while True:
        page = store.runs(status=Status.WAITING, oldest_first=True, limit=_PAGE, after=after, **filters)
        for run in page:
            done += 1
            found += [gate_view(gate, mask) for gate in unanswered(store, run.id)]
            progress(done, done if page.next is None else done + _PAGE)
            if len(found) > limit:
                return found[:limit], True
        after = page.next
        if after is None:
            return found, False


def detail(store: Store, mask: Masking, run: str, checkpoints: int = 10, forks: int = 10) -> RunDetail:
    """Return a run with its newest `checkpoints` and its newest `forks`."""
    from everstep.queues.entries import task_and_entry

    info = store.get(run)
    page = store.checkpoints(info.id, limit=checkpoints)
    gates = open_gates(store, mask, info.id) if info.status == "waiting" else []
    below = list_runs(store, mask, parent=info.id, limit=forks).runs
    task, entry = task_and_entry(store, info)
    given, result, unread = _ends(store, mask, info.id)
    return RunDetail(
        run_view(store, info, mask), tuple(checkpoint_view(one, mask) for one in page), tuple(gates), below,
        None if entry is None else queue_entry_view(entry, mask), given, result, None if task is None else task_view(task, mask), unread,
    )  # fmt: skip


def _ends(store: Store, mask: Masking, run: str) -> tuple[InputView | None, Stored, str | None]:
    """Return the input and the result of a run. If they are damaged, say so: the rest of the run can still be shown."""
    from everstep.views.outcome import input_view

    try:
        found = store.outcome(run)
    except Damaged as error:
        return None, None, mask.text(error.message)
    return input_view(found.input, mask), mask(found.result), None

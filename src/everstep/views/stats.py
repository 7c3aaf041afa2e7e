"""Statistics of a store, its runs and steps, counted over the journals of many runs. Keeps only numbers in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import datetime
from heapq import nlargest
from typing import TYPE_CHECKING

from everstep.fields import Shape, field
from everstep.store.lookup import attempts, full_copies
from everstep.store.views import RunInfo
from everstep.views.queues import QueueView, queues
from everstep.views.runs import seen_status

if TYPE_CHECKING:
    from everstep.api import Store

_PAGE = 500
_LOOKED_AT = 20


class StepStats(Shape):
    """The steps of the newest runs: count, times in seconds, cost."""

    runs: int
    count: int
    failed: int
    error_rate: float
    seconds: float
    tokens: int
    cost: float
    p50: float
    p95: float
    p99: float


class ResumeStats(Shape):
    """The number of runs that were resumed, and how many of them succeeded."""

    runs: int
    succeeded: int


class StatsView(Shape):
    """Counts of a store. `full_copies_bytes` estimates the size of full copies of the state at every checkpoint."""

    store: dict[str, int]
    statuses: dict[str, int]
    steps: StepStats
    checkpoints: int
    full_copies_bytes: int | None
    resumes: ResumeStats
    queues: list[QueueView]


class Counted(Shape):
    """The running totals of a count."""

    statuses: Counter[str] = field(default_factory=Counter)
    runs: int = 0
    steps: int = 0
    failed: int = 0
    seconds: float = 0.0
    tokens: int = 0
    cost: float = 0.0
    checkpoints: int = 0
    resumed: int = 0
    resumed_well: int = 0
    times: list[float] = field(default_factory=list)
    stored: int = 0
    copies: int | None = None

    def percentiles(self) -> tuple[float, float, float]:
        times = sorted(self.times) or [0.0]
        last = len(times) - 1
        return times[round(0.5 * last)], times[round(0.95 * last)], times[round(0.99 * last)]


def stats(store: Store, since: datetime | float | None, most: int, progress: Callable[[int, int], None]) -> StatsView:
    """Count what is stored, and the steps of the `most` newest runs."""
    stored, lines = store.stats(), queues(store)
    found = count(store, since, most, progress)
    rate = found.failed / found.steps if found.steps else 0.0
    totals = (found.seconds, found.tokens, found.cost)
    steps = StepStats(found.runs, found.steps, found.failed, rate, *totals, *found.percentiles())
    return StatsView(
        stored, dict(found.statuses), steps, found.checkpoints, found.copies, ResumeStats(found.resumed, found.resumed_well), lines
    )


def count(store: Store, since: datetime | float | None, most: int, progress: Callable[[int, int], None]) -> Counted:
    """Count all runs by status, and the steps of the newest ones."""
    out = Counted()
    largest: list[tuple[int, str]] = []
    after = None
    while True:
        page = store.runs(limit=_PAGE, after=after, since=since)
        for run in page:
            out.statuses[seen_status(store, run)[0]] += 1
            out.checkpoints += run.checkpoints
            out.stored += run.stored_bytes
            if out.runs < most:
                _add(out, store, run)
                progress(out.runs, most)
        largest = nlargest(_LOOKED_AT, [*largest, *((run.stored_bytes, run.id) for run in page if run.checkpoints)])
        after = page.next
        if after is None:
            out.copies = full_copies(store, [id for _, id in largest], out.stored)
            return out


def _add(out: Counted, store: Store, run: RunInfo) -> None:
    out.runs += 1
    found = attempts(store, run.id)
    for step in store.steps(run.id):
        if step.ended < run.created_at:  # a fork has the steps of its parent, which are counted there
            continue
        out.steps += 1
        out.failed += step.status != "succeeded"
        out.seconds += step.seconds
        out.tokens += step.tokens
        out.cost += step.cost
        out.times.append(step.seconds)
        found.add(step.epoch)
    if len(found) > 1:
        out.resumed += 1
        out.resumed_well += run.status == "succeeded"

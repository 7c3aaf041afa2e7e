"""Counts steps, attempts and costs over the journals of many runs. Reads only; nothing is kept in memory but numbers."""

from __future__ import annotations

from collections import Counter
from heapq import nlargest
from typing import Any

from everstep.fields import Shape, field
from everstep.records import Kind
from everstep.store.journal.entries import said_in
from everstep.store.load import unproved

_PAGE = 500
_LOOKED_AT = 20


class Counted(Shape):
    """What a count came to."""

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
    """About how many bytes a full copy of the state at every checkpoint would take."""

    def percentiles(self) -> tuple[float, float, float]:
        times = sorted(self.times) or [0.0]
        last = len(times) - 1
        return times[round(0.5 * last)], times[round(0.95 * last)], times[round(0.99 * last)]

    def facts(self) -> dict[str, Any]:
        p50, p95, p99 = self.percentiles()
        return {
            "statuses": dict(self.statuses),
            "steps": {
                "runs": self.runs, "count": self.steps, "failed": self.failed, "error_rate": self.failed / self.steps if self.steps else 0.0,
                "seconds": self.seconds, "tokens": self.tokens, "cost": self.cost, "p50": p50, "p95": p95, "p99": p99,
            },
            "checkpoints": self.checkpoints,
            "full_copies_bytes": self.copies,
            "resumes": {"runs": self.resumed, "succeeded": self.resumed_well},
        }  # fmt: skip


def count(store: Any, since: Any, most: int, progress: Any) -> Counted:
    """Count all runs by status, and the steps of the newest ones."""
    out = Counted()
    largest: list[tuple[int, str]] = []
    after = None
    while True:
        page = store.runs(limit=_PAGE, after=after, **({} if since is None else {"since": since}))
        for run in page:
            out.statuses[run.status] += 1
            out.checkpoints += run.checkpoints
            out.stored += run.stored_bytes
            if out.runs < most:
                _add(out, store, run)
                progress(out.runs, most)
        largest = nlargest(_LOOKED_AT, [*largest, *((run.stored_bytes, run.id) for run in page if run.checkpoints)])
        after = page.next
        if after is None:
            out.copies = _copies(store, [id for _, id in largest], out.stored)
            return out


def _copies(store: Any, ids: list[str], stored: int) -> int | None:
    from everstep.store.verify.full_copy_estimate import naive_size

    rows = [row for row in map(store.backend.run, ids) if row is not None]
    found = naive_size(store.backend, store.framer, rows, stored)
    return None if found is None else found.bytes


_DRIVEN = tuple(kind.value for kind in (Kind.START, Kind.STATUS, Kind.GATE, Kind.ANSWER, Kind.TIMER))


def _attempts(store: Any, run: str) -> set[int]:
    """The attempts that left more than a step: a resume may only read an answer. Taking a run's lease to cancel or pause it is no attempt."""
    row = store.backend.run(run)
    records = () if row is None else unproved(store.backend, run, 1, row.head_seq, _DRIVEN)
    return {one.epoch for one in records if one.epoch and (one.kind != Kind.STATUS or _status(one) in ("running", "succeeded", "failed"))}


def _status(record: Any) -> Any:
    return None if record.body is None else said_in(record).get("status")


def _add(out: Counted, store: Any, run: Any) -> None:
    out.runs += 1
    attempts = _attempts(store, run.id)
    for step in store.steps(run.id):
        out.steps += 1
        out.failed += step.status != "succeeded"
        out.seconds += step.seconds
        out.tokens += step.tokens
        out.cost += step.cost
        out.times.append(step.seconds)
        attempts.add(step.epoch)
    if len(attempts) > 1:
        out.resumed += 1
        out.resumed_well += run.status == "succeeded"

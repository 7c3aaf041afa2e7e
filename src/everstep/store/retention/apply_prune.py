"""Carry out the plan for one run: add bases, then drop bodies slice by slice.

Relies on a backend's `prune`, which refuses a slice if another process pruned the run meanwhile. The first slice marks all dropped
checkpoints as pruned; after it, the work may stop anywhere, and the next plan finds the rest. Right before the first slice it checks for
tags and forks made since the plan: these may keep a checkpoint that the plan drops.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from everstep.backends.contract.core import Backend
from everstep.backends.contract.types import Cut
from everstep.clock import clock
from everstep.errors import Conflict
from everstep.records import Pruned
from everstep.store.encryption.frames import frames_of, new_base
from everstep.store.progress import Pace, TimeOver
from everstep.store.retention.plan import RunPlan, build
from everstep.store.retention.run_survey import Body, Survey, labels_of
from everstep.store.retention.throttle import Slices

_MOST_BYTES = 1024 * 1024  # of bodies in one slice: freeing their pages takes time, too


class Cutter:
    """A plan that is being carried out. `begun`: dropped checkpoints cannot be loaded any more; `freed`: the bytes freed so far."""

    def __init__(self, backend: Backend, survey: Survey, plan: RunPlan, pace: Pace):
        self._backend = backend
        self._survey = survey
        self._plan = plan
        self._pace = pace
        self._mark = survey.mark
        self._gone = gone_bodies(survey.bodies, plan.stay)
        self._hidden = gone_numbers(survey.row.checkpoints, set(plan.kept))
        self._added = {base.number: len(base.body) for base in survey.bases if base.number not in plan.stay}
        self.begun = False
        self.freed = 0

    def all(self) -> None:
        """Carry out the whole plan. Raises `Conflict` if a new plan is needed, `TimeOver` if the time ran out."""
        waiting = list(self._numbers())
        if not waiting and not self._plan.dropped:
            return
        slices = Slices(1, 1)
        for number in self._plan.bases:
            self._refuse_when_over()
            slices.do(lambda number=number: self._add(number))  # type: ignore[misc]
        slices, at = Slices(128, 512), 0
        while at < len(waiting) or not self.begun:
            self._refuse_when_over()
            if not self.begun:
                self._refuse_new_labels()
            part = _slice(waiting, at, slices.size)
            at += len(part)
            last = at == len(waiting)
            slices.do(lambda part=part, last=last: self._drop(part, last))  # type: ignore[misc]

    def _refuse_when_over(self) -> None:
        if self._pace.over:
            raise TimeOver

    def _refuse_new_labels(self) -> None:
        found, going = self._survey, set(self._plan.dropped)
        if labels_of(self._backend, found.row).on(going) - found.labels.on(going):
            raise Conflict(f"run {found.row.id!r} was tagged or forked while it was pruned")

    def _numbers(self) -> Iterator[tuple[int, list[Body]]]:
        """Yield the checkpoints with anything to drop, newest first, each with its remaining bodies."""
        for number, bodies in groupby(reversed(self._survey.bodies), lambda body: body.number):
            if number not in self._plan.stay:
                there = [body for body in bodies if body.there]
                if there or number in self._added:
                    yield number, there

    def _add(self, number: int) -> None:
        row, mark = self._survey.row, self._mark
        root, chunks = build(self._backend, row, number)
        base = new_base(self._backend, row, number, clock.now_us(), root)
        same = (mark.ranges, mark.numbers) if mark is not None else ((), ())
        self._cut(*same, 0, bases=[base], chunks=frames_of(self._backend, row).stored(chunks))

    def _drop(self, part: list[tuple[int, list[Body]]], last: bool) -> None:
        freed = sum(body.length for _, bodies in part for body in bodies) + sum(self._added.get(number, 0) for number, _ in part)
        pieces = [(body.seq, body.digest) for _, bodies in part for body in bodies]
        ranges: Sequence[tuple[int, int]] = self._mark.ranges if self._mark is not None else ()
        if pieces:
            ranges = self._gone if last else joined(ranges, self._gone, pieces[-1][0])
        self._cut(ranges, self._hidden, freed, bodies=pieces, gone=[number for number, _ in part if number in self._added])
        self.begun = True
        self.freed += freed

    def _cut(self, ranges: Sequence[tuple[int, int]], numbers: Sequence[tuple[int, int]], freed: int, **what: Any) -> None:
        """Prune in one transaction, with the mark that lists everything dropped by then."""
        row, was = self._survey.row, self._mark
        now = Pruned.make(row.key, ranges, freed + (was.freed if was is not None else 0), clock.now_us(), numbers, self._backend.seal)
        self._backend.prune(Cut(row.id, was, now, **what))
        self._mark = now


def gone_bodies(bodies: list[Body], stay: set[int]) -> list[tuple[int, int]]:
    """Return the seq ranges for the mark: first and last of each series of dropped bodies.

    Journal entries in between are covered, too, but are never pruned: an entry without a body is damaged, regardless of the mark.
    """
    rows = [list(group) for here, group in groupby(bodies, lambda body: body.number in stay) if not here]
    return [(row[0].seq, row[-1].seq) for row in rows]


def gone_numbers(last: int, stay: set[int]) -> list[tuple[int, int]]:
    """Return the checkpoints for the mark, in ranges: all except those in `stay`."""
    rows = [list(group) for here, group in groupby(range(1, last + 1), stay.__contains__) if not here]
    return [(row[0], row[-1]) for row in rows]


def joined(before: Sequence[tuple[int, int]], after: Sequence[tuple[int, int]], limit: int) -> list[tuple[int, int]]:
    """Return the ranges of `before` below `limit` and those of `after` from it on."""
    below = [(first, min(last, limit - 1)) for first, last in before if first < limit]
    return [*below, *((max(first, limit), last) for first, last in after if last >= limit)]


def _slice(waiting: list[tuple[int, list[Body]]], at: int, size: int) -> list[tuple[int, list[Body]]]:
    """Return as much as fits in one slice."""
    end, count, total = at, 0, 0
    while end < len(waiting) and count < size and total < _MOST_BYTES:
        bodies = waiting[end][1]
        count += max(1, len(bodies))
        total += sum(body.length for body in bodies)
        end += 1
    return waiting[at:end]

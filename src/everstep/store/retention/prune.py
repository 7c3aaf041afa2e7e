"""Prune: drop the bodies of checkpoints that are not kept, run by run, while others write. The chain can still be verified.

Relies on `run_survey` for what is present, `retention` and `size_limit` for what to keep, `plan` for what can be dropped, and `apply_prune`
for doing it. Needs no lease. A damaged run is left alone and reported: data that looks superfluous may be all that is left of it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from everstep.backends.contract.core import Backend
from everstep.clock import clock
from everstep.errors import Conflict, Damaged, NotFound, PrunedCheckpoint
from everstep.fields import Shape, field
from everstep.records import RunRow, Status
from everstep.store.encryption.frames import shown_row
from everstep.store.progress import Pace, TimeOver
from everstep.store.retention.apply_prune import Cutter
from everstep.store.retention.plan import RunPlan, family_reach, make_plan
from everstep.store.retention.policies import Policy
from everstep.store.retention.reachable import Reach
from everstep.store.retention.retention import Decision, decide
from everstep.store.retention.run_survey import Survey, gone, survey
from everstep.store.retention.size_limit import Member, dropped_by_limit, held_by, over_size_limit

_TRIES = 5
ENDED = frozenset({Status.SUCCEEDED.value, Status.CANCELLED.value, Status.FAILED.value})


class PrunePlan(Shape):
    """The prune plan of each run; of a dry run, what would be pruned. `complete` is False if the time ran out."""

    runs: list[RunPlan] = field(default_factory=list)
    dry_run: bool = False
    complete: bool = True
    unread: list[str] = field(default_factory=list)
    """Faults of run rows that could not be read."""

    @property
    def freed(self) -> int:
        """Bytes of dropped bodies. gc frees the chunks that only they needed."""
        return sum(run.freed for run in self.runs)

    @property
    def added(self) -> int:
        """Bytes of the bases that replace longer series of deltas."""
        return sum(run.added for run in self.runs)

    @property
    def kept(self) -> int:
        return sum(len(run.kept) for run in self.runs)

    @property
    def dropped(self) -> int:
        return sum(len(run.dropped) for run in self.runs)

    @property
    def problems(self) -> list[str]:
        """The runs that could not be pruned, and why: nearly always damage."""
        return [*self.unread, *(f"{run.run}: {run.problem}" for run in self.runs if run.problem is not None)]

    def __str__(self) -> str:
        went = "would be dropped" if self.dry_run else "dropped" if self.complete else "dropped before the time ran out"
        head = f"{self.dropped} of {self.dropped + self.kept} checkpoints of {len(self.runs)} runs {went}, {self.freed:,} bytes"
        return "\n".join([head, *self.unread, *(str(run) for run in self.runs if run.dropped or run.problem is not None)])


class Pruner:
    """Prunes runs of one store by their policies."""

    def __init__(
        self,
        backend: Backend,
        policies: Callable[[RunRow], Policy | None],
        protected: Iterable[str],
        without: Collection[str] = (),
    ):
        self._without = without  # ids of runs that count as deleted
        self._backend = backend
        self._policies = policies
        self._protected = frozenset(protected)
        self._crowd: dict[bytes, tuple[set[int], int]] = {}
        self._now = clock.now_us()
        self._reach: tuple[bytes, Reach] | None = None

    def prune(self, rows: Sequence[tuple[int, RunRow]], pace: Pace, *, dry_run: bool, whole: bool) -> PrunePlan:
        """Prune runs. `rows` are the runs with their positions; `whole`: they are all runs of the store."""
        out = PrunePlan(dry_run=dry_run)
        pace.total += len(rows)
        try:
            self._limit(rows, whole, pace)
            for row in _by_family(rows):
                self._run(row, out, pace)
                pace.on(1, f"prune {row.id}")
        except TimeOver:
            out.complete = False
        return out

    def _run(self, row: RunRow, out: PrunePlan, pace: Pace) -> None:
        """Prune one run, again if another process interfered. Runs without a policy and deleted runs are not reported."""
        before = RunPlan(row.id)
        for tries_left in range(_TRIES - 1, -1, -1):
            policy = self._policies(row)
            if policy is None:
                return
            mark = self._backend.pruned(row.id)
            try:
                found, plan = self._plan(row, policy)
                if not out.dry_run:
                    self._cut(found, plan, before, out, pace)
                out.runs.append(plan)
                return
            except (Conflict, PrunedCheckpoint, Damaged) as error:
                # Another prune, followed by a gc, may remove data that this one has just listed.
                beside = not isinstance(error, Damaged) or self._backend.pruned(row.id) != mark
                if not gone(self._backend, row) and not (tries_left and beside):
                    out.runs.append(RunPlan(row.id, problem=error.message))
                    return
            except NotFound:
                return
            newer = self._backend.run(row.id)
            if newer is None or newer.key != row.key:
                return
            row = newer

    def _plan(self, row: RunRow, policy: Policy) -> tuple[Survey, RunPlan]:
        found = survey(self._backend, row, self._without)
        decisions = self._decide(found, policy)
        if row.key in self._crowd:
            decisions = dropped_by_limit(decisions, *self._crowd[row.key])
        return found, make_plan(self._backend, found, decisions, self._family(row.family))

    def _family(self, family: bytes) -> Reach:
        """Return the reachable chunks of a family, cached for the current one: its runs share most chunks."""
        if self._reach is None or self._reach[0] != family:
            self._reach = (family, family_reach(self._backend, family))
        return self._reach[1]

    def _cut(self, found: Survey, plan: RunPlan, before: RunPlan, out: PrunePlan, pace: Pace) -> None:
        """Carry out a plan. `before` collects the results of plans that were not carried out completely."""
        cutter = Cutter(self._backend, found, plan, pace)
        try:
            cutter.all()
        except TimeOver:
            if not cutter.begun:
                plan.decisions = [d if d.kept else _not_yet(d) for d in plan.decisions]
            plan.freed = cutter.freed
            _join(plan, before)
            out.runs.append(plan)
            raise
        except Conflict:
            plan.decisions = [d for d in plan.decisions if cutter.begun and not d.kept]
            plan.freed = cutter.freed
            _join(before, plan)
            raise
        _join(plan, before)

    def _decide(self, found: Survey, policy: Policy | None) -> list[Decision]:
        row = found.row
        if policy is None:
            return [Decision(point.number, True, "no retention", point.bytes, True) for point in found.points]
        tag = next((tag for tag in shown_row(self._backend, row).tags if tag in self._protected), None)
        pinned: Mapping[int, str] = found.pinned
        if tag is not None:
            pinned = {**{point.number: f"protected tag {tag} of the run" for point in found.points}, **pinned}
        ended = row.status in ENDED and row.worker is None
        return decide(found.points, policy.retention, self._now, pinned=pinned, protected=self._protected, ended=ended)

    def _limit(self, rows: Sequence[tuple[int, RunRow]], whole: bool, pace: Pace) -> None:
        """Find the checkpoints to drop because of `max_bytes`, for the policies of runs first and that of the store last."""
        policies = {row.key: self._policies(row) for _, row in rows}
        limits = {p.scope: p for p in policies.values() if p is not None and p.retention.max_bytes is not None}
        for policy in sorted(limits.values(), key=lambda p: (p.width, p.scope)):
            limit = policy.retention.max_bytes or 0
            if policy.width and policy.scope and not whole:
                continue  # its limit covers more runs than these
            if policy.width == 2 and whole and _stored(self._backend) <= limit:
                continue
            counted = [(pk, row) for pk, row in rows if policy.counts(row)]
            members = list(self._members(counted, policies, policy, pace))
            other = sum(row.stored for _, row in counted) - sum(member.survey.row.stored for member in members)
            for key, numbers in over_size_limit(self._backend, members, other, limit).items():
                self._crowd[key] = (numbers, limit)

    def _members(
        self, rows: list[tuple[int, RunRow]], policies: Mapping[bytes, Policy | None], limited: Policy, pace: Pace
    ) -> Iterator[Member]:
        for pk, row in sorted(rows, key=lambda pair: pair[1].family):
            if pace.over:
                raise TimeOver
            try:
                found = survey(self._backend, row, self._without)
                held = held_by(self._backend, found, self._family(row.family))
            except (Damaged, Conflict):
                continue  # nothing of it will be dropped; damage is reported when it is pruned
            decisions = self._decide(found, policies[row.key])
            if row.key in self._crowd:
                decisions = dropped_by_limit(decisions, *self._crowd[row.key])
            yield Member(found, decisions, policies[row.key] == limited, pk, held)


def _not_yet(decision: Decision) -> Decision:
    return Decision(decision.number, True, "to be dropped, but the time ran out", decision.bytes)


def _join(plan: RunPlan, other: RunPlan) -> None:
    """Add the results of another plan."""
    known = {d.number for d in plan.decisions}
    plan.decisions = sorted([*plan.decisions, *(d for d in other.decisions if d.number not in known)], key=lambda d: d.number)
    plan.freed += other.freed


def _by_family(rows: Sequence[tuple[int, RunRow]]) -> Iterator[RunRow]:
    """Yield the runs of a family one after the other, otherwise in order."""
    families: dict[bytes, list[RunRow]] = {}
    for _, row in rows:
        families.setdefault(row.family, []).append(row)
    for group in families.values():
        yield from group


def _stored(backend: Backend) -> int:
    stats = backend.stats()
    return stats["record_bytes"] + stats["chunk_bytes"]

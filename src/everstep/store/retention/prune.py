"""Pruning: drops the bodies of checkpoints that are not kept, run by run, beside writers. The chain still proves itself.

Relies on `run_survey` for what is there, `retention` and `size_limit` for what shall stay, `plan` for what can go, `apply_prune` for doing it. Needs no lease. A
run that is damaged is left as it is, and reported: what looks superfluous may be all that is left of it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from everstep.backends.contract.core import Backend
from everstep.clock import clock
from everstep.codec.frame import Framer
from everstep.errors import Conflict, Damaged, NotFound, PrunedCheckpoint
from everstep.fields import Shape, field
from everstep.records import RunRow, Status
from everstep.store.progress import Pace, TimeOver
from everstep.store.retention.apply_prune import Cutter
from everstep.store.retention.plan import RunPlan, family_reach, make_plan
from everstep.store.retention.policies import Policy
from everstep.store.retention.reachable import Reach
from everstep.store.retention.retention import Decision, decide
from everstep.store.retention.run_survey import Survey, gone, survey
from everstep.store.retention.size_limit import Member, crowded_out, dropped_by_limit, held_by

_TRIES = 5
ENDED = frozenset({Status.SUCCEEDED.value, Status.CANCELLED.value, Status.FAILED.value})


class PrunePlan(Shape):
    """What is pruned from each run; of a dry run, what would be. `complete` is False if the time was over before all was done."""

    runs: list[RunPlan] = field(default_factory=list)
    dry_run: bool = False
    complete: bool = True
    unread: list[str] = field(default_factory=list)
    """What is wrong with run rows that could not be read."""

    @property
    def freed(self) -> int:
        """Bytes of bodies that go. The chunks that only they needed are freed by gc."""
        return sum(run.freed for run in self.runs)

    @property
    def added(self) -> int:
        """Bytes of the bases that take the place of longer rows of deltas."""
        return sum(run.added for run in self.runs)

    @property
    def kept(self) -> int:
        return sum(len(run.kept) for run in self.runs)

    @property
    def dropped(self) -> int:
        return sum(len(run.dropped) for run in self.runs)

    @property
    def problems(self) -> list[str]:
        """The runs of which nothing goes, and why: nearly always that they are damaged."""
        return [*self.unread, *(f"{run.run}: {run.problem}" for run in self.runs if run.problem is not None)]

    def __str__(self) -> str:
        went = "would go" if self.dry_run else "went" if self.complete else "went before the time was over"
        head = f"{self.dropped} of {self.dropped + self.kept} checkpoints of {len(self.runs)} runs {went}, {self.freed:,} bytes"
        return "\n".join([head, *self.unread, *(str(run) for run in self.runs if run.dropped or run.problem is not None)])


class Pruner:
    """Prunes runs of one store by their policies."""

    def __init__(
        self,
        backend: Backend,
        framer: Framer,
        policies: Callable[[RunRow], Policy | None],
        protected: Iterable[str],
        without: Collection[str] = (),
    ):
        self._without = without  # ids of runs that are taken as deleted
        self._backend = backend
        self._framer = framer
        self._policies = policies
        self._protected = frozenset(protected)
        self._crowd: dict[bytes, tuple[set[int], int]] = {}
        self._now = clock.now_us()
        self._reach: tuple[bytes, Reach] | None = None

    def prune(self, rows: Sequence[tuple[int, RunRow]], pace: Pace, *, dry_run: bool, whole: bool) -> PrunePlan:
        """`rows` are the runs to look at, each with its place; `whole`: they are all that there are."""
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
        """One run, again if somebody came in between. Nothing is said of one that has no policy, or is gone."""
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
                # Another one that prunes, and a gc behind it, take away what this one has just read about.
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
        return found, make_plan(self._backend, self._framer, found, decisions, self._family(row.family))

    def _family(self, family: bytes) -> Reach:
        """What is known of the family that is looked at: its runs share most chunks."""
        if self._reach is None or self._reach[0] != family:
            self._reach = (family, family_reach(self._backend, family))
        return self._reach[1]

    def _cut(self, found: Survey, plan: RunPlan, before: RunPlan, out: PrunePlan, pace: Pace) -> None:
        """Do it. `before` collects what was done of plans that could not be carried out to the end."""
        cutter = Cutter(self._backend, self._framer, found, plan, pace)
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
        tag = next((tag for tag in row.tags if tag in self._protected), None)
        pinned: Mapping[int, str] = found.pinned
        if tag is not None:
            pinned = {**{point.number: f"protected tag {tag} of the run" for point in found.points}, **pinned}
        ended = row.status in ENDED and row.worker is None
        return decide(found.points, policy.retention, self._now, pinned=pinned, protected=self._protected, ended=ended)

    def _limit(self, rows: Sequence[tuple[int, RunRow]], whole: bool, pace: Pace) -> None:
        """What has to go because of `max_bytes`, of a run's policy first, of the store's last."""
        policies = {row.key: self._policies(row) for _, row in rows}
        limits = {p.scope: p for p in policies.values() if p is not None and p.retention.max_bytes is not None}
        for policy in sorted(limits.values(), key=lambda p: (p.width, p.scope)):
            limit = policy.retention.max_bytes or 0
            if policy.width and policy.scope and not whole:
                continue  # it is about more runs than are looked at
            if policy.width == 2 and whole and _stored(self._backend) <= limit:
                continue
            counted = [(place, row) for place, row in rows if policy.counts(row)]
            members = list(self._members(counted, policies, policy, pace))
            other = sum(row.stored for _, row in counted) - sum(member.survey.row.stored for member in members)
            for key, numbers in crowded_out(self._backend, members, other, limit).items():
                self._crowd[key] = (numbers, limit)

    def _members(
        self, rows: list[tuple[int, RunRow]], policies: Mapping[bytes, Policy | None], limited: Policy, pace: Pace
    ) -> Iterator[Member]:
        for place, row in sorted(rows, key=lambda pair: pair[1].family):
            if pace.over:
                raise TimeOver
            try:
                found = survey(self._backend, row, self._without)
                held = held_by(self._backend, found, self._family(row.family))
            except (Damaged, Conflict):
                continue  # nothing of it will go; that it is damaged is said when it is its turn
            decisions = self._decide(found, policies[row.key])
            if row.key in self._crowd:
                decisions = dropped_by_limit(decisions, *self._crowd[row.key])
            yield Member(found, decisions, policies[row.key] == limited, place, held)


def _not_yet(decision: Decision) -> Decision:
    return Decision(decision.number, True, "it was to go, but the time was over", decision.bytes)


def _join(plan: RunPlan, other: RunPlan) -> None:
    """Add what another plan came to."""
    known = {d.number for d in plan.decisions}
    plan.decisions = sorted([*plan.decisions, *(d for d in other.decisions if d.number not in known)], key=lambda d: d.number)
    plan.freed += other.freed


def _by_family(rows: Sequence[tuple[int, RunRow]]) -> Iterator[RunRow]:
    """Relatives one after the other, otherwise in order."""
    families: dict[bytes, list[RunRow]] = {}
    for _, row in rows:
        families.setdefault(row.family, []).append(row)
    for group in families.values():
        yield from group


def _stored(backend: Backend) -> int:
    stats = backend.stats()
    return stats["record_bytes"] + stats["chunk_bytes"]

"""Results of prune, gc and clean-up: dropped states, freed chunks, deleted runs. Relies on `store.prune`, `store.gc` and `store.cleanup`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from everstep.fields import Shape

if TYPE_CHECKING:
    from everstep.store.retention.cleanup import Cleaned
    from everstep.store.retention.gc import Collected
    from everstep.store.retention.prune import PrunePlan


class DecisionView(Shape, frozen=True):
    """Whether the state of a checkpoint is kept, and why."""

    number: int
    kept: bool
    reason: str
    bytes: int


class PrunedRunView(Shape, frozen=True):
    """The dropped states of one run; `problem` says why nothing was dropped."""

    run: str
    freed: int
    added: int
    problem: str | None
    decisions: tuple[DecisionView, ...]


class PruneView(Shape, frozen=True):
    """The states that were dropped, or would be in a dry run."""

    dry_run: bool
    complete: bool
    dropped: int
    freed: int
    runs: tuple[PrunedRunView, ...]
    unread: list[str]


class CollectedView(Shape, frozen=True):
    """The chunks that were freed, or would be in a dry run."""

    families: int
    chunks: int
    freed: int
    kept: int
    given_back: int
    problems: list[str]
    dry_run: bool
    complete: bool


class DeletedView(Shape, frozen=True):
    """A run that was deleted, or would be in a dry run."""

    run: str
    bytes: int
    reason: str


class CleanupView(Shape, frozen=True):
    """The results of one clean-up."""

    dry_run: bool
    deleted: tuple[DeletedView, ...]
    pruned: PruneView
    collected: CollectedView


def prune_view(plan: PrunePlan) -> PruneView:
    runs = tuple(
        PrunedRunView(one.run, one.freed, one.added, one.problem, tuple(DecisionView(d.number, d.kept, d.reason, d.bytes) for d in one.decisions))
        for one in plan.runs
    )  # fmt: skip
    return PruneView(plan.dry_run, plan.complete, plan.dropped, plan.freed, runs, plan.unread)


def collected_view(found: Collected) -> CollectedView:
    return CollectedView(
        found.families, found.chunks, found.freed, found.kept, found.given_back, found.problems, found.dry_run, found.complete
    )  # fmt: skip


def cleanup_view(found: Cleaned, dry_run: bool) -> CleanupView:
    deleted = tuple(DeletedView(one.run, one.bytes, one.reason) for one in found.deleted)
    return CleanupView(dry_run, deleted, prune_view(found.pruned), collected_view(found.collected))

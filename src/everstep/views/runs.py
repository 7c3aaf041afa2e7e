"""Lists of runs: pages, and trees of forks and children. Relies on `store.runs` and `store.get`."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Any

from everstep.errors import NotFound
from everstep.fields import Shape
from everstep.records import Status
from everstep.store.lookup import driver
from everstep.store.query import CRASHED, INTERRUPTED
from everstep.store.views import RunInfo
from everstep.views.json import Beside, Stored
from everstep.views.masking import Masking

if TYPE_CHECKING:
    from everstep.api import Store

_MOST = 2_000
_CHILDREN = 500
STATUSES = ("queued", "running", CRASHED, INTERRUPTED, "waiting", "succeeded", "failed", "cancelled")


class RunView(Shape, frozen=True):
    """A run, masked. `error` is only set in the view of one failed run.

    `status` is that of the run, and two more words for a run that is stored as running: crashed, if its process has died, and interrupted,
    if its process closed it before its end.
    """

    id: str
    status: str
    workflow: str | None
    session: str | None
    tags: tuple[str, ...]
    note: str | None
    meta: Stored
    parent: str | None
    parent_checkpoint: int | None
    child: bool
    created_at: datetime
    updated_at: datetime
    checkpoints: int
    stored_bytes: int
    open: bool
    error: Stored

    @property
    def origin(self) -> str:
        """The origin of a fork or child in words; empty for other runs."""
        if self.parent is None:
            return ""
        return f"called by {self.parent}" if self.child else f"from {self.parent}@{self.parent_checkpoint}"


class RunPage(Shape, frozen=True):
    """A page of runs; `next` is the cursor of the next page, None if this was the last one."""

    runs: tuple[RunView, ...]
    next: int | None


class Branch(Shape, frozen=True):
    """A run in a tree. `lasts` says for it and for each run above it, outermost first, whether it is the last one under its parent."""

    run: RunView
    lasts: Beside[tuple[bool, ...]] = ()


class Forest(Shape, frozen=True):
    """Trees of runs from the top down. `cut`: there are more runs than listed."""

    branches: tuple[Branch, ...]
    cut: bool


def run_view(store: Store, run: RunInfo, mask: Masking) -> RunView:
    """A run, masked."""
    status, is_open = seen_status(store, run)
    return RunView(
        run.id, status, run.workflow, run.session, run.tags, mask(run.note), mask(run.meta), run.parent, run.parent_number, run.child,
        run.created_at, run.updated_at, run.checkpoints, run.stored_bytes, is_open, mask(run.error),
    )  # fmt: skip


def seen_status(store: Store, run: RunInfo) -> tuple[str, bool]:
    """Return the status of a run as people see it, and whether a live process has it open."""
    found = driver(store, run)
    if run.status != Status.RUNNING or found == "alive":
        return run.status, found == "alive"
    return (CRASHED if found == "dead" else INTERRUPTED), False


def list_runs(store: Store, mask: Masking, *, status: str | None = None, **filters: Any) -> RunPage:
    """Return one page of runs, newest first; filters and the cursor `after` are those of `store.runs`, and `status` is that of a view."""
    if status != Status.RUNNING:
        page = store.runs(status=status, **filters)
        return RunPage(tuple(run_view(store, run, mask) for run in page), page.next)
    found: list[RunView] = []
    limit, after = filters.pop("limit", None), filters.pop("after", None)
    while True:  # a page that is full of crashed and interrupted runs is not the last one
        page = store.runs(status=Status.RUNNING, after=after, limit=None if limit is None else limit - len(found), **filters)
        found += [view for run in page if (view := run_view(store, run, mask)).status == status]
        after = page.next
        if after is None or len(found) == limit:
            return RunPage(tuple(found), after)


def failed_runs(store: Store, mask: Masking, error: str, limit: int | None = None) -> RunPage:
    """Return the failed runs whose error is of this class, or was caused by one; the oldest first."""
    return RunPage(tuple(run_view(store, run, mask) for run in store.failed_by(error, limit)), None)


def forest(store: Store, mask: Masking, runs: Iterable[RunView]) -> Forest:
    """Return the trees that the runs belong to, in their order, each from its root down. A deleted parent is left out."""
    out: list[Branch] = []
    seen: set[str] = set()
    cut = False
    for run in runs:
        root = _root(store, mask, run)
        if root.id not in seen:
            cut = _grow(store, mask, root, out, seen) or cut
    return Forest(tuple(out), cut)


def _root(store: Store, mask: Masking, run: RunView) -> RunView:
    seen = {run.id}
    while run.parent is not None and run.parent not in seen:
        try:
            run = run_view(store, store.get(run.parent), mask)
        except NotFound:  # it was deleted
            return run
        seen.add(run.id)
    return run


def _grow(store: Store, mask: Masking, root: RunView, out: list[Branch], seen: set[str]) -> bool:
    """Add a run with its forks and children; return whether some are left out. Not recursive: forks of forks may be thousands deep."""
    waiting = [Branch(root)]
    while waiting and len(seen) < _MOST:
        branch = waiting.pop()
        if branch.run.id in seen:
            continue
        seen.add(branch.run.id)
        out.append(branch)
        children = list_runs(store, mask, parent=branch.run.id, oldest_first=True, limit=_CHILDREN).runs
        last = len(children) - 1
        waiting += [Branch(child, (*branch.lasts, i == last)) for i, child in reversed(list(enumerate(children)))]
    return bool(waiting)

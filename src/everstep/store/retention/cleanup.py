"""Clean-up: delete runs that ended long enough ago, prune the others, free their chunks and return the space. By policy and schedule.

Relies on `policies` for the retention of a run, and on `prune` and `gc` for the work. The last clean-up is recorded in the property `cleanup.last`:

    {"at": µs, "complete": bool, "deleted": runs, "dropped": checkpoints, "freed": bytes, "given_back": bytes, "problems": count}

Never deletes a run that is open, that has forks, that has a protected tag, or whose caller may still ask for its result.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, get_args

from everstep.backends.contract.core import Backend, Query
from everstep.clock import clock
from everstep.errors import Damaged, EverstepError, InvalidArgument
from everstep.fields import Shape, field
from everstep.records import RunRow
from everstep.store.progress import Pace, Progress
from everstep.store.refs import find_run
from everstep.store.retention.delete_runs import Deleted, Deleter, forget_deleted
from everstep.store.retention.gc import Collected, Collector, Foreseen, give_back, to_give_back
from everstep.store.retention.policies import Policies, forget
from everstep.store.retention.prune import PrunePlan, Pruner
from everstep.store.retention.retention import PROTECTED, Retention
from everstep.store.views import when

Given = Retention | Mapping[str, Any] | None
Schedule = Literal["manual", "on_open", "daily", "weekly", "monthly"]
SCHEDULED_SECONDS = 5.0  # opening a store waits no longer than this; the next opening continues
_LAST = "cleanup.last"
_AT_ONCE = 500
_PERIODS = {"daily": "%Y-%m-%d", "weekly": "%G-%V", "monthly": "%Y-%m"}


class Cleaned(Shape):
    """The result of a clean-up; of a dry run, what it would do. `complete` is False if the time ran out."""

    deleted: list[Deleted] = field(default_factory=list)
    pruned: PrunePlan = field(default_factory=PrunePlan)
    collected: Collected = field(default_factory=Collected)
    dry_run: bool = False
    seconds: float = 0.0

    @property
    def complete(self) -> bool:
        return self.pruned.complete and self.collected.complete

    @property
    def freed(self) -> int:
        """Bytes of deleted bodies and chunks, less those of added bases."""
        return sum(run.bytes for run in self.deleted) + self.pruned.freed - self.pruned.added + self.collected.freed

    @property
    def given_back(self) -> int:
        """Bytes that the store returned to the system."""
        return self.collected.given_back

    @property
    def problems(self) -> list[str]:
        return [*self.pruned.problems, *self.collected.problems]

    def __str__(self) -> str:
        runs = f"{len(self.deleted)} {'run' if len(self.deleted) == 1 else 'runs'} {'would be deleted' if self.dry_run else 'deleted'}"
        return "\n".join([runs, *map(str, self.deleted), str(self.pruned), str(self.collected)])


class Cleaner:
    """Upkeep of one store. `default` overrides the store's own policy; `protect` are tags in addition to those that always protect."""

    def __init__(self, backend: Backend, default: Retention | None, protect: Iterable[str]):
        self._backend = backend
        self._default = default
        self._protected = (*PROTECTED, *protect)

    def prune(self, given: Given, run: str | None, dry_run: bool, progress: Progress | None) -> PrunePlan:
        pace = Pace(progress, None)
        unread: list[str] = []
        rows = rows_of(self._backend, unread) if run is None else [(0, find_run(self._backend, run))]
        out = self._pruner(given).prune(rows, pace, dry_run=dry_run, whole=run is None)
        out.unread = unread
        pace.end("prune")
        return out

    def gc(self, dry_run: bool, compact: bool, progress: Progress | None) -> Collected:
        pace = Pace(progress, None)
        out = Collector(self._backend, pace).collect(dry_run)
        if dry_run:
            out.given_back = to_give_back(self._backend, out.freed)
        else:
            forget_deleted(self._backend, pace, out.problems)
            out.given_back = self._backend.compact() if compact else give_back(self._backend, pace)
        pace.end("gc")
        return out

    def _policies(self, given: Given) -> Policies:
        return Policies(self._backend, self._default, None if given is None else Retention.parse(given))

    def _pruner(self, given: Given, without: Collection[str] = ()) -> Pruner:
        return Pruner(self._backend, self._policies(given).of, self._protected, without)

    def clean(
        self,
        given: Given,
        dry_run: bool,
        seconds: Any,
        delete: Callable[[Sequence[RunRow]], set[bytes]],
        progress: Progress | None = None,
    ) -> Cleaned:
        """Do a complete clean-up. `delete` removes runs and returns the keys of the deleted ones."""
        pace = Pace(progress, seconds)
        policies = self._policies(given)
        out = Cleaned(dry_run=dry_run)
        unread: list[str] = []
        rows = rows_of(self._backend, unread)
        deleter = Deleter(self._backend, policies, self._protected, delete if not dry_run else None, pace)
        out.deleted = deleter.all(rows)
        gone = deleter.gone
        left = [(pk, row) for pk, row in rows if row.key not in gone]
        without = {row.id for _, row in rows if row.key in gone}
        out.pruned = self._pruner(given, without).prune(left, pace, dry_run=dry_run, whole=True)
        out.pruned.unread = unread
        out.collected = Collector(self._backend, pace, _foreseen(gone, left, out.pruned) if dry_run else None).collect(dry_run)
        out.collected.complete = out.collected.complete and out.pruned.complete and not pace.over
        if dry_run:
            out.collected.given_back = to_give_back(self._backend, out.freed)
        else:
            forget_deleted(self._backend, pace, out.collected.problems)
            out.collected.given_back = give_back(self._backend, pace)
            for run in policies.runs():
                if self._backend.run(run) is None:
                    forget(self._backend, run)
        pace.end("clean-up")
        out.seconds = pace.seconds
        if not dry_run:
            self._backend.set_property(_LAST, _said(out))
        return out


def rows_of(backend: Backend, problems: list[str]) -> list[tuple[int, RunRow]]:
    """Return every valid run with its position, oldest first. Faults of the others are added to `problems`; these runs are left alone."""
    found: list[tuple[int, RunRow]] = []
    after, limit, last = 0, _AT_ONCE, backend.manifest().created
    while after <= last:
        try:
            rows = backend.runs(Query(oldest_first=True, after=after, limit=limit))
        except Damaged as error:
            if limit == 1:
                problems.append(error.message)
                after += 1
            limit = 1  # one bad row fails its whole page: read row by row up to it and past it
            continue
        for after, row in rows:
            if row.digest(backend.seal) == row.check:
                found.append((after, row))
            else:
                problems.append(f"{row.id}: its row does not match its digest")
        if len(rows) < limit:
            break
        limit = _AT_ONCE
    return found


def _foreseen(deleted: set[bytes], rows: list[tuple[int, RunRow]], pruned: PrunePlan) -> Foreseen:
    keys = {row.id: row.key for _, row in rows}
    out = Foreseen(deleted)
    for plan in (plan for plan in pruned.runs if plan.problem is None):
        out.stay[keys[plan.run]] = plan.stay
        out.held[keys[plan.run]] = {digest for digests in plan.held.values() for digest in digests}
    return out


def _said(out: Cleaned) -> str:
    about: dict[str, Any] = {"at": clock.now_us(), "complete": out.complete, "deleted": len(out.deleted), "dropped": out.pruned.dropped}
    return json.dumps({**about, "freed": out.freed, "given_back": out.given_back, "problems": len(out.problems)})


def check_schedule(schedule: Schedule) -> Schedule:
    if schedule not in get_args(Schedule):
        raise InvalidArgument(f"schedule must be one of {', '.join(get_args(Schedule))}, got {schedule!r:.60}")
    return schedule


def last_time(backend: Backend) -> tuple[datetime, bool] | None:
    """Return the time of the last clean-up, and whether it was complete."""
    try:
        said = json.loads(backend.get_property(_LAST) or "null")
        return None if said is None else (when(said["at"]), bool(said["complete"]))
    except (ValueError, TypeError, KeyError, OverflowError, OSError):
        return None  # an unreadable label: clean up again


def is_due(backend: Backend, schedule: Schedule) -> bool:
    """Whether opening the store now should clean it up: once a day, week or month (UTC), and again if the last one was incomplete."""
    if schedule == "manual":
        return False
    last = last_time(backend)
    if schedule == "on_open" or last is None or not last[1]:
        return True
    form = _PERIODS[schedule]
    return last[0].strftime(form) != when(clock.now_us()).strftime(form)


def clean_if_due(backend: Backend, schedule: Schedule, clean: Callable[..., Cleaned]) -> None:
    """Clean up when a store with a schedule is opened. A failure is only a warning: the store can still be used."""
    try:
        if is_due(backend, schedule):
            clean(seconds=SCHEDULED_SECONDS)
    except EverstepError as error:
        warnings.warn(f"the clean-up of {backend.url} failed: {error.message}", stacklevel=3)

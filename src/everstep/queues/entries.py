"""The queue entry of one run. Reads one row of the store, or the first record of a run that has ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from everstep.backends.contract.queues import QueueEntry, Task, task_of
from everstep.store.lookup import started_with

if TYPE_CHECKING:
    from everstep.store.store import BaseStore
    from everstep.store.views import RunInfo


def queue_entry_of(store: BaseStore, run: str) -> QueueEntry | None:
    """Return a run's queue entry; None if it was never in a queue, or has ended."""
    return store.backend.queue_entry(run)


def task_and_entry(store: BaseStore, run: RunInfo) -> tuple[Task | None, QueueEntry | None]:
    """Return the task a run was enqueued with, and its queue entry if it has not ended. Cheap for runs that were never enqueued."""
    if "queue" not in run.meta:
        return None, None
    entry = queue_entry_of(store, run.id)
    if entry is not None:
        return entry.task, _with_deaths(store, entry)
    return task_of(started_with(store, run.id)), None


def _with_deaths(store: BaseStore, entry: QueueEntry) -> QueueEntry:
    """Return the entry with the crashes of all its workers: the stored entry counts only those since the newest record."""
    row = store.backend.run(entry.run) if entry.deaths else None
    if row is None:
        return entry
    from everstep.runtime.limits.deaths import recorded_deaths

    freed = entry.deaths if entry.worker is None and row.worker is not None else 0
    return entry._replace(deaths=recorded_deaths(store.backend, row).number + freed)

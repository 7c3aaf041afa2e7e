"""Queues, queue entries, workers and schedules. Relies on `store.queues`, `store.workers`, `store.stranded` and `store.schedules`."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from everstep.backends.contract.queues import Limits, QueueEntry, Task
from everstep.fields import Shape, replace
from everstep.store.views import when
from everstep.views.json import Stored
from everstep.views.masking import Masking
from everstep.views.runs import seen_status

if TYPE_CHECKING:
    from everstep.api import Store
    from everstep.queues.enqueue import Queue
    from everstep.queues.live_workers import LiveWorker
    from everstep.queues.schedules import Schedule
    from everstep.queues.stranded import Stranded

MINUTES = 5


class TaskView(Shape, frozen=True):
    """The request with which a run was enqueued, masked."""

    queue: str
    priority: int
    key: str | None
    dedupe: str | None


class QueueEntryView(Shape, frozen=True):
    """The queue entry of a run, masked. `ready` is None if a worker has taken it, or if it waits for something without a time."""

    queue: str
    priority: int
    key: str | None
    dedupe: str | None
    ready: datetime | None
    worker: str | None
    deaths: int


class LimitsView(Shape, frozen=True):
    """The limits of a queue: how many runs, and runs of one key, may run at once, and how many may be taken in `seconds`."""

    concurrency: int | None
    per_key: int | None
    rate: int | None
    seconds: float | None


class LatelyView(Shape, frozen=True):
    """Counts of the events of a queue in the last minutes."""

    minutes: int
    taken: int
    ended: int
    failed: int
    taken_over: int


class QueueView(Shape, frozen=True):
    """A queue: counts of its runs, recent events, and limits."""

    queue: str
    ready: int
    later: int
    waiting: int
    running: int
    oldest: datetime | None
    lately: LatelyView
    limits: LimitsView


class WorkerView(Shape, frozen=True):
    """A live process that runs runs of this store."""

    id: str
    host: str
    pid: int
    queues: list[str]
    concurrency: int
    recover: bool
    workflows: dict[str, str | None]
    runs: list[str]
    since: datetime
    last_seen: datetime | None


class ScheduleView(Shape, frozen=True):
    """A schedule, masked."""

    name: str
    workflow: str
    cron: str
    zone: str
    missed: str
    queue: str
    priority: int
    key: str | None
    next: datetime
    arguments: Stored
    named: Stored


def task_view(task: Task, mask: Masking) -> TaskView:
    """Return the request with which a run was enqueued, masked."""
    return TaskView(task.queue, task.priority, mask(task.key), mask(task.dedupe))


def queue_entry_view(entry: QueueEntry, mask: Masking) -> QueueEntryView:
    """Return a queue entry, masked."""
    task = entry.task
    ready = None if entry.ready is None else when(entry.ready)
    return QueueEntryView(task.queue, task.priority, mask(task.key), mask(task.dedupe), ready, entry.worker, entry.deaths)


def queue_entry(store: Store, mask: Masking, run: str) -> QueueEntryView | None:
    """Return the queue entry of a run; None if it has none."""
    from everstep.queues.entries import queue_entry_of

    found = queue_entry_of(store, run)
    return None if found is None else queue_entry_view(found, mask)


def limits_view(limits: Limits) -> LimitsView:
    """Return the limits of a queue, with the period in seconds."""
    return LimitsView(limits.concurrency, limits.per_key, limits.rate, limits.period / 1e6 if limits.rate is not None else None)


def queue_view(queue: Queue) -> QueueView:
    lately = LatelyView(queue.minutes, queue.taken, queue.ended, queue.failed, queue.freed)
    counts = (queue.ready, queue.later, queue.waiting, queue.running)
    return QueueView(queue.name, *counts, queue.oldest, lately, limits_view(queue.limits))


def queues(store: Store, minutes: int = MINUTES) -> list[QueueView]:
    """Return all queues by name."""
    return [queue_view(queue) for queue in store.queues(minutes)]


def stranded(store: Store) -> list[Stranded]:
    """Return the runs that no live worker will take, and why; with their status as `views.runs` shows it."""
    return [replace(one, status=seen_status(store, store.get(one.run))[0]) for one in store.stranded()]


def workers(store: Store, queue: str | None = None) -> list[WorkerView]:
    """Return the live workers, of one queue if it is given."""
    return [worker_view(one) for one in store.workers() if queue is None or queue in one.queues]


def worker_view(one: LiveWorker) -> WorkerView:
    return WorkerView(
        one.id, one.host, one.pid, one.queues, one.concurrency, one.recover, one.workflows, one.runs, one.since, one.last_seen
    )  # fmt: skip


def schedules(store: Store, mask: Masking) -> list[ScheduleView]:
    """Return all schedules by name."""
    return [schedule_view(one, mask) for one in store.schedules()]


def schedule_view(one: Schedule, mask: Masking) -> ScheduleView:
    """A schedule, masked."""
    args, named = one.input
    return ScheduleView(
        one.name, one.workflow, one.cron, one.zone, one.missed, one.queue, one.priority, mask(one.key), one.next, mask(list(args)), mask(named)
    )  # fmt: skip

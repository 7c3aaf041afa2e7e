"""The part of a backend's contract that lets runs wait in queues and hands them to workers. The docstrings are the contract, as in `core`.

An enqueued run has an entry in its queue (`QueueEntry`) until it has ended. The first record of the run holds the request, and its messages
hold the events that it waits for. The queue entry repeats both, so that a worker finds the next run at once, however many runs have
ended. A worker claims a run by its lease, so a lost or wrong queue entry costs time, but never creates a second history.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from everstep.errors import Damaged
from everstep.fields import Shape
from everstep.records import Message, RunRow, Status, Worker

if TYPE_CHECKING:
    from everstep.backends.contract.types import Commit

START = "start"  # the message that wakes up a run for the first time
LIMITS = "queue:"  # the prefix of the property that holds the limits of a queue


class Task(NamedTuple):
    """A request to queue a run: its queue, its priority, the key that `per_key` limits count by, and the word that identifies duplicates."""

    queue: str
    priority: int = 0
    key: str | None = None
    dedupe: str | None = None


class QueueEntry(NamedTuple):
    """The queue entry of a run. `ready` is None while a worker has the run or it waits for something without a time.

    `deaths` counts the workers that died while running it since it last made progress.
    """

    run: str
    task: Task
    ready: int | None
    worker: str | None
    deaths: int


class Limits(NamedTuple):
    """The limits of a queue: how many of its runs, and of one key, may run at once, and be claimed in any `period` (microseconds)."""

    concurrency: int | None = None
    per_key: int | None = None
    rate: int | None = None
    period: int = 0

    @property
    def none(self) -> bool:
        return self.concurrency is None and self.per_key is None and self.rate is None

    def text(self) -> str:
        return json.dumps({"concurrency": self.concurrency, "per_key": self.per_key, "rate": self.rate, "period": self.period})

    @classmethod
    def parse(cls, text: str | None) -> Limits:
        if text is None:
            return cls()
        try:
            return cls(**json.loads(text))
        except (ValueError, TypeError):
            raise Damaged("the limits of a queue cannot be read", remedy="Set them again.") from None


class Claim(NamedTuple):
    """A worker's request: at most so many runs, from these queues in this order and of these workflows, except some runs."""

    worker: Worker
    queues: Sequence[str]
    workflows: Sequence[str]
    most: int
    without: Sequence[str] = ()


class Claimed(NamedTuple):
    """A run that a worker has claimed. Its row is None if it is damaged: the run was then not claimed.

    `before` is the worker that had the run and died, if there was one.
    """

    run: str
    queue: str
    row: RunRow | None
    before: str | None
    deaths: int


class Depth(NamedTuple):
    """The contents of a queue: how many runs are ready, become ready later, wait for something, are running; since when the oldest one
    waits; and the counts of the last minutes, newest first: [claimed, ended, failed, freed from dead workers]."""

    queue: str
    ready: int
    later: int
    waiting: int
    running: int
    oldest: int | None
    minutes: list[list[int]]


class Queues(Protocol):
    """The methods that workers need. A commit with a `task` creates a queue entry for its run; a commit that ends the run removes it."""

    def create(self, commits: Sequence[Commit], known: Sequence[str] = ()) -> list[bool]:
        """Create several runs in one transaction, all or none; return for each whether it is new.

        A run is not new if its id is in `known` and exists, or if its queue has a duplicate of it, also from the same call. Any other
        id that exists raises `RunExists`, and nothing is written.
        """

    def claim(self, claim: Claim) -> list[Claimed]:
        """Hand runs to a worker in one transaction: each gets epoch + 1 and its lease, as by `acquire`.

        Among the runs that are ready, the highest priority comes first, then the one that has been ready longest. The limits of a queue
        (the property `queue:NAME`) apply to all workers together. A run with a damaged row is named in the result and not claimed.
        """

    def free(self, known_dead: Sequence[str] = ()) -> int:
        """Make the runs of dead workers available to others; return how many.

        A worker is dead if its lease has expired, if it is not registered, or if its process has ended.
        """

    def queue_entry(self, run: str) -> QueueEntry | None:
        """Return the queue entry of a run; None if it is in no queue or has ended."""

    def held_by(self, worker: str) -> list[str]:
        """Return the queued runs that a worker has."""

    def queue_entries(self, queue: str | None = None, limit: int | None = None) -> list[QueueEntry]:
        """Return all queue entries, or those of one queue, in the order in which they would be claimed."""

    def twin(self, task: Task) -> str | None:
        """Return the run that has an entry in the same queue with the same `dedupe`."""

    def next_ready(self, queues: Sequence[str]) -> int | None:
        """Return the time at which the next entry of these queues becomes ready; a time in the past if one is ready."""

    def depths(self, minutes: int = 5) -> list[Depth]:
        """Return the contents of each queue that has an entry, limits, or recent activity, by name."""

    def living(self) -> list[Worker]:
        """Return the workers that are alive, judged as by `holder`, ordered by the time at which they started."""

    def bell(self, ring: Callable[[], None]) -> Callable[[], None]:
        """Call `ring` from another thread soon after something may have become ready. Returns a function that ends this."""


class Room(Shape):
    """The rest of a queue's limits, while runs are claimed one after the other."""

    limits: Limits
    running: int
    by_key: dict[str, int]
    started: int

    @property
    def full(self) -> bool:
        limits = self.limits
        busy = limits.concurrency is not None and self.running >= limits.concurrency
        return busy or (limits.rate is not None and self.started >= limits.rate)

    def takes(self, key: str | None) -> bool:
        most = self.limits.per_key
        return most is None or key is None or self.by_key.get(key, 0) < most

    def take(self, key: str | None) -> None:
        self.running += 1
        self.started += 1
        if key is not None:
            self.by_key[key] = self.by_key.get(key, 0) + 1


ENDED, FAILED = "ended", "failed"


def settled(row: RunRow, messages: Iterable[tuple[str, int | None]], now: int) -> tuple[str | None, int | None]:
    """Return the state of a run's queue entry, given the names and times of its messages.

    ("ended" or "failed", None) if the entry is removed, otherwise (None, the time at which it is ready). Only its retry makes a failed
    run ready again, as everywhere; a run that was released between two steps is ready at once.
    """
    if row.status in (Status.SUCCEEDED, Status.CANCELLED):
        return ENDED, None
    if row.worker is not None:
        return None, None
    waiting = list(messages)
    dues = [due for name, due in waiting if due is not None and (row.status != Status.FAILED or name == "retry")]
    if any(name == "pause" for name, _ in waiting):
        return None, None
    if row.status == Status.RUNNING:
        return None, now
    if row.status == Status.FAILED and not dues:
        return FAILED, None
    return None, min(dues, default=None)


def gather(
    counts: dict[str, Sequence[Any]], ticks: dict[tuple[str, int], Sequence[int]], limited: Iterable[str], minutes: int
) -> list[Depth]:
    """Return the contents of each queue, from the counts of its entries, its activity by minute, and the queues with limits."""
    found: list[Depth] = []
    for name in sorted({*counts, *limited, *(queue for queue, _ in ticks)}):
        ready, later, waiting, running, oldest = counts.get(name, (0, 0, 0, 0, None))
        happened = [list(ticks.get((name, back), (0, 0, 0, 0))) for back in range(minutes)]
        found.append(Depth(name, ready, later, waiting, running, oldest, happened))
    return found


def rebuilt_entry(row: RunRow, messages: Iterable[Message], task: Task, once: set[tuple[str, str]], now: int) -> QueueEntry | None:
    """Return the queue entry of a run in a store that is being rebuilt; None if the run has ended.

    Of two duplicates, only the first one noted in `once` keeps its `dedupe`.
    """
    gone, ready = settled(row, [(message.name, message.due) for message in messages], now)
    if gone is not None:
        return None
    if task.dedupe is not None and (task.queue, task.dedupe) in once:
        task = task._replace(dedupe=None)
    elif task.dedupe is not None:
        once.add((task.queue, task.dedupe))
    return QueueEntry(row.id, task, ready, row.worker, 0)


def task_of(about: dict[str, Any]) -> Task | None:
    """Return the request that the first record of a run holds about its queue."""
    match about.get("task"):
        case [str() as queue, int() as priority, str() | None as key, str() | None as dedupe] if abs(priority) < 1 << 63:
            return Task(queue, priority, key, dedupe)
    return None

"""The part of a backend's contract that has runs wait in queues and gives them to workers. The docstrings are the contract, as in `core`.

A run that was enqueued has a place in its queue until it has ended. What was asked for stands in the first record of the run, and what it
waits for in its letters; a place only says the same once more, so that a worker finds the next run at once, however many have ended.
A run is taken by its lease, so that a place which is lost or wrong costs time, never a second history.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from everstep.errors import Damaged
from everstep.fields import Shape
from everstep.records import Letter, RunRow, Status, Worker

if TYPE_CHECKING:
    from everstep.backends.contract.types import Commit

START = "start"  # the letter that a run is woken by for the first time
LIMITS = "queue:"  # what the limits of a queue are remembered as


class Task(NamedTuple):
    """What was asked for: where a run waits, how urgent it is, which others of its key run at the same time, and what makes it a double."""

    queue: str
    priority: int = 0
    key: str | None = None
    dedupe: str | None = None


class Place(NamedTuple):
    """Where a run stands in its queue. `ready` None: somebody has it, or it waits for something without a time.

    `deaths` counts the workers that died with it since it last got on.
    """

    run: str
    task: Task
    ready: int | None
    worker: str | None
    deaths: int


class Limits(NamedTuple):
    """How many runs of a queue, and of one key in it, may be driven at once, and how many may be taken in any `period` (microseconds)."""

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
            raise Damaged("the limits of a queue cannot be read", remedy="Set them anew.") from None


class Claim(NamedTuple):
    """What a worker asks for: at most so many runs, of these queues in this order and of these workflows, without some runs."""

    worker: Worker
    queues: Sequence[str]
    workflows: Sequence[str]
    most: int
    without: Sequence[str] = ()


class Claimed(NamedTuple):
    """A run that a worker has now; without a row if that is damaged, and so could not be taken. `before` is who had it and died, if anybody did."""

    run: str
    queue: str
    row: RunRow | None
    before: str | None
    deaths: int


class Depth(NamedTuple):
    """What is in a queue: how many runs could be taken now, are to come later, wait for something, are driven; since when the oldest one
    waits; and what happened in the last minutes, from the newest on: [taken, ended, failed, freed from dead workers]."""

    queue: str
    ready: int
    later: int
    waiting: int
    running: int
    oldest: int | None
    minutes: list[list[int]]


class Queues(Protocol):
    """What workers need. A commit that brings a `task` gives its run a place; one that ends the run takes it away."""

    def create(self, commits: Sequence[Commit], known: Sequence[str] = ()) -> list[bool]:
        """Create several runs in one transaction, all or none; return for each whether it is new.

        A run is not new if its id is in `known` and taken, or if its queue has a double of it, be it in the same call. Any other
        id that is taken raises `RunExists`, and nothing is written.
        """

    def claim(self, claim: Claim) -> list[Claimed]:
        """Give runs to a worker: each with epoch + 1 and its lease, as `acquire` does it, in one transaction.

        Of those whose time has come, the highest priority first, then the longest ready. The limits of a queue (the fact
        `queue:NAME`) hold for all workers together. A run whose row is damaged is named, and stays where it is.
        """

    def free(self, known_dead: Sequence[str] = ()) -> int:
        """Have the runs of dead workers taken by others; gives how many. Dead is whose lease ended, who is not known, or whose process is gone."""

    def place(self, run: str) -> Place | None:
        """Where a run stands; None if it is in no queue or has ended."""

    def held_by(self, worker: str) -> list[str]:
        """The runs of queues that a worker has."""

    def places(self, queue: str | None = None, limit: int | None = None) -> list[Place]:
        """All places, or those of a queue, in the order in which they would be taken."""

    def twin(self, task: Task) -> str | None:
        """The run that has a place in the same queue with the same `dedupe`."""

    def next_ready(self, queues: Sequence[str]) -> int | None:
        """When the next place of these queues gets ready, or since when one is."""

    def depths(self, minutes: int = 5) -> list[Depth]:
        """What is in each queue that has a place, limits, or lately had anything happen, by name."""

    def living(self) -> list[Worker]:
        """The workers that are alive, as `holder` can tell, by the time at which they started."""

    def bell(self, ring: Callable[[], None]) -> Callable[[], None]:
        """Have `ring` called, from another thread, soon after something may have become ready. What comes back ends that."""


class Room(Shape):
    """What the limits of a queue still allow for, as runs are taken one after the other."""

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


def settled(row: RunRow, letters: Iterable[tuple[str, int | None]], now: int) -> tuple[str | None, int | None]:
    """What becomes of the place of a run, whose letters have these names and times: ("ended" or "failed", None) if it has none any more, else
    (None, when it is ready).

    A run that failed is tried again by its retry alone, as everywhere; one that was given back between two steps goes on at once.
    """
    if row.status in (Status.SUCCEEDED, Status.CANCELLED):
        return ENDED, None
    if row.worker is not None:
        return None, None
    waiting = list(letters)
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
    """What is in each queue, from what was counted in it, what happened so many minutes ago, and which have limits."""
    found: list[Depth] = []
    for name in sorted({*counts, *limited, *(queue for queue, _ in ticks)}):
        ready, later, waiting, running, oldest = counts.get(name, (0, 0, 0, 0, None))
        happened = [list(ticks.get((name, back), (0, 0, 0, 0))) for back in range(minutes)]
        found.append(Depth(name, ready, later, waiting, running, oldest, happened))
    return found


def placed(row: RunRow, letters: Iterable[Letter], task: Task, once: set[tuple[str, str]], now: int) -> Place | None:
    """The place of a run in a store that is built anew; None if it has ended. Of two that are doubles of each other, the first in `once` stays one."""
    gone, ready = settled(row, [(letter.name, letter.due) for letter in letters], now)
    if gone is not None:
        return None
    if task.dedupe is not None and (task.queue, task.dedupe) in once:
        task = task._replace(dedupe=None)
    elif task.dedupe is not None:
        once.add((task.queue, task.dedupe))
    return Place(row.id, task, ready, row.worker, 0)


def task_of(about: dict[str, Any]) -> Task | None:
    """What the first record of a run says about its queue."""
    match about.get("task"):
        case [str() as queue, int() as priority, str() | None as key, str() | None as dedupe] if abs(priority) < 1 << 63:
            return Task(queue, priority, key, dedupe)
    return None

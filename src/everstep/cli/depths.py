"""Queues as commands show them: what waits, what happened lately, which limits hold. Reads the store through `store.queues`, writes nothing."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from everstep.backends.queues import Depth, Limits
from everstep.cli.text import duration, iso
from everstep.runtime.enqueue import limits_of
from everstep.shape import Shape
from everstep.store.model import when

MINUTES = 5


class Queue(Shape, frozen=True):
    """A queue: what is in it, what happened in the last minutes, and its limits."""

    depth: Depth
    limits: Limits

    @property
    def oldest(self) -> datetime | None:
        return None if self.depth.oldest is None else when(self.depth.oldest)

    @property
    def lately(self) -> tuple[int, int, int, int]:
        """Taken, ended, failed, and freed from dead workers."""
        taken, ended, failed, freed = (sum(minute[i] for minute in self.depth.minutes) for i in range(4))
        return taken, ended, failed, freed

    @property
    def lately_in_words(self) -> str:
        names = ("taken", "ended", "failed", "taken over")
        return ", ".join(f"{count:,} {name}" for count, name in zip(self.lately, names, strict=True) if count)

    def facts(self) -> dict[str, Any]:
        depth, (taken, ended, failed, freed) = self.depth, self.lately
        return {
            "queue": depth.queue, "ready": depth.ready, "later": depth.later, "waiting": depth.waiting, "running": depth.running,
            "oldest": None if self.oldest is None else iso(self.oldest),
            "lately": {"minutes": len(depth.minutes), "taken": taken, "ended": ended, "failed": failed, "taken_over": freed},
            "limits": of_limits(self.limits),
        }  # fmt: skip


def all_of(store: Any, minutes: int = MINUTES) -> list[Queue]:
    return [Queue(depth, limits_of(store, depth.queue)) for depth in store.queues(minutes)]


def of_limits(limits: Limits) -> dict[str, Any]:
    seconds = limits.period / 1e6 if limits.rate is not None else None
    return {"concurrency": limits.concurrency, "per_key": limits.per_key, "rate": limits.rate, "seconds": seconds}


def limits_in_words(limits: Limits) -> str:
    parts = [
        f"{limits.concurrency:,} at once" if limits.concurrency is not None else "",
        f"{limits.per_key:,} of a key" if limits.per_key is not None else "",
        f"{limits.rate:,} in {duration(limits.period / 1e6)}" if limits.rate is not None else "",
    ]
    return ", ".join(part for part in parts if part)

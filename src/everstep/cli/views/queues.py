"""Queues as commands show them: what waits, what happened lately, which limits hold. Reads the store through `store.queues`, writes nothing."""

from __future__ import annotations

from typing import Any

from everstep.backends.contract.queues import Limits
from everstep.cli.draw.text import duration, iso
from everstep.queues.enqueue import Queue

MINUTES = 5


def lately(queue: Queue) -> str:
    """What happened in it, in words."""
    counts = ((queue.taken, "taken"), (queue.ended, "ended"), (queue.failed, "failed"), (queue.freed, "taken over"))
    return ", ".join(f"{count:,} {name}" for count, name in counts if count)


def facts(queue: Queue) -> dict[str, Any]:
    return {
        "queue": queue.name, "ready": queue.ready, "later": queue.later, "waiting": queue.waiting, "running": queue.running,
        "oldest": None if queue.oldest is None else iso(queue.oldest),
        "lately": {"minutes": queue.minutes, "taken": queue.taken, "ended": queue.ended, "failed": queue.failed, "taken_over": queue.freed},
        "limits": of_limits(queue.limits),
    }  # fmt: skip


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

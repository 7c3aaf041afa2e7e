"""Describes queues and queue entries in words. No I/O."""

from __future__ import annotations

from everstep.cli.app import App
from everstep.cli.draw.text import cell, duration, plural
from everstep.clock import clock
from everstep.views.queues import LatelyView, LimitsView, QueueEntryView, TaskView


def asked(task: TaskView | None) -> str:
    """Describe what was requested: queue, priority, key."""
    if task is None:
        return ""
    parts = [cell(task.queue, 100), f"priority {task.priority}" if task.priority else "", f"key {cell(task.key, 60)}" if task.key else ""]
    return ", ".join(part for part in parts if part)


def status(app: App, entry: QueueEntryView | None) -> str:
    """Describe a queue entry: its worker, or since when or at what time it is ready."""
    if entry is None:
        return ""
    died = f", {plural(entry.deaths, 'worker')} died running it" if entry.deaths else ""
    if entry.worker is not None:
        return f"taken by {cell(entry.worker, 60)}{died}"
    if entry.ready is None:
        return f"waiting{died}"
    left = entry.ready.timestamp() - clock.now_us() / 1e6
    moment = app.out.when(entry.ready)
    if left <= 0:
        return f"ready {moment if app.out.terminal else f'since {moment}'}{died}"
    return f"ready {f'in {duration(left)}' if app.out.terminal else f'at {moment}'}{died}"


def lately(found: LatelyView) -> str:
    """Count the recent events of a queue, in words."""
    counts = ((found.taken, "taken"), (found.ended, "ended"), (found.failed, "failed"), (found.taken_over, "taken over"))
    return ", ".join(f"{count:,} {name}" for count, name in counts if count)


def limits(found: LimitsView) -> str:
    """Describe the limits of a queue; empty if it has none."""
    parts = [
        f"{found.concurrency:,} at once" if found.concurrency is not None else "",
        f"{found.per_key:,} per key" if found.per_key is not None else "",
        f"{found.rate:,} per {duration(found.seconds or 0.0)}" if found.rate is not None else "",
    ]
    return ", ".join(part for part in parts if part)

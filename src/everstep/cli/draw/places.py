"""Queues and places in them, in words. No I/O."""

from __future__ import annotations

from everstep.cli.app import App
from everstep.cli.draw.text import cell, duration, plural
from everstep.clock import clock
from everstep.views.queues import LatelyView, LimitsView, PlaceView, TaskView


def asked(task: TaskView | None) -> str:
    """What was asked for: queue, priority, key."""
    if task is None:
        return ""
    parts = [cell(task.queue, 100), f"priority {task.priority}" if task.priority else "", f"key {cell(task.key, 60)}" if task.key else ""]
    return ", ".join(part for part in parts if part)


def status(app: App, place: PlaceView | None) -> str:
    """Who has a run, since when it is ready, or when it will be."""
    if place is None:
        return ""
    died = f", {plural(place.deaths, 'worker')} died with it" if place.deaths else ""
    if place.worker is not None:
        return f"held by {cell(place.worker, 60)}{died}"
    if place.ready is None:
        return f"waits{died}"
    left = place.ready.timestamp() - clock.now_us() / 1e6
    moment = app.out.when(place.ready)
    if left <= 0:
        return f"ready {moment if app.out.terminal else f'since {moment}'}{died}"
    return f"ready {f'in {duration(left)}' if app.out.terminal else f'at {moment}'}{died}"


def lately(found: LatelyView) -> str:
    """What happened in a queue."""
    counts = ((found.taken, "taken"), (found.ended, "ended"), (found.failed, "failed"), (found.taken_over, "taken over"))
    return ", ".join(f"{count:,} {name}" for count, name in counts if count)


def limits(found: LimitsView) -> str:
    """The limits of a queue; empty if it has none."""
    parts = [
        f"{found.concurrency:,} at once" if found.concurrency is not None else "",
        f"{found.per_key:,} of a key" if found.per_key is not None else "",
        f"{found.rate:,} in {duration(found.seconds or 0.0)}" if found.rate is not None else "",
    ]
    return ", ".join(part for part in parts if part)

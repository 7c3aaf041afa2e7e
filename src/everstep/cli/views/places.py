"""Where a run stands in its queue, as commands show it. Reads one place of the store, or the first record of a run that has none any more."""

from __future__ import annotations

from typing import Any

from everstep.backends.contract.queues import Place, Task, task_of
from everstep.cli.app import App
from everstep.cli.draw.text import cell, duration, iso, plural
from everstep.clock import clock
from everstep.store.views import when


def facts(place: Place | None, hidden: Any) -> dict[str, Any] | None:
    """A place as JSON."""
    if place is None:
        return None
    task = place.task
    return {
        "queue": task.queue, "priority": task.priority, "key": hidden(task.key), "dedupe": hidden(task.dedupe),
        "ready": None if place.ready is None else iso(when(place.ready)), "worker": place.worker, "deaths": place.deaths,
    }  # fmt: skip


def of(store: Any, run: Any) -> tuple[Task | None, Place | None]:
    """What was asked for when a run was enqueued, and its place if it has not ended. Cheap for runs that never were."""
    if "queue" not in run.meta:
        return None, None
    place = store.backend.place(run.id)
    if place is not None:
        return place.task, _with_deaths(store, place)
    from everstep.runtime.workflow import beginning  # which takes as long to import as all the rest of a command

    row = store.backend.run(run.id)
    return (None if row is None else task_of(beginning(store, row))), None


def _with_deaths(store: Any, place: Place) -> Place:
    """A place with the deaths of all drivers: it counts by itself only those since the newest record."""
    row = store.backend.run(place.run) if place.deaths else None
    if row is None:
        return place
    from everstep.runtime.limits.deaths import recorded_deaths

    freed = place.deaths if place.worker is None and row.worker is not None else 0
    return place._replace(deaths=recorded_deaths(store.backend, row).number + freed)


def asked(app: App, task: Task | None) -> str:
    """What was asked for: queue, priority, key."""
    if task is None:
        return ""
    parts = [cell(task.queue, 100), f"priority {task.priority}" if task.priority else ""]
    parts += [f"key {cell(app.hidden(task.key), 60)}" if task.key else ""]
    return ", ".join(part for part in parts if part)


def stands(app: App, place: Place | None) -> str:
    """How it stands: with whom, since when it is ready, or when it will be."""
    if place is None:
        return ""
    died = f", {plural(place.deaths, 'worker')} died with it" if place.deaths else ""
    if place.worker is not None:
        return f"held by {cell(place.worker, 60)}{died}"
    if place.ready is None:
        return f"waits{died}"
    left = (place.ready - clock.now_us()) / 1e6
    moment = app.out.when(when(place.ready))
    if left <= 0:
        return f"ready {moment if app.out.terminal else f'since {moment}'}{died}"
    return f"ready {f'in {duration(left)}' if app.out.terminal else f'at {moment}'}{died}"

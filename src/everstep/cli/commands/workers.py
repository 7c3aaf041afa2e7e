"""`everstep workers`: list live workers with their queues, workflow versions and runs."""

from __future__ import annotations

import click

from everstep.cli.app import App
from everstep.cli.app import command as make
from everstep.cli.draw.text import cell
from everstep.views.json import to_json
from everstep.views.queues import WorkerView, workers

_SHOWN = 5


@make("workers")
@click.option("--queue", metavar="NAME", help="Show only workers of this queue")
def command(app: App, queue: str | None) -> None:
    """List live workers with their queues, workflow versions and runs

    A dead worker disappears from the list at once on its own machine, and within 15 seconds if its machine vanished.

    Example: everstep workers --queue shop
    """
    with app.open() as store:
        found = workers(store, queue)
    if app.out.as_json:
        app.out.data("workers", to_json(found))
    elif not found:
        app.out.say("No live workers. Start one: everstep worker --import MODULE")
    else:
        _print(app, found)


def _print(app: App, found: list[WorkerView]) -> None:
    head = ("WORKER", "HOST", "PID", "QUEUES", "WORKFLOWS", "RUNS", "SINCE", "LAST SEEN")
    rows = [
        (
            cell(one.id, 40), cell(one.host, 30), str(one.pid), _some(one.queues), _some(_versions(one)),
            f"{len(one.runs):,}" + (f" of {one.concurrency:,}" if one.concurrency else ""),
            app.out.when(one.since), app.out.when(one.last_seen),
        )
        for one in found
    ]  # fmt: skip
    app.out.table(
        head, rows, right=(2,), drop=("LAST SEEN", "HOST", "WORKFLOWS", "SINCE", "PID", "QUEUES"), cuts=("WORKFLOWS", "QUEUES", "HOST")
    )


def _versions(one: WorkerView) -> list[str]:
    return [name if version is None else f"{name} {version}" for name, version in sorted(one.workflows.items())]


def _some(names: list[str]) -> str:
    more = f", and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
    return ", ".join(cell(name, 40) for name in names[:_SHOWN]) + more

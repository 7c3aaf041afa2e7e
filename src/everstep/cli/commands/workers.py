"""`everstep workers`: which processes are alive and drive runs, of which queues and with which versions."""

from __future__ import annotations

import click

from everstep.cli.app import App
from everstep.cli.app import command as make
from everstep.cli.draw.text import cell
from everstep.views.json import to_json
from everstep.views.queues import WorkerView, workers

_SHOWN = 5


@make("workers")
@click.option("--queue", help="Only workers of this queue.")
def command(app: App, queue: str | None) -> None:
    """List the workers that are alive, with their queues, the versions of their workflows and the runs that they drive.

    A worker that died leaves the list at once on its own machine, and when its lease ends (12 seconds) if its machine vanished.

    For example: everstep workers --queue shop
    """
    with app.open() as store:
        found = workers(store, queue)
    if app.out.as_json:
        app.out.data("workers", to_json(found))
    elif not found:
        app.out.say("no live workers; `everstep worker --import MODULE` starts one")
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
    app.out.table(head, rows, right=(2,))


def _versions(one: WorkerView) -> list[str]:
    return [name if version is None else f"{name} {version}" for name, version in sorted(one.workflows.items())]


def _some(names: list[str]) -> str:
    more = f", and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
    return ", ".join(cell(name, 40) for name in names[:_SHOWN]) + more

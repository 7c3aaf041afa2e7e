"""`everstep workers`: which processes are alive and drive runs, of which queues and with which versions."""

from __future__ import annotations

from typing import Any

import click

from everstep.cli.app import App
from everstep.cli.app import command as make
from everstep.cli.draw.text import cell, iso
from everstep.queues.live_workers import LiveWorker

_SHOWN = 5


@make("workers")
@click.option("--queue", help="Only workers of this queue.")
def command(app: App, queue: str | None) -> None:
    """List the workers that are alive, with their queues, the versions of their workflows and the runs that they drive.

    A worker that died leaves the list at once on its own machine, and when its lease ends (12 seconds) if its machine vanished.

    For example: everstep workers --queue shop
    """
    with app.open() as store:
        found = [one for one in store.workers() if queue is None or queue in one.queues]
    if app.out.as_json:
        app.out.data("workers", [_facts(one) for one in found])
    elif not found:
        app.out.say("no live workers; `everstep worker --import MODULE` starts one")
    else:
        _print(app, found)


def _facts(one: LiveWorker) -> dict[str, Any]:
    return {
        "id": one.id, "host": one.host, "pid": one.pid, "queues": one.queues, "concurrency": one.concurrency, "recover": one.recover,
        "workflows": one.workflows, "runs": one.runs, "since": iso(one.since),
        "last_seen": None if one.last_seen is None else iso(one.last_seen),
    }  # fmt: skip


def _print(app: App, found: list[LiveWorker]) -> None:
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


def _versions(one: LiveWorker) -> list[str]:
    return [name if version is None else f"{name} {version}" for name, version in sorted(one.workflows.items())]


def _some(names: list[str]) -> str:
    more = f", and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
    return ", ".join(cell(name, 40) for name in names[:_SHOWN]) + more

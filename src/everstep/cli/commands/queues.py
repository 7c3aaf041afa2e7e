"""`everstep queues`: list queues with the runs in them, the age of the oldest, and recent events."""

from __future__ import annotations

import click

from everstep.cli.app import App
from everstep.cli.app import command as make
from everstep.cli.draw import queue_text
from everstep.cli.draw.text import cell
from everstep.views import queues as views
from everstep.views.json import to_json
from everstep.views.queues import QueueView


@make("queues")
@click.option(
    "--minutes", type=click.IntRange(1, 60), default=views.MINUTES, show_default=True, help="Count recent events over this many minutes"
)
@click.option("--stranded", is_flag=True, help="List the runs that no live worker will take, and why")
def command(app: App, minutes: int, stranded: bool) -> None:
    """List queues with counts of their ready, later, waiting and running runs

    With --stranded, list the runs that no live worker will take: no worker serves their queue, has their workflow, or has the version that
    ran them.

    Example: everstep queues --stranded
    """
    if stranded:
        _stranded(app)
        return
    with app.open() as store:
        found = views.queues(store, minutes)
    if app.out.as_json:
        app.out.data("queues", to_json(found))
    elif not found:
        app.out.say("No queues. Add a run to one with `everstep enqueue`.")
    else:
        _print(app, found, minutes)


def _stranded(app: App) -> None:
    with app.open() as store:
        found = views.stranded(store)
    if app.out.as_json:
        app.out.data("stranded", to_json(found))
    elif not found:
        app.out.say("No stranded runs: live workers can take every waiting run.")
    else:
        head = ("RUN", "QUEUE", "WORKFLOW", "VERSION", "STATUS", "REASON")
        rows = [tuple(cell(text or "", 60) for text in (one.run, one.queue, one.workflow, one.version, one.status)) for one in found]
        app.out.table(
            head,
            [(*row, cell(one.reason, 200)) for row, one in zip(rows, found, strict=True)],
            drop=("VERSION", "STATUS", "WORKFLOW", "QUEUE"),
            cuts=("REASON",),
        )


def _print(app: App, found: list[QueueView], minutes: int) -> None:
    head = ("QUEUE", "READY", "LATER", "WAITING", "RUNNING", "OLDEST", f"LAST {minutes} MIN", "LIMITS")
    rows = [
        (
            cell(one.queue, 40), *(f"{n:,}" for n in (one.ready, one.later, one.waiting, one.running)),
            app.out.when(one.oldest), queue_text.lately(one.lately), queue_text.limits(one.limits),
        )
        for one in found
    ]  # fmt: skip
    app.out.table(head, rows, right=range(1, 5), drop=("LIMITS", head[6], "OLDEST", "LATER", "WAITING"), cuts=("LIMITS", head[6], "QUEUE"))

"""`everstep schedule`: enqueue a workflow on a cron schedule; any worker fires it."""

from __future__ import annotations

from typing import Any

import click

from everstep.cli.app import App
from everstep.cli.app import command as make
from everstep.cli.args.refs import QUEUE, SCHEDULE
from everstep.cli.args.workflow_args import arguments_of, workflow_of
from everstep.views.json import to_json
from everstep.views.queues import schedule_view
from everstep.views.stored.values import iso

_OPTIONS = ("cron", "zone", "missed", "queue", "priority", "key")


@make("schedule")
@click.argument("name", type=SCHEDULE)
@click.argument("workflow")
@click.argument("arguments", nargs=-1)
@click.option("--cron", required=True, help="Minute, hour, day, month and weekday, such as '30 9 * * 1-5'")
@click.option("--zone", default="UTC", show_default=True, help="Time zone of --cron, such as Europe/Berlin")
@click.option(
    "--missed",
    type=click.Choice(["once", "skip", "all"]),
    default="once",
    show_default=True,
    help="Runs to enqueue for times that passed without a worker",
)
@click.option("--queue", type=QUEUE, default="default", show_default=True, help="Queue to add the runs to")
@click.option("--priority", type=int, default=0, show_default=True, help="Priority; runs with a higher one are taken first")
@click.option("--key", help="Key of the runs, by which `limit --per-key` counts")
@click.option(
    "--import", "modules", multiple=True, metavar="MODULE", help="Module, .py file or YAML file that defines the workflow; repeatable"
)
def command(app: App, name: str, workflow: str, arguments: tuple[str, ...], modules: tuple[str, ...], **options: Any) -> None:
    """Enqueue WORKFLOW with ARGUMENTS at the times of --cron

    An existing schedule NAME is replaced.

    Example: everstep schedule report flows.py:report --cron '30 9 * * 1-5'
    """
    app.import_all(modules)
    flow = workflow_of(app, workflow)
    args, named = arguments_of(arguments, _OPTIONS)
    with app.open(create=True) as store:
        made = store.schedule(name, flow, *args, **options, **named)
    if app.out.as_json:
        app.out.data("schedule", to_json(schedule_view(made, app.mask)))
    else:
        app.out.line(f"{made.name}: next at {iso(made.next)}")

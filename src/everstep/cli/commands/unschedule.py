"""`everstep unschedule`: remove a schedule. The runs that it enqueued stay."""

from __future__ import annotations

import click

from everstep.cli.app import App
from everstep.cli.app import command as make
from everstep.cli.args.refs import SCHEDULE
from everstep.cli.draw.text import safe


@make("unschedule")
@click.argument("name", type=SCHEDULE)
def command(app: App, name: str) -> None:
    """Remove the schedule NAME; the runs that it enqueued stay

    Example: everstep unschedule report
    """
    with app.open() as store:
        store.unschedule(name)
    if app.out.as_json:
        app.out.data("unschedule", {"name": name})
    else:
        app.out.say(f"Removed schedule {safe(name)}.")

"""`everstep unschedule`: forget a schedule; the runs that it enqueued stay."""

from __future__ import annotations

import click

from everstep.cli.app import App
from everstep.cli.app import command as make
from everstep.cli.args.refs import SCHEDULE
from everstep.cli.draw.text import safe


@make("unschedule")
@click.argument("name", type=SCHEDULE)
def command(app: App, name: str) -> None:
    """Forget the schedule NAME. What it has enqueued stays."""
    with app.open() as store:
        store.unschedule(name)
    if app.out.as_json:
        app.out.data("unschedule", {"name": name})
    else:
        app.out.say(f"forgot {safe(name)}")

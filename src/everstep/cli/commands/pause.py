"""`everstep pause`: stop a run at its next step, from any process; `resume` lets it go on."""

from __future__ import annotations

import click

from everstep.cli import facts
from everstep.cli.app import App
from everstep.cli.app import command as make
from everstep.cli.refs import RUN


@make("pause")
@click.argument("run", type=RUN)
@click.option("--reason", help="Why; it is kept in the journal.")
def command(app: App, run: str, reason: str | None) -> None:
    """Stop RUN at its next step, with a checkpoint; resume lets it go on. Its child runs are paused, too."""
    with app.open() as store:
        store.pause(run, reason)
        found = store.get(run)
    if app.out.as_json:
        app.out.data("pause", {"run": facts.of_run(found, app.hidden)})
    else:
        app.out.say(f"{found.id}: asked; its process stops at its next step" if found.open else f"{found.id}: {found.status}")

"""`everstep cancel`: stop a run at its next step, from any process, for good."""

from __future__ import annotations

import click

from everstep.cli import facts
from everstep.cli.app import App
from everstep.cli.app import command as make
from everstep.cli.refs import RUN


@make("cancel")
@click.argument("run", type=RUN)
@click.option("--reason", help="Why; it is kept in the journal.")
def command(app: App, run: str, reason: str | None) -> None:
    """Stop RUN at its next step, for good. Its child runs are cancelled, too."""
    with app.open() as store:
        store.cancel(run, reason)
        found = store.get(run)
    if app.out.as_json:
        app.out.data("cancel", {"run": facts.of_run(found, app.hidden)})
    else:
        app.out.say(f"{found.id}: asked; its process stops at its next step" if found.open else f"{found.id}: {found.status}")

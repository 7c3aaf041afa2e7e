"""The two commands that stop a run at its next step, from any process: one lets it go on later, the other does not."""

from __future__ import annotations

import click

from everstep.cli.app import App
from everstep.cli.app import command as make
from everstep.cli.args.naming import to_change
from everstep.cli.args.refs import RUN
from everstep.views.json import to_json
from everstep.views.runs import run_view


def stop_command(name: str, sentence: str) -> click.Command:
    """A command that calls the method of the store which has its name."""

    @make(name, help=sentence)
    @click.argument("run", type=RUN)
    @click.option("--reason", help="Why; it is kept in the journal.")
    def command(app: App, run: str, reason: str | None) -> None:
        with app.open() as store:
            run = to_change(store, run)
            getattr(store, name)(run, reason)
            found = store.get(run)
        if app.out.as_json:
            app.out.data(name, {"run": to_json(run_view(found, app.mask))})
        else:
            app.out.say(f"{found.id}: asked; its process stops at its next step" if found.open else f"{found.id}: {found.status}")

    return command

"""`use`: set the current run, which commands use if none is named."""

from __future__ import annotations

import click

from everstep.cli.app import App, interactive
from everstep.cli.app import command as make
from everstep.cli.args.naming import to_change
from everstep.cli.args.refs import RUN
from everstep.cli.shell.picking import run_for
from everstep.cli.shell.session import Session


@make("use")
@click.argument("run", type=RUN, required=False)
def command(app: App, run: str | None) -> None:
    """Make RUN the current run, which commands use if none is named

    Without RUN, choose one from a list. `use -` clears the current run.

    Example: use o1
    """
    session = click.get_current_context().find_root().obj
    assert isinstance(session, Session)
    if run == "-":
        session.current = None
        return
    if run is None and not interactive():
        raise click.UsageError("Missing argument 'RUN'. Name the run to use.")
    with app.open() as store:
        session.current = store.get(run_for(app, "use") if run is None else to_change(store, run)).id

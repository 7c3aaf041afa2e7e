"""`everstep blame`: find the checkpoint that last changed a part of the state."""

from __future__ import annotations

import click

from everstep.cli.app import App
from everstep.cli.app import command as make
from everstep.cli.args.naming import to_read
from everstep.cli.args.refs import REF
from everstep.cli.draw.text import cell
from everstep.views.json import to_json
from everstep.views.states import blame
from everstep.views.stored.paths import parse


@make("blame")
@click.argument("ref", type=REF)
@click.argument("path")
def command(app: App, ref: str, path: str) -> None:
    """Find the checkpoint that last changed the value at PATH

    Example: everstep blame o1 messages[2].content
    """
    with app.open() as store:
        found = blame(store, app.mask, to_read(app, store, ref), parse(path), path)
    if app.out.as_json:
        app.out.data("blame", to_json(found))
        return
    one = found.checkpoint
    parts = [app.out.style(str(found), "bold"), app.out.when(one.at), f"after step {cell(one.step, 60)}" if one.step else one.kind]
    app.out.line("  ".join([*parts, cell(one.note or "", 100)]).rstrip())
    if not found.exact:
        app.out.say("Older states are missing: they were pruned, or the run that this one was forked from was deleted.", "dim")

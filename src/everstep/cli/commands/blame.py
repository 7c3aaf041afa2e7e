"""`everstep blame`: which checkpoint, and so which step, last changed a part of the state."""

from __future__ import annotations

import click

from everstep.cli.app import App
from everstep.cli.app import command as make
from everstep.cli.args.naming import to_read
from everstep.cli.args.paths import parse
from everstep.cli.args.refs import REF
from everstep.cli.draw.text import cell
from everstep.cli.views import json as facts


@make("blame")
@click.argument("ref", type=REF)
@click.argument("path")
def command(app: App, ref: str, path: str) -> None:
    """Tell which step last changed what stands at PATH: messages[2].content."""
    with app.open() as store:
        one = store.blame(to_read(app, store, ref), parse(path))
    if app.out.as_json:
        about = {"path": path, "checkpoint": facts.of_checkpoint(one, app.hidden), "exact": one.exact, "after": one.after}
        app.out.data("blame", about)
        return
    parts = [app.out.style(str(one), "bold"), app.out.when(one.at), f"step {cell(one.step, 60)}" if one.step else one.kind]
    app.out.line("  ".join([*parts, cell(app.hidden(one.note) or "", 100)]).rstrip())
    if not one.exact:
        app.out.say("older states are gone: they were pruned, or the run that this one was forked from was deleted", "dim")

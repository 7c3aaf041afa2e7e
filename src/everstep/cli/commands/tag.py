"""`everstep tag`: a short name on a checkpoint, by which it can be named and which retention may protect."""

from __future__ import annotations

import click

from everstep.cli.app import App
from everstep.cli.app import command as make
from everstep.cli.args.naming import to_change
from everstep.cli.args.refs import REF
from everstep.views.json import to_json
from everstep.views.run import checkpoint_view


@make("tag")
@click.argument("ref", type=REF)
@click.argument("name")
def command(app: App, ref: str, name: str) -> None:
    """Give the checkpoint REF the name NAME: RUN@NAME is it from then on."""
    with app.open() as store:
        one = store.checkpoint(to_change(store, ref))
        store.tag(one.ref, name)
        one = store.checkpoint(one.ref)
    if app.out.as_json:
        app.out.data("checkpoint", to_json(checkpoint_view(one, app.mask)))
    else:
        app.out.say(f"{one.run}@{name} is {one.ref}")

"""`everstep tag`: name a checkpoint. The tag works as a ref, and retention may protect it."""

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
    """Tag checkpoint REF, so that RUN@NAME names it

    Example: everstep tag o1@7 reviewed
    """
    with app.open() as store:
        one = store.checkpoint(to_change(store, ref))
        store.tag(one.ref, name)
        one = store.checkpoint(one.ref)
    if app.out.as_json:
        app.out.data("checkpoint", to_json(checkpoint_view(one, app.mask)))
    else:
        app.out.say(f"{one.run}@{name} now names {one.ref}")

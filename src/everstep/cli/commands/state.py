"""`everstep state`: the state of a checkpoint, or a part of it. Whole as JSON for a program, cut where it is long for a person."""

from __future__ import annotations

import click

from everstep.cli.app import App
from everstep.cli.app import command as make
from everstep.cli.args.naming import to_read
from everstep.cli.args.paths import parse, pick
from everstep.cli.args.refs import REF
from everstep.cli.draw.values import dumps, pretty, to_json, whole
from everstep.cli.views.load import load_newest_good


@make("state")
@click.argument("ref", type=REF)
@click.argument("path", required=False)
@click.option("--newest-good", is_flag=True, help="Where it is damaged, go back to the newest good one, and say what was passed over.")
@click.option("--full", is_flag=True, help="Cut nothing, on a terminal, too.")
@click.option("--show-secrets", is_flag=True, help="Don't mask what looks like a secret.")
def command(app: App, ref: str, path: str | None, newest_good: bool, full: bool, show_secrets: bool) -> None:
    """Print the state of a checkpoint, or what stands at PATH in it: messages[2].content."""
    where = parse(path) if path else ()
    with app.open() as store:
        ref = to_read(app, store, ref)
        if newest_good:
            name, state = load_newest_good(app, store, ref)
        else:
            one = store.checkpoint(ref)
            name, state = one.ref, store.view(one.ref) if where else store.load(one.ref)
        value = whole(pick(state, where, name))
    value = to_json(value if show_secrets else app.hidden(value, where))
    if app.out.as_json:
        app.out.data("state", {"ref": name, "path": to_json(list(where)), "state": value})
    else:
        app.out.line(dumps(value, indent=2) if full or not app.out.terminal else pretty(value))

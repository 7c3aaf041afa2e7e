"""`everstep state`: print the state of a checkpoint, or a part of it. On a terminal, long values are shortened."""

from __future__ import annotations

import click

from everstep.cli.app import App
from everstep.cli.app import command as make
from everstep.cli.args.naming import to_read
from everstep.cli.args.refs import REF
from everstep.cli.draw.text import safe
from everstep.cli.draw.values import pretty
from everstep.views.json import to_json
from everstep.views.states import state
from everstep.views.stored.paths import parse
from everstep.views.stored.values import as_json, dumps


@make("state")
@click.argument("ref", type=REF)
@click.argument("path", required=False)
@click.option("--newest-good", is_flag=True, help="If it is damaged, use the newest undamaged one, and list the skipped ones")
@click.option("--full", is_flag=True, help="Print long values in full, even on a terminal")
@click.option("--show-secrets", is_flag=True, help="Print secrets unmasked")
def command(app: App, ref: str, path: str | None, newest_good: bool, full: bool, show_secrets: bool) -> None:
    """Print the state of checkpoint REF, or only the value at PATH in it

    Example: everstep state o1@7 messages[2].content
    """
    where = parse(path) if path else ()
    with app.open() as store:
        found = state(store, app.mask, to_read(app, store, ref), where, newest_good=newest_good, show_secrets=show_secrets)
    if found.passed_over:
        app.out.say(safe(found.passed_over, lines=True), "yellow")
    if app.out.as_json:
        app.out.data("state", to_json(found))
    else:
        app.out.raw(dumps(as_json(found.state), indent=2) if full or not app.out.terminal else pretty(found.state))

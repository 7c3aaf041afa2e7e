"""`everstep restore`: print a saved state as JSON, exactly as it was. Nothing is masked, because a script continues from it."""

from __future__ import annotations

from pathlib import Path

import click

from everstep.cli.app import App
from everstep.cli.app import command as make
from everstep.cli.args.naming import to_change
from everstep.cli.args.refs import REF
from everstep.cli.draw.text import safe
from everstep.cli.files import replace
from everstep.views.states import stored_state
from everstep.views.stored.tagged_json import exact as exactly
from everstep.views.stored.values import as_json, dumps


@make("restore")
@click.argument("ref", type=REF)
@click.option("--output", "-o", metavar="FILE", help="Write the state to FILE instead; an existing file is replaced atomically")
@click.option("--newest-good", is_flag=True, help="If it is damaged, use the newest undamaged one, and list the skipped ones")
@click.option("--exact", is_flag=True, help="Write non-JSON values in a form that `checkpoint --state` reads back exactly")
def command(app: App, ref: str, output: str | None, newest_good: bool, exact: bool) -> None:
    """Print the state of checkpoint REF as JSON; the run is not changed

    Example: everstep restore crawl -o state.json
    """
    with app.open() as store:
        name, state, passed_over = stored_state(store, to_change(store, ref), newest_good=newest_good)
    if passed_over:
        app.out.say(safe(passed_over, lines=True), "yellow")
    shown = exactly(state) if exact else as_json(state)
    text = dumps(shown, indent=2)
    if output is not None:
        replace(Path(output), text + "\n")  # atomically: a script must never read half a state
        app.out.say(f"{name} -> {output}")
    if app.out.as_json:
        app.out.data("restore", {"ref": name, "state": shown if output is None else None, "file": output})
    elif output is None:
        app.out.raw(text)

"""`everstep retry`: mark a failed step to be called again when its run is resumed, even if the program has handled its error."""

from __future__ import annotations

import click

from everstep.cli.app import App
from everstep.cli.app import command as make
from everstep.cli.args.naming import to_change
from everstep.cli.args.refs import RUN, STEP
from everstep.cli.draw.hints import to_continue
from everstep.cli.draw.text import safe
from everstep.errors import NotFound


@make("retry")
@click.argument("run", type=RUN)
@click.argument("step", type=STEP, required=False)
def command(app: App, run: str, step: str | None) -> None:
    """Mark the failed STEP of RUN to be called again; without STEP, the one that failed last

    STEP is a name or an address such as fetch#2. To retry all runs that failed with an error: everstep resume --failed-by ERROR.

    Example: everstep retry o1 'price#1'
    """
    with app.open() as store:
        run = to_change(store, run)
        if step is None:
            step = next((one.address for one in reversed(store.steps(run)) if one.status == "failed"), None)
        if step is None:
            raise NotFound(f"run {run!r} has no failed step", remedy=f"See its steps: `everstep log {run}`.")
        store.retry(run, step)
        found = store.get(run)
    if app.out.as_json:
        app.out.data("retry", {"run": run, "step": step})
    app.out.say(f"Step {safe(step)} will be called again. {to_continue(app, found)}", "dim")

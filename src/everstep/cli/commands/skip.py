"""`everstep skip`: mark an unfinished step of a run as done, with a result that a person gives."""

from __future__ import annotations

import click

from everstep.cli.app import App
from everstep.cli.app import command as make
from everstep.cli.args import workflow_target
from everstep.cli.args.naming import to_change
from everstep.cli.args.refs import RUN, STEP
from everstep.cli.draw.hints import to_continue
from everstep.views.stored.values import as_json


@make("skip")
@click.argument("run", type=RUN)
@click.argument("step", type=STEP)
@click.argument("result", required=False)
def command(app: App, run: str, step: str, result: str | None) -> None:
    """Mark the unfinished STEP of RUN as done with RESULT (JSON or text; default: null)

    The step is not called when the run is resumed. STEP is a name or an address such as fetch#2.

    Example: everstep skip o1 'price#1' 40
    """
    value = None if result is None else workflow_target.value_of(result)
    with app.open() as store:
        run = to_change(store, run)
        store.skip(run, step, value)
        found = store.get(run)
    if app.out.as_json:
        app.out.data("skip", {"run": run, "step": step, "result": as_json(value)})
    app.out.say(f"Step {step} will be skipped. {to_continue(app, found)}", "dim")

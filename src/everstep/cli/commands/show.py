"""`everstep show`: show a run, one of its steps, or one of its checkpoints. Reads no state."""

from __future__ import annotations

import click

from everstep.cli.app import App
from everstep.cli.app import command as make
from everstep.cli.args.naming import to_read
from everstep.cli.args.refs import REF, STEP
from everstep.cli.pages.checkpoint_page import show_checkpoint
from everstep.cli.pages.run_page import show_run
from everstep.views.run import checkpoint, detail

_MANY = 10


@make("show")
@click.argument("ref", type=REF)
@click.argument("step", type=STEP, required=False)
@click.option("--limit", "-n", type=click.IntRange(1, 10_000), default=_MANY, show_default=True, help="Number of checkpoints to list")
@click.option("--full", is_flag=True, help="Print long inputs, results, outputs and tracebacks in full")
def command(app: App, ref: str, step: str | None, limit: int, full: bool) -> None:
    """Show the run REF with its input and result; with STEP, that step with its input, output and error

    REF may also name a checkpoint. STEP is an address such as fetch#2; a name alone means the first step with that name.

    Example: everstep show o1 'price#0'
    """
    with app.open() as store:
        ref = to_read(app, store, ref)
        is_checkpoint = "~" in ref or "@" in ref
        if step is not None and is_checkpoint:
            raise click.UsageError(f"STEP belongs to a run, and {ref!r:.60} is a checkpoint: give the run.")
        if step is not None:
            from everstep.cli.pages.step_page import show_step
            from everstep.views.step import step as step_of

            show_step(app, step_of(store, app.mask, ref, step), full)
        elif is_checkpoint:
            show_checkpoint(app, checkpoint(store, app.mask, ref))
        else:
            show_run(app, detail(store, app.mask, ref, checkpoints=limit, forks=_MANY), full)

"""`everstep enqueue`: add a run to a queue for a worker; optionally wait until it ends."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from everstep.cli.app import App
from everstep.cli.app import command as make
from everstep.cli.args import batches, workflow_target
from everstep.cli.args.refs import QUEUE
from everstep.cli.args.remembered import remember
from everstep.cli.args.times import SPAN
from everstep.cli.args.workflow_args import arguments_of, workflow_of
from everstep.cli.draw import run_outcome
from everstep.cli.draw.text import duration, plural, safe

if TYPE_CHECKING:
    from everstep.queues.enqueue import Enqueued
    from everstep.runtime.outcome import Outcome
    from everstep.runtime.workflow import AnyWorkflow

_OPTIONS = ("id", "queue", "priority", "delay", "key", "dedupe", "connection")


@make("enqueue")
@click.argument("workflow", required=False)
@click.argument("arguments", nargs=-1)
@click.option("--id", "run_id", help="Id of the run (default: random); if it exists, nothing is enqueued")
@click.option("--queue", type=QUEUE, default="default", show_default=True, help="Queue to add the run to")
@click.option("--priority", type=int, default=0, show_default=True, help="Priority; runs with a higher one are taken first")
@click.option("--delay", type=SPAN, help="Time until the run may be taken: 30s, 15min, 2h, 3d (default: none)")
@click.option("--key", help="Key of the run, by which `limit --per-key` counts")
@click.option("--dedupe", metavar="TEXT", help="Do not enqueue if an unfinished run of the queue has the same TEXT")
@click.option(
    "--import", "modules", multiple=True, metavar="MODULE", help="Module, .py file or YAML file that defines the workflow; repeatable"
)
@click.option("--wait", is_flag=True, help="Wait until the run ends, and print its outcome as `everstep run` does")
@click.option("--batch", is_flag=True, help="Read runs from standard input, one JSON object per line; enqueue all or none")
def command(
    app: App, workflow: str | None, arguments: tuple[str, ...], run_id: str | None, modules: tuple[str, ...], wait: bool, batch: bool,
    **options: Any,
) -> int:  # fmt: skip
    """Add a run of WORKFLOW to a queue, and print its id

    WORKFLOW is a YAML file, package.module:function, file.py:function, or the name of a workflow that a worker knows. An argument is VALUE
    or NAME=VALUE, where VALUE is JSON or text.

    With --batch, each line is an object with any of workflow, args, kwargs, id, queue, priority, delay, key and dedupe.

    Example: everstep enqueue flows.py:order tea --queue shop --delay 10min
    """
    app.import_all(modules)
    if batch:
        return _enqueue_batch(app, workflow, bool(arguments or run_id or wait), modules, options)
    if workflow is None:
        raise click.UsageError("Missing argument 'WORKFLOW'.")
    flow = workflow_of(app, workflow)
    args, named = arguments_of(arguments, _OPTIONS)
    with app.open(create=True) as store:
        made = store.enqueue(flow, *args, id=run_id, **options, **named)
        _remember(app, workflow, flow, modules)
        words = _words(made, options)
        if wait:
            app.out.say(f"{made.id}: {words}")
            return run_outcome.tell(app, _ended(app, made))
    if app.out.as_json:
        app.out.data("enqueued", {"run": made.id, "queue": made.queue, "new": made.new})
        return 0
    app.out.line(made.id)
    app.out.say(words, "dim")
    return 0


def _enqueue_batch(app: App, workflow: str | None, misfit: bool, modules: tuple[str, ...], options: dict[str, Any]) -> int:
    if misfit or options["key"] is not None or options["dedupe"] is not None:
        raise click.UsageError("With --batch, arguments, id, key and dedupe belong in each line, and --wait is not allowed.")
    items = batches.read(app, sys.stdin)
    flow = None if workflow is None else workflow_of(app, workflow)
    with app.open(create=True) as store:
        made = store.enqueue_many(items, workflow=flow, queue=options["queue"], priority=options["priority"], delay=options["delay"])
        if workflow is not None and flow is not None:
            _remember(app, workflow, flow, modules)
    if app.out.as_json:
        app.out.data("enqueued_batch", [{"run": one.id, "queue": one.queue, "new": one.new} for one in made])
        return 0
    for one in made:
        app.out.line(one.id)
    new = sum(one.new for one in made)
    app.out.say(f"Enqueued {plural(new, 'run')}" + (f"; {len(made) - new:,} already existed" if new < len(made) else ""), "dim")
    return 0


def _remember(app: App, target: str, flow: AnyWorkflow | str, modules: tuple[str, ...]) -> None:
    """Note which module defines the workflow, to suggest it."""
    if not isinstance(flow, str):
        module = workflow_target.module_of(target)
        remember(app.opened, flow.name, (module, *modules) if module else modules)


def _words(made: Enqueued[Any], options: dict[str, Any]) -> str:
    if not made.new:
        return f"Already exists: {made.status}"
    return f"Enqueued in {safe(made.queue)}" + (f", ready in {duration(options['delay'])}" if options["delay"] else "")


def _ended(app: App, made: Enqueued[Any]) -> Outcome[Any]:
    """Wait for the outcome. Report what the run waits for meanwhile: it may need a person."""
    reported = None
    while True:
        found = made.wait(1.0)
        if made.is_over():
            return found
        if found.status == "waiting" and found.reason != reported:
            reported = found.reason
            app.out.say(f"{made.id}: waiting ({safe(app.mask(reported) or '')})", "yellow")

"""`everstep run`: start a workflow that a file or module defines, and run it until it ends or has to wait."""

from __future__ import annotations

import click

from everstep.cli.app import App
from everstep.cli.app import command as make
from everstep.cli.args import workflow_target
from everstep.cli.args.remembered import remember
from everstep.cli.draw import run_outcome
from everstep.cli.draw.steps_live import watch


@make("run", context_settings={"ignore_unknown_options": False})
@click.argument("target")
@click.argument("arguments", nargs=-1)
@click.option("--id", "run_id", help="Id of the run (default: random); an existing run is continued, or its result printed")
@click.option(
    "--import", "modules", multiple=True, metavar="MODULE", help="Module, .py file or YAML file with further workflows; repeatable"
)
@click.option("--input", "inputs", metavar="FILE", help="Read named arguments from a JSON file; - is standard input")
def command(app: App, target: str, arguments: tuple[str, ...], run_id: str | None, modules: tuple[str, ...], inputs: str | None) -> int:
    """Run the workflow TARGET with ARGUMENTS, and print its result

    TARGET is a YAML file, package.module:function or file.py:function. An argument is VALUE or NAME=VALUE, where VALUE is JSON or text.

    Example: everstep run flows.py:order tea --id o1
    """
    app.import_all(modules)
    with app.out.apart():
        workflow = workflow_target.load(target)
    defined = (workflow_target.module_of(target), *modules)
    args, named = workflow_target.arguments(arguments)
    if inputs is not None:
        named = {**_named(workflow_target.json_of(inputs)), **named}
    if "id" in named:
        raise click.UsageError("the argument 'id' cannot be given by name, because --id is the id of the run: give it by position.")
    with app.open(create=True, driving=True) as store:
        watch(app, store)
        with run_outcome.driving(app, defined):
            done = store.start(workflow, *args, id=run_id, **named)
        remember(app.opened, getattr(workflow, "name", None), defined)
        return run_outcome.tell(app, done, defined, store=store)


def _named(value: object) -> dict[str, object]:
    if not isinstance(value, dict):
        raise click.UsageError("--input must contain a JSON object")
    return value

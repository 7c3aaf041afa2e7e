"""`everstep run`: start a workflow that a file or a module defines, and drive it to its end or to where it has to wait."""

from __future__ import annotations

import click

from everstep.cli.app import App
from everstep.cli.app import command as make
from everstep.cli.args import workflow_target
from everstep.cli.draw import run_outcome
from everstep.cli.draw.steps_live import watch


@make("run", context_settings={"ignore_unknown_options": False})
@click.argument("target")
@click.argument("arguments", nargs=-1)
@click.option("--id", "run_id", help="The id of the run. With one that exists, its run goes on, or its result is printed again.")
@click.option("--import", "modules", multiple=True, metavar="MODULE", help="A module that defines further workflows.")
@click.option("--input", "inputs", metavar="FILE", help="Named arguments from a JSON file; - is standard input.")
def command(app: App, target: str, arguments: tuple[str, ...], run_id: str | None, modules: tuple[str, ...], inputs: str | None) -> int:
    """Run TARGET: a YAML file, package.module:function or file.py:function, with ARGUMENTS (VALUE or NAME=VALUE, JSON or text)."""
    app.import_modules((*app.imports(), *modules))
    with app.out.apart():
        workflow = workflow_target.load(target)
    defined = (workflow_target.module_of(target), *modules)
    args, named = workflow_target.arguments(arguments)
    if inputs is not None:
        named = {**_named(workflow_target.json_of(inputs)), **named}
    if "id" in named:
        raise click.UsageError("an argument named id cannot be given by its name: --id is that of the run. Give it by its position.")
    with app.open(create=True, driving=True) as store:
        watch(app, store)
        with run_outcome.driving(app, defined):
            done = store.start(workflow, *args, id=run_id, **named)
        return run_outcome.tell(app, done, defined)


def _named(value: object) -> dict[str, object]:
    if not isinstance(value, dict):
        raise click.UsageError("--input is no JSON object")
    return value

"""Parses the workflow and arguments of `enqueue` and `schedule`. The workflow is a target or a name. Imports only what the person named."""

from __future__ import annotations

from typing import Any

import click

from everstep.cli.app import App
from everstep.cli.args import workflow_target
from everstep.cli.draw.text import safe
from everstep.errors import InvalidArgument
from everstep.runtime.workflow import AnyWorkflow, Workflow, by_name


def workflow_of(app: App, target: str) -> AnyWorkflow | str:
    """Return the workflow, or its name if only workers know it; then its arguments cannot be checked here."""
    known = by_name(target)
    if known is not None:
        return known
    if not target.endswith((".yaml", ".yml")) and ":" not in target:
        app.out.say(
            f"Workflow {safe(target)!r} is not defined here, so its arguments are not checked. A worker that defines it will run it.", "dim"
        )
        return target
    with app.out.apart():
        found = workflow_target.load(target)
    if not isinstance(found, Workflow):
        raise InvalidArgument(
            f"{target!r:.100} is not a workflow, so no worker would find it", remedy="Decorate the function with @everstep.workflow."
        )
    return found


def arguments_of(given: tuple[str, ...], taken: tuple[str, ...]) -> tuple[list[Any], dict[str, Any]]:
    """Return the arguments. An argument with the name of one of our options must be given by position."""
    args, named = workflow_target.arguments(given)
    for name in taken:
        if name in named:
            raise click.UsageError(f"the argument {name!r} cannot be given by name here: give it by position.")
    return args, named

"""What `enqueue` and `schedule` are given: a workflow by its target or by its name, and its arguments. Imports only what the person named."""

from __future__ import annotations

from typing import Any

import click

from everstep.cli.app import App
from everstep.cli.args import workflow_target
from everstep.cli.draw.text import safe
from everstep.errors import InvalidArgument
from everstep.runtime.workflow import Workflow, by_name


def workflow_of(app: App, target: str) -> Workflow | str:
    """The workflow, or its name if only workers know it: then nobody can check here what it is given."""
    known = by_name(target)
    if known is not None:
        return known
    if not target.endswith((".yaml", ".yml")) and ":" not in target:
        app.out.say(
            f"no workflow {safe(target)!r} is known here: its arguments are not checked, and a worker that knows it takes it", "dim"
        )
        return target
    with app.out.apart():
        found = workflow_target.load(target)
    if not isinstance(found, Workflow):
        raise InvalidArgument(
            f"{target!r:.100} is no workflow, and no worker would find it", remedy="Put @everstep.workflow on the function."
        )
    return found


def arguments_of(given: tuple[str, ...], taken: tuple[str, ...]) -> tuple[list[Any], dict[str, Any]]:
    """The arguments; those that have the name of an option of ours cannot be given by it."""
    args, named = workflow_target.arguments(given)
    for name in taken:
        if name in named:
            raise click.UsageError(f"an argument named {name} cannot be given by its name here. Give it by its position.")
    return args, named

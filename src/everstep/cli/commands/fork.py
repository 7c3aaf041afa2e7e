"""`everstep fork`: create a run that begins at a checkpoint of another run, optionally with an edited state."""

from __future__ import annotations

from collections.abc import Callable
from shlex import quote
from typing import Any

import click

from everstep.cli.app import App
from everstep.cli.app import command as make
from everstep.cli.args import workflow_target
from everstep.cli.args.naming import to_change
from everstep.cli.args.refs import REF
from everstep.cli.draw.hints import to_continue
from everstep.errors import InvalidArgument
from everstep.views.json import to_json
from everstep.views.runs import run_view
from everstep.views.stored.edits import put, remove
from everstep.views.stored.paths import parse
from everstep.views.stored.tagged_json import from_json


@make("fork")
@click.argument("ref", type=REF)
@click.argument("id", required=False)
@click.option(
    "--set",
    "changes",
    multiple=True,
    metavar="PATH=VALUE",
    help="Set a value in the state (VALUE is JSON or text), such as topic=logs; repeatable",
)
@click.option("--unset", "removed", multiple=True, metavar="PATH", help="Remove a value from the state; repeatable")
@click.option("--state", "file", metavar="FILE", help="Begin with this JSON state instead; - is standard input")
def command(app: App, ref: str, id: str | None, changes: tuple[str, ...], removed: tuple[str, ...], file: str | None) -> None:
    """Create a run that begins at checkpoint REF, with the id ID (default: random)

    Example: everstep fork o1@3 o2 --set topic=logs
    """
    edit = _edit(changes, removed, file)
    with app.open(driving=True) as store:
        ref = to_change(store, ref)
        try:
            run = store.fork(ref, id, edit)
        except InvalidArgument as error:
            error.remedy = error.remedy.replace("everstep state REF", f"everstep state {quote(ref)}")
            raise
        view = run_view(store, run, app.mask)
    if app.out.as_json:
        app.out.data("fork", to_json(view))
    else:
        app.out.line(run.id)
        app.out.say(f"Forked from {run.parent}@{run.parent_number}. {to_continue(app, run)}", "dim")


def _edit(changes: tuple[str, ...], removed: tuple[str, ...], file: str | None) -> Callable[[Any], Any] | None:
    if not changes and not removed and file is None:
        return None
    pairs = [(parse(path), value) for path, value in (workflow_target.pair(text, "--set", "PATH=VALUE") for text in changes)]
    paths = [parse(text) for text in removed]
    whole = None if file is None else [from_json(workflow_target.json_of(file))]
    if whole == [None]:
        raise InvalidArgument("the state of a fork must not be null", remedy="Use {} instead.")

    def edit(state: Any) -> Any:
        state = state if whole is None else whole[0]
        for path, value in pairs:
            state = put(state, path, value)
        for path in paths:
            state = remove(state, path)
        return state

    return edit

"""Builds `pause` and `cancel`, the commands that stop a run at its next step, from any process."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from everstep.cli.app import App
from everstep.cli.app import command as make
from everstep.cli.args.naming import to_change
from everstep.cli.args.refs import RUN
from everstep.views.json import to_json
from everstep.views.runs import run_view

if TYPE_CHECKING:
    from everstep.store.views import RunInfo


def stop_command(name: str, sentence: str) -> click.Command:
    """Build a command that calls the store's method of the same name."""

    @make(name, help=f"{sentence}\n\nExample: everstep {name} o1 --reason 'wrong input'")
    @click.argument("run", type=RUN)
    @click.option("--reason", help="Reason, which is recorded in the journal")
    def command(app: App, run: str, reason: str | None) -> None:
        with app.open() as store:
            run = to_change(store, run)
            changed = getattr(store, name)(run, reason)
            found = store.get(run)
        if app.out.as_json:
            app.out.data(name, {"run": to_json(run_view(found, app.mask))})
        else:
            app.out.say(f"{found.id}: {_said(found, changed)}")

    return command


def _said(run: RunInfo, changed: bool | None) -> str:
    """Return the effect of the command in words. `cancel` returns False for a run that has succeeded."""
    if changed is False:
        return f"already {run.status}; nothing was changed"
    return "requested; its process stops at the next step" if run.open else run.status

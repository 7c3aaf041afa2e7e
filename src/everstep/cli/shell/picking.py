"""Lets a person choose the run of a command that names none: among matching runs for commands that change one, otherwise among the newest."""

from __future__ import annotations

import click

from everstep.cli.app import App
from everstep.cli.args.choose import MANY, pick, run_of
from everstep.views.runs import list_runs

_OF_STATUS = {
    "answer": ("waiting",),
    "cancel": ("crashed", "interrupted", "running", "failed", "waiting", "queued"),
    "pause": ("crashed", "interrupted", "running", "waiting", "queued"),
}


def run_for(app: App, command: str) -> str:
    """Let the person pick the run for a command."""
    with app.open() as store:
        if command in _OF_STATUS:
            return run_of(app, store, None, command, lambda run: run.status in _OF_STATUS[command])
        found = list_runs(store, app.mask, limit=MANY).runs
    if not found:
        raise click.UsageError("The store has no runs yet.")
    return pick(app, found, command)

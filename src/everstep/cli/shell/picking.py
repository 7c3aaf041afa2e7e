"""A chooser for the run of a command that names none: those that can go on for what drives a run, the newest of all for what only looks."""

from __future__ import annotations

import click

from everstep.cli.app import App
from everstep.cli.choosing import run_of
from everstep.cli.text import ago, cell, safe

_MANY = 20
_OF_STATUS = {"answer": ("waiting",), "cancel": ("running", "failed", "waiting", "queued"), "pause": ("running", "waiting", "queued")}


def run_for(app: App, command: str) -> str:
    """The run that a person picks for a command."""
    with app.open() as store:
        if command in _OF_STATUS:
            return run_of(app, store, None, command, lambda run: run.status in _OF_STATUS[command])
        found = store.runs(limit=_MANY)
    if not found:
        raise click.UsageError("There are no runs yet.")
    for number, run in enumerate(found, 1):
        about = f"{run.status:<10} {cell(run.workflow or '', 24):<24} {ago(run.updated_at):>12}  {cell(app.hidden(run.note) or '', 40)}"
        app.out.say(f"{number:>3}  {safe(run.id):<20} {about}".rstrip())
    number = click.prompt(f"Which one to {command}", type=click.IntRange(1, len(found)), default=1, err=True)
    return str(found[number - 1].id)

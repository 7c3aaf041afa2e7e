"""A chooser for what was not named: on a terminal a numbered list, otherwise the missing argument is named."""

from __future__ import annotations

from typing import Any

import click

from everstep.cli.app import App, interactive
from everstep.cli.text import ago, cell

_MANY = 20


def run_of(app: App, store: Any, given: str | None, what: str, fits: Any) -> str:
    """The run that was named, or the one that a person picks."""
    if given is not None:
        return given
    if not interactive():
        raise click.UsageError(f"Missing argument 'RUN'. Name the run to {what}, or @last.")
    found = [run for status in ("running", "failed", "waiting", "queued") for run in store.runs(status=status, limit=_MANY) if fits(run)][
        :_MANY
    ]
    if not found:
        raise click.UsageError(f"There is no run to {what}.")
    for number, run in enumerate(found, 1):
        about = f"{run.status:<10} {cell(run.workflow or '', 24):<24} {ago(run.updated_at):>12}  {cell(app.hidden(run.note) or '', 40)}"
        app.out.say(f"{number:>3}  {run.id:<20} {about}".rstrip())
    number = click.prompt(f"Which one to {what}", type=click.IntRange(1, len(found)), default=1, err=True)
    return str(found[number - 1].id)

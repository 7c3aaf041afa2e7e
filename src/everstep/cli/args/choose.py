"""Lets a person choose a run that was not named: a numbered list on a terminal, otherwise an error."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import click

from everstep.cli.app import App, interactive
from everstep.cli.args.naming import to_change
from everstep.cli.draw.text import cell, cut, safe
from everstep.views.runs import RunView, list_runs

if TYPE_CHECKING:
    from everstep.api import Store

MANY = 20


def run_of(app: App, store: Store, given: str | None, what: str, fits: Callable[[RunView], object]) -> str:
    """Return the named run, by its exact id, or the one that the person picks."""
    if given is not None:
        return to_change(store, given)
    if not interactive():
        raise click.UsageError(f"Missing argument 'RUN'. Name the run to {what}.")
    statuses = ("crashed", "interrupted", "running", "failed", "waiting", "queued")
    listed = (list_runs(store, app.mask, status=status, limit=MANY).runs for status in statuses)
    found = [run for page in listed for run in page if fits(run)][:MANY]
    if not found:
        raise click.UsageError(f"No run to {what} was found.")
    return pick(app, found, what)


def pick(app: App, runs: Sequence[RunView], what: str) -> str:
    """Let the person pick a run from a numbered list."""
    for number, run in enumerate(runs, 1):
        about = f"{run.status:<11} {cell(run.workflow or '', 24):<24} {app.out.when(run.updated_at):>15}  {cell(run.note or '', 40)}"
        app.out.say(cut(f"{number:>3}  {safe(run.id):<20} {about}".rstrip(), app.out.talk_columns))
    number = click.prompt(f"Which one to {what}", type=click.IntRange(1, len(runs)), default=1, err=True)
    return str(runs[number - 1].id)

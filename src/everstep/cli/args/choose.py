"""Lets a person choose a run that was not named: a numbered list on a terminal, otherwise an error."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import click

from everstep.cli.app import App, interactive
from everstep.cli.args.naming import to_change
from everstep.cli.draw.text import ago, cell, safe

if TYPE_CHECKING:
    from everstep.api import Store
    from everstep.store.views import RunInfo

MANY = 20


def run_of(app: App, store: Store, given: str | None, what: str, fits: Callable[[RunInfo], object]) -> str:
    """Return the named run, by its exact id, or the one that the person picks."""
    if given is not None:
        return to_change(store, given)
    if not interactive():
        raise click.UsageError(f"Missing argument 'RUN'. Name the run to {what}.")
    found = [run for status in ("running", "failed", "waiting", "queued") for run in store.runs(status=status, limit=MANY) if fits(run)][
        :MANY
    ]
    if not found:
        raise click.UsageError(f"No run to {what} was found.")
    return pick(app, found, what)


def pick(app: App, runs: Sequence[RunInfo], what: str) -> str:
    """Let the person pick a run from a numbered list."""
    for number, run in enumerate(runs, 1):
        about = f"{run.status:<10} {cell(run.workflow or '', 24):<24} {ago(run.updated_at):>12}  {cell(app.mask(run.note) or '', 40)}"
        app.out.say(f"{number:>3}  {safe(run.id):<20} {about}".rstrip())
    number = click.prompt(f"Which one to {what}", type=click.IntRange(1, len(runs)), default=1, err=True)
    return str(runs[number - 1].id)

"""Commands that act on several runs: names, or filters; a count and a question first. One run that is named exactly needs no question.

A run at which the action fails does not keep the others from it; its error is printed, and its exit code is that of the command.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from everstep.cli import exit_codes
from everstep.cli.app import App, confirm_or_stop
from everstep.cli.args.naming import to_change
from everstep.cli.args.refs import RUN
from everstep.cli.args.times import MOMENT
from everstep.cli.args.workflow_target import pair
from everstep.cli.draw.text import plural, safe
from everstep.errors import EverstepError, NotFound
from everstep.store.lookup import ids_like
from everstep.views.runs import STATUSES, RunView, list_runs

if TYPE_CHECKING:
    from everstep.api import Store

_SHOWN = 5
GROUPS = {"Several runs": ("status", "workflow", "tag", "session", "where", "since", "until", "yes")}
FILTERS = ("status", "workflow", "tag", "session", "where", "since", "until")


def several(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the argument RUNS and the filters to a command."""
    options = (
        click.argument("runs", nargs=-1, type=RUN),
        click.option("--status", type=click.Choice(STATUSES), help="Select runs with this status"),
        click.option("--workflow", metavar="NAME", help="Select runs of this workflow"),
        click.option("--tag", multiple=True, help="Select runs with this tag; repeatable"),
        click.option("--session", metavar="NAME", help="Select runs of this session"),
        click.option("--where", multiple=True, metavar="KEY=VALUE", help="Select runs with this metadata; repeatable"),
        click.option("--since", type=MOMENT, help="Select runs that began after this time: 2h, 3d, yesterday, 2026-11-15"),
        click.option("--until", type=MOMENT, help="Select runs that began before this time"),
        click.option("--yes", "-y", is_flag=True, help="Do not ask"),
    )
    for option in reversed(options):
        function = option(function)
    return function


def chosen(
    app: App, store: Store, runs: Sequence[str], given: dict[str, Any], verb: str, fits: Callable[[RunView], bool], ask: bool
) -> list[str]:
    """Return the ids to act on, after a question if there are several or `ask` is set; none if the person declines."""
    filters = {name: value for name in FILTERS if (value := given.pop(name)) not in (None, ())}
    yes = given.pop("yes")
    if runs and filters:
        raise click.UsageError("Give runs or filters, not both.")
    if not runs and not filters:
        raise click.UsageError(f"Missing argument 'RUNS'. Name the runs to {verb}, or select them: --status, --workflow, --tag, --where.")
    ids = list(dict.fromkeys(to_change(store, run) for run in runs)) if runs else _matching(store, app, filters, fits)
    if not ids:
        raise NotFound(f"no run that you can {verb} matches the filters", remedy="List runs with the same filters: `everstep runs`.")
    if runs and ask and not any(ids_like(store, run, 1) == [run] for run in ids):
        raise NotFound(f"there is no run {ids[0]!r}", remedy="List runs with `everstep runs`.")
    if (ask or len(ids) > 1 or filters) and not confirm_or_stop(app, _question(verb, ids), yes):
        app.out.say("Nothing was changed.")
        return []
    return ids


def each(app: App, ids: Sequence[str], act: Callable[[str], None]) -> tuple[list[str], list[dict[str, str]], int]:
    """Act on each run; return those that worked, the failures, and the exit code of the command. A single failure is raised."""
    done, failed, code = [], [], exit_codes.OK
    for run in ids:
        try:
            act(run)
        except EverstepError as error:
            if len(ids) == 1:
                raise
            failed.append({"run": run, "code": error.code, "message": app.mask.text(error.message)})
            app.out.say(f"{run}: {safe(app.mask.text(error.message))} [{error.code}]", "red")
            code = code or exit_codes.code_of(error)
        else:
            done.append(run)
    return done, failed, code


def _matching(store: Store, app: App, filters: dict[str, Any], fits: Callable[[RunView], bool]) -> list[str]:
    if where := filters.pop("where", ()):
        filters["meta"] = dict(pair(text, "--where", "KEY=VALUE") for text in where)
    return [run.id for run in list_runs(store, app.mask, **filters).runs if "status" in filters or fits(run)]


def _question(verb: str, ids: Sequence[str]) -> str:
    names = ", ".join(safe(run) for run in ids[:_SHOWN]) + (", …" if len(ids) > _SHOWN else "")
    return f"{verb.capitalize()} {plural(len(ids), 'run')} ({names})?"

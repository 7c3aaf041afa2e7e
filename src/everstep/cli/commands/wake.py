"""`everstep wake`: resume every run that is due, once. A worker does the same all the time."""

from __future__ import annotations

import click

from everstep.cli import exit_codes
from everstep.cli.app import App
from everstep.cli.app import command as make
from everstep.cli.draw import run_outcome
from everstep.cli.draw.steps_live import watch
from everstep.cli.draw.text import plural, safe
from everstep.views.json import to_json
from everstep.views.outcome import outcome_view


@make("wake")
@click.option(
    "--import", "modules", multiple=True, metavar="MODULE", help="Module, .py file or YAML file that defines the workflows; repeatable"
)
@click.option("--limit", "-n", type=click.IntRange(1), help="Number of runs to resume (default: all)")
@click.option("--dry-run", is_flag=True, help="Resume nothing; list the runs that are due")
def command(app: App, modules: tuple[str, ...], limit: int | None, dry_run: bool) -> int:
    """Resume every run that is due: its deadline has passed, its gate was answered, or its retry is due

    Runs of queues are left to their workers.

    Example: everstep wake --import flows.py
    """
    if dry_run:
        return _due(app)
    app.import_all(modules)
    with app.open(driving=True) as store:
        watch(app, store)
        with run_outcome.driving(app, modules):
            found = store.wake(limit)
        left = [] if limit is not None and len(found) == limit else store.due()
    codes = [exit_codes.FAILED if one.status == "failed" else exit_codes.OK for one in found]
    if app.out.as_json:
        app.out.data("wake", {"outcomes": to_json([outcome_view(one, app.mask) for one in found]), "left": left})
        return max(codes, default=0)
    for one in found:
        run_outcome.tell(app, one, modules, result=False)
    app.out.say(f"Resumed {plural(len(found), 'run')}." if found else "No run was resumed." if left else "No run is due.")
    if left:
        names = ", ".join(safe(run) for run in left[:5]) + (", …" if len(left) > 5 else "")
        app.out.say(f"{plural(len(left), 'due run')} not resumed (in a queue, or the workflow is not defined here): {names}", "yellow")
    return max(codes, default=0)


def _due(app: App) -> int:
    with app.open() as store:
        found = store.due()
    if app.out.as_json:
        app.out.data("wake", {"outcomes": [], "left": found})
        return 0
    for run in found:
        app.out.line(safe(run))
    app.out.say(f"{plural(len(found), 'run')} due." if found else "No run is due.")
    return 0

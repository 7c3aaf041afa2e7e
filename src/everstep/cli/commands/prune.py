"""`everstep prune`: drop the states of checkpoints that retention does not keep. Their records stay, so the chain can still be verified."""

from __future__ import annotations

from typing import Any

import click

from everstep.cli.app import App
from everstep.cli.app import command as make
from everstep.cli.args.naming import to_change
from everstep.cli.args.refs import RUN
from everstep.cli.args.retention_options import chosen, retention_options
from everstep.cli.draw.text import plural, safe, size
from everstep.store.retention.prune import PrunePlan
from everstep.views.json import to_json
from everstep.views.upkeep import prune_view


@make("prune")
@click.argument("run", type=RUN, required=False)
@retention_options
@click.option("--dry-run", is_flag=True, help="Change nothing; print what would be dropped, and why")
def command(app: App, run: str | None, dry_run: bool, **given: Any) -> int:
    """Drop states of RUN, or of all runs, that retention does not keep

    The options define what is kept; without any, the retention of the store and of the runs applies.

    Example: everstep prune o1 --keep-last 20 --dry-run
    """
    retention = chosen(given)
    with app.open() as store:
        run = None if run is None else to_change(store, run)
        with app.out.progress("pruning") as progress:
            plan = store.prune(retention, run=run, dry_run=dry_run, progress=progress)
    if app.out.as_json:
        app.out.data("prune", to_json(prune_view(plan)))
    elif retention is None and not plan.runs and not plan.unread:
        app.out.say("No retention is set, so every state is kept. Set what to keep, for example `everstep prune --keep-last 20`.")
    else:
        print_plan(app, plan, " Run `everstep gc` to reclaim disk space.")
    return 0 if not plan.unread else 5


def print_plan(app: App, plan: PrunePlan, hint: str = "") -> None:
    for one in plan.runs:
        for decision in one.decisions:
            if not decision.kept:
                app.out.line(f"{one.run}@{decision.number}  {size(decision.bytes)}  {safe(decision.reason)}")
        if one.problem:
            app.out.say(f"{one.run}: {safe(one.problem)}", "yellow")
    for name in plan.unread:
        app.out.say(f"{safe(name)}", "red")
    dropped = "Would drop" if plan.dry_run else "Dropped"
    app.out.say(f"{dropped} {plural(plan.dropped, 'state')} ({size(plan.freed)}).{hint}")

"""`everstep cleanup`: apply retention: delete ended runs, prune, collect garbage and return the space to the disk."""

from __future__ import annotations

from typing import Any

import click

from everstep.cli.app import App, confirm_or_stop
from everstep.cli.app import command as make
from everstep.cli.args.retention_options import chosen, retention_options
from everstep.cli.args.times import SPAN
from everstep.cli.commands.prune import print_plan
from everstep.cli.draw.text import plural, safe, size
from everstep.views.json import to_json
from everstep.views.upkeep import cleanup_view


@make("cleanup")
@retention_options
@click.option("--seconds", type=SPAN, metavar="SPAN", help="Stop after this time; the next clean-up continues (default: no limit)")
@click.option("--dry-run", is_flag=True, help="Change nothing; print what would be dropped, and why")
@click.option("--yes", "-y", is_flag=True, help="Delete runs without asking")
def command(app: App, seconds: float | None, dry_run: bool, yes: bool, **given: Any) -> int:
    """Delete ended runs, prune and gc, according to the options or the store's retention

    Example: everstep cleanup --keep-last 20 --dry-run
    """
    retention = chosen(given)
    with app.open() as store:
        if not dry_run and not yes:
            with app.out.progress("planning") as progress:
                runs = store.cleanup(retention, dry_run=True, seconds=seconds, progress=progress).deleted
            if runs and not confirm_or_stop(app, f"This deletes {plural(len(runs), 'run')} permanently. Continue?", yes):
                app.out.say("Nothing was changed.")
                return 1
        with app.out.progress("cleaning") as progress:
            found = store.cleanup(retention, dry_run=dry_run, seconds=seconds, progress=progress)
    if app.out.as_json:
        app.out.data("cleanup", to_json(cleanup_view(found, dry_run)))
        return 0
    for one in found.deleted:
        app.out.line(f"{one.run}  {size(one.bytes)}  {safe(one.reason)}")
    print_plan(app, found.pruned)
    deleted, returned = ("Would delete", "return") if dry_run else ("Deleted", "returned")
    app.out.say(f"{deleted} {plural(len(found.deleted), 'run')} and {returned} {size(found.collected.given_back)} to the disk.")
    return 0

"""`everstep cleanup`: all that retention asks for, in one go: delete ended runs, prune, gc, give the space back."""

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
@click.option("--seconds", type=SPAN, metavar="SPAN", help="Stop after this time; the next one goes on.")
@click.option("--dry-run", is_flag=True, help="Change nothing; say what would go, and why.")
@click.option("--yes", "-y", is_flag=True, help="Delete runs without asking.")
def command(app: App, seconds: float | None, dry_run: bool, yes: bool, **given: Any) -> int:
    """Delete runs that have ended, prune and gc, as the options or the store's own retention say."""
    retention = chosen(given)
    with app.open() as store:
        if not dry_run and not yes:
            runs = store.cleanup(retention, dry_run=True, seconds=seconds).deleted
            if runs and not confirm_or_stop(app, f"{plural(len(runs), 'run')} would be deleted for good. Go on?", yes):
                return 1
        found = store.cleanup(retention, dry_run=dry_run, seconds=seconds)
    if app.out.as_json:
        app.out.data("cleanup", to_json(cleanup_view(found, dry_run)))
        return 0
    for one in found.deleted:
        app.out.line(f"{one.run}  {size(one.bytes)}  {safe(one.reason)}")
    print_plan(app, found.pruned)
    would, returned = ("would be deleted", "would be given back") if dry_run else ("deleted", "given back")
    app.out.say(f"{plural(len(found.deleted), 'run')} {would}; {size(found.collected.given_back)} {returned} to the disk")
    return 0

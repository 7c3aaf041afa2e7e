"""`everstep migrate`: bring a store to the format of this version. Opening a store does the same; this command reports it, and has --dry-run."""

from __future__ import annotations

import click

from everstep.cli.app import App
from everstep.cli.app import command as make
from everstep.cli.draw.text import plural
from everstep.cli.remedies import mend
from everstep.errors import EverstepError


@make("migrate")
@click.option("--dry-run", is_flag=True, help="Change nothing; print the store's format and what would be done")
def command(app: App, dry_run: bool) -> int:
    """Bring the store to the format of this version, in one transaction

    Example: everstep migrate --dry-run
    """
    from everstep.backends.registry import formats

    try:
        before, after = formats(app.address)
    except EverstepError as error:
        mend(error, app.address, app.url, create=True)
        raise
    upgrades = 0
    if not dry_run:
        # in a database, creating the tables is a migration, too
        with app.open(create=before == 0) as store, app.out.progress("reading", "runs") as progress:
            upgrades = len(store.upgrades(progress=progress))
    if app.out.as_json:
        app.out.data("migrate", {"from": before, "to": after, "dry_run": dry_run, "types_to_upgrade": upgrades})
    elif before == after:
        app.out.say(f"The store already has format {after}, the one of this version.")
    else:
        app.out.say(f"{'Would migrate' if dry_run else 'Migrated'} the store from format {before} to format {after}.")
    if upgrades:
        app.out.say(f"{plural(upgrades, 'state')} with older types will be upgraded when loaded.")
    return 0

"""`everstep migrate`: bring a store to the format of this version. Opening does the same; this says so, and can look first."""

from __future__ import annotations

import click

from everstep.cli.app import App
from everstep.cli.app import command as make
from everstep.cli.draw.text import plural


@make("migrate")
@click.option("--dry-run", is_flag=True, help="Change nothing; say which format the store has, and what would be done.")
def command(app: App, dry_run: bool) -> int:
    """Bring the store to the format of this version, in one transaction."""
    from everstep.backends.registry import formats

    before, after = formats(app.place)
    upgrades = 0
    if not dry_run:
        with app.open(create=before == 0) as store:  # in a database, making the tables is a migration too
            upgrades = len(store.upgrades())
    if app.out.as_json:
        app.out.data("migrate", {"from": before, "to": after, "dry_run": dry_run, "types_to_upgrade": upgrades})
    elif before == after:
        app.out.say(f"the store has format {after}, that of this version")
    else:
        app.out.say(f"format {before} {'would become' if dry_run else 'became'} format {after}")
    if upgrades:
        app.out.say(f"{plural(upgrades, 'state')} of older types are upgraded when they are loaded")
    return 0

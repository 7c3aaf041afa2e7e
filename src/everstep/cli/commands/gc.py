"""`everstep gc`: free what nothing refers to any more, and give the space back, while others go on writing."""

from __future__ import annotations

import click

from everstep.cli.app import App
from everstep.cli.app import command as make
from everstep.cli.draw.text import plural, safe, size
from everstep.views.json import to_json
from everstep.views.upkeep import collected_view


@make("gc")
@click.option("--dry-run", is_flag=True, help="Change nothing; say what would be freed.")
@click.option("--compact", is_flag=True, help="Rebuild the store without any free space; keeps writers out meanwhile.")
def command(app: App, dry_run: bool, compact: bool) -> int:
    """Free the chunks that nothing refers to."""
    with app.open() as store, app.out.progress("looking") as progress:
        found = store.gc(dry_run=dry_run, compact=compact, progress=progress)
    if app.out.as_json:
        app.out.data("gc", to_json(collected_view(found)))
    else:
        would, given = ("would be freed", "would be given back") if dry_run else ("freed", "given back")
        app.out.say(f"{plural(found.chunks, 'chunk')} {would}, {size(found.freed)}; {size(found.given_back)} {given} to the disk")
        for problem in found.problems:
            app.out.say(safe(problem), "red")
    return 5 if found.problems else 0

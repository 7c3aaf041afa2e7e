"""`everstep gc`: free chunks that nothing refers to and return the space to the disk, while others keep writing."""

from __future__ import annotations

import click

from everstep.cli.app import App
from everstep.cli.app import command as make
from everstep.cli.draw.text import plural, safe, size
from everstep.views.json import to_json
from everstep.views.upkeep import collected_view


@make("gc")
@click.option("--dry-run", is_flag=True, help="Change nothing; print what would be freed")
@click.option("--compact", is_flag=True, help="Rebuild the store without free space; blocks writers meanwhile")
def command(app: App, dry_run: bool, compact: bool) -> int:
    """Free chunks that nothing refers to, and return the space to the disk

    Example: everstep gc --dry-run
    """
    with app.open() as store, app.out.progress("searching") as progress:
        found = store.gc(dry_run=dry_run, compact=compact, progress=progress)
    if app.out.as_json:
        app.out.data("gc", to_json(collected_view(found)))
    else:
        freed, returned = ("Would free", "return") if dry_run else ("Freed", "returned")
        app.out.say(f"{freed} {plural(found.chunks, 'chunk')} ({size(found.freed)}) and {returned} {size(found.given_back)} to the disk.")
        for problem in found.problems:
            app.out.say(safe(problem), "red")
    return 5 if found.problems else 0

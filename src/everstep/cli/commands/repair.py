"""`everstep repair`: write everything provably undamaged of a store into a new one, and list what is lost."""

from __future__ import annotations

from dataclasses import asdict

import click

from everstep.cli import exit_codes
from everstep.cli.app import App
from everstep.cli.app import command as make
from everstep.cli.draw.text import safe
from everstep.errors import NotAStore


@make("repair")
@click.argument("source")
@click.argument("target")
def command(app: App, source: str, target: str) -> int:
    """Write a new store at TARGET with all undamaged data of the store at SOURCE

    SOURCE is only read. The command exits with 6 if something is lost.

    Example: everstep repair damaged.db repaired.db
    """
    import everstep

    try:
        with app.out.progress("repairing", "runs") as progress:
            keys = {} if app.configured is None else app.configured.keys()
            found = everstep.repair(source, target, progress=progress, **keys)
    except NotAStore as error:
        if error.remedy == NotAStore.remedy:
            error.remedy = "Nothing in it can be copied. Restore a backup, or check the path of SOURCE."
        raise
    if app.out.as_json:
        app.out.data("repair", asdict(found))
    else:
        app.out.line(safe(str(found), lines=True))
    return exit_codes.FOUND if found.lost else exit_codes.OK

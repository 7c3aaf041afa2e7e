"""`everstep repair`: a new store with all that is provably good of a damaged one, and a list of what is lost."""

from __future__ import annotations

from dataclasses import asdict

import click

from everstep.cli import exit_codes
from everstep.cli.app import App
from everstep.cli.app import command as make
from everstep.cli.draw.text import safe


@make("repair")
@click.argument("source")
@click.argument("target")
def command(app: App, source: str, target: str) -> int:
    """Write a new store at TARGET with all that is good of the one at SOURCE, which is only read. Ends with 6 if something is lost."""
    import everstep

    found = everstep.repair(source, target)
    if app.out.as_json:
        app.out.data("repair", asdict(found))
    else:
        app.out.line(safe(str(found), lines=True))
    return exit_codes.FOUND if found.lost else exit_codes.OK

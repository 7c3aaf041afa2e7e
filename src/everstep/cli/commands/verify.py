"""`everstep verify`: prove the store whole, in one of three depths."""

from __future__ import annotations

import click

from everstep.cli import exit_codes
from everstep.cli.app import App
from everstep.cli.app import command as make
from everstep.cli.args.times import SPAN
from everstep.cli.draw.text import duration, plural, safe, size
from everstep.store.verify.report import Depth
from everstep.views.health import verify
from everstep.views.json import to_json


@make("verify")
@click.option(
    "--depth",
    type=click.Choice(["quick", "records", "full"]),
    default="records",
    show_default=True,
    help="quick: heads and manifest; records: every digest; full: every state, too.",
)
@click.option("--seconds", type=SPAN, metavar="SPAN", help="Stop after this time, and say how far it came.")
@click.option("--accept-older", is_flag=True, help="Take the store as it is, although it is older than what was seen of it here.")
def command(app: App, depth: Depth, seconds: float | None, accept_older: bool) -> int:
    """Prove the store whole. Ends with 5 if something is damaged, with 6 if the time was over before all was looked at."""
    with app.open(**({"accept_older": True} if accept_older else {})) as store, app.out.progress("verifying") as progress:
        report = verify(store, app.mask, depth, seconds, progress)
    code = exit_codes.DAMAGED if not report.ok else exit_codes.OK if report.complete else exit_codes.FOUND
    if app.out.as_json:
        app.out.data("verify", to_json(report))
        return code
    for problem in report.problems:
        app.out.line(safe(str(problem)))
    looked = (
        f"{plural(report.runs, 'run')}, {plural(report.records, 'record')}, {plural(report.chunks, 'chunk')}, {duration(report.seconds)}"
    )
    app.out.say(f"{'all good' if report.ok else plural(len(report.problems), 'problem')}: {looked}", "green" if report.ok else "red")
    if report.unreachable:
        app.out.say(
            f"{plural(report.unreachable, 'chunk')} that nothing refers to, {size(report.unreachable_bytes)}: everstep gc frees them"
        )
    if not report.complete:
        app.out.say(f"not all was looked at: {safe(report.reached)}", "yellow")
    if not report.ok:
        app.out.say("everstep repair STORE NEW saves what is good")
    return code

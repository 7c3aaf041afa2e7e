"""`everstep verify`: check the store for damage, at one of three depths."""

from __future__ import annotations

import click

from everstep.cli import exit_codes
from everstep.cli.app import App
from everstep.cli.app import command as make
from everstep.cli.args.times import SPAN
from everstep.cli.draw.text import duration, plural, safe, size
from everstep.cli.remedies import repair_command
from everstep.store.verify.report import Depth
from everstep.views.health import verify
from everstep.views.json import to_json


@make("verify")
@click.option(
    "--depth",
    type=click.Choice(["quick", "records", "full"]),
    default="records",
    show_default=True,
    help="quick: heads and manifest; records: every digest; full: also every state and the whole file",
)
@click.option("--seconds", type=SPAN, metavar="SPAN", help="Stop after this time, and print how far it got (default: no limit)")
@click.option("--accept-older", is_flag=True, help="Accept the store although this machine has already seen a newer version of it")
def command(app: App, depth: Depth, seconds: float | None, accept_older: bool) -> int:
    """Check the store for damage

    The command exits with 5 if something is damaged, and with 6 if --seconds passed before everything was checked.

    Example: everstep verify --depth full
    """
    with (
        app.open(**({"accept_older": True} if accept_older else {})) as store,
        app.out.progress("verifying", "runs" if depth == "quick" else "bytes") as progress,
    ):
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
    good = "all good" if depth == "full" else f"all good at depth {depth}"
    app.out.say(f"{good if report.ok else plural(len(report.problems), 'problem')}: {looked}", "green" if report.ok else "red")
    if report.unreachable:
        app.out.say(
            f"Nothing refers to {plural(report.unreachable, 'chunk')} ({size(report.unreachable_bytes)}). Run `everstep gc` to reclaim the space."
        )
    if not report.complete:
        app.out.say(f"Not everything was checked: {safe(report.reached)}", "yellow")
    if not report.ok:
        app.out.say(f"To copy all undamaged data into a new store: {repair_command(app.address)}")
    return code

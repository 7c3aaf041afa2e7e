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
from everstep.views.health import NOT_AS_SIGNED, AgainstView, verify
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
@click.option("--against", metavar="FILE", help="Also compare the store with signed heads, which `everstep heads` wrote")
@click.option(
    "--public-key", metavar="KEY", help="Verify the heads with this key or its file (default: signing.public_key of the configuration)"
)
@click.option("--allow-deleted", is_flag=True, help="Do not exit with 6 if runs of the heads were deleted since")
@click.option("--accept-older", is_flag=True, help="Accept the store although this machine has already seen a newer version of it")
def command(
    app: App, depth: Depth, seconds: float | None, against: str | None, public_key: str | None, allow_deleted: bool, accept_older: bool
) -> int:
    """Check the store for damage, or that it was not changed since its heads were signed

    The command exits with 5 if something is damaged or differs from the signed heads, and with 6 if runs of the heads were deleted since, or
    if --seconds passed before everything was checked.

    Example: everstep verify --depth full
    """
    with (
        app.open(**({"accept_older": True} if accept_older else {})) as store,
        app.out.progress("verifying", "runs" if depth == "quick" else "bytes") as progress,
    ):
        report = verify(store, app.mask, depth, seconds, progress, against, _key(app, public_key))
    deleted = () if report.against is None or allow_deleted else report.against.deleted
    code = exit_codes.DAMAGED if not report.ok else exit_codes.FOUND if deleted or not report.complete else exit_codes.OK
    if app.out.as_json:
        app.out.data("verify", to_json(report))
        return code
    for problem in report.problems:
        app.out.line(safe(str(problem)))
    if report.against is not None:
        _compared(app, report.against, depth)
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
    if any(problem.code != NOT_AS_SIGNED for problem in report.problems):
        app.out.say(f"To copy all undamaged data into a new store: {repair_command(app.address)}")
    return code


def _key(app: App, given: str | None) -> str | None:
    return app.configured["signing.public_key"] if given is None and app.configured is not None else given


def _compared(app: App, found: AgainstView, depth: Depth) -> None:
    for one in found.deleted:
        app.out.line(f"run {safe(one.run)}: deleted{f' at {one.at}' if one.at else '; its tombstone was dropped since'}")
    app.out.say(
        f"compared with {plural(found.runs, 'signed head')} of {safe(found.at)}: {found.unchanged:,} unchanged, {found.grown:,} grown, "
        f"{len(found.deleted):,} deleted, {found.created:,} created since"
    )
    if depth == "quick":
        app.out.say("Only the heads were compared. To prove the records before them, use --depth records.", "yellow")

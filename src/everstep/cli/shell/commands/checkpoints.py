"""`checkpoints`: list the checkpoints of a run, or the newest of all runs, with the status of each run."""

from __future__ import annotations

import click

from everstep.cli.app import App
from everstep.cli.app import command as make
from everstep.cli.args.naming import to_read
from everstep.cli.args.refs import RUN
from everstep.cli.draw.text import cell, safe
from everstep.views.json import to_json
from everstep.views.run import CheckpointView, checkpoint_view
from everstep.views.runs import seen_status

_HEAD = ("CHECKPOINT", "KIND", "AT", "STEP", "RUN STATUS", "TAGS", "NOTE")


@make("checkpoints")
@click.argument("run", type=RUN, required=False)
@click.option("--limit", "-n", type=click.IntRange(1, 1_000), default=20, show_default=True, help="Number of newest checkpoints to show")
def command(app: App, run: str | None, limit: int) -> None:
    """List the checkpoints of RUN, newest first; without RUN, those of the runs written last

    Example: checkpoints o1 --limit 5
    """
    with app.open() as store:
        runs = [store.get(to_read(app, store, run))] if run is not None else store.runs(limit=limit)
        found = [
            (checkpoint_view(one, app.mask), seen_status(store, info)[0])
            for info in runs
            for one in store.checkpoints(info.id, limit=limit)
        ]
    found = sorted(found, key=lambda pair: pair[0].at, reverse=True)[:limit] if run is None else found
    if app.out.as_json:
        app.out.data("checkpoints", [{**to_json(one), "status": status} for one, status in found])
    elif not found:
        app.out.say("No checkpoints.")
    else:
        _print(app, found)


def _print(app: App, found: list[tuple[CheckpointView, str]]) -> None:
    rows = [
        (
            safe(one.ref), safe(one.kind) + (" (pruned)" if one.pruned else ""), app.out.when(one.at), cell(one.step or "", 40), status,
            cell(", ".join(one.tags), 30), cell(one.note or "", 60),
        )
        for one, status in found
    ]  # fmt: skip
    app.out.table(
        _HEAD,
        rows,
        styles={4: lambda text: app.out.style(text, app.out.colour_of(text.strip()))},
        drop=("STEP", "TAGS", "RUN STATUS", "NOTE", "AT"),
        cuts=("NOTE", "TAGS", "STEP"),
    )

"""`everstep schedules`: list schedules and when each fires next."""

from __future__ import annotations

from everstep.cli.app import App
from everstep.cli.app import command as make
from everstep.cli.draw.text import cell
from everstep.views.json import to_json
from everstep.views.queues import schedules


@make("schedules")
def command(app: App) -> None:
    """List schedules by name, with their next times

    Example: everstep schedules --json
    """
    with app.open() as store:
        found = schedules(store, app.mask)
    if app.out.as_json:
        app.out.data("schedules", to_json(found))
    elif not found:
        app.out.say("No schedules.")
    else:
        rows = [
            (
                cell(one.name, 40),
                cell(one.workflow, 40),
                cell(one.cron, 40),
                cell(one.zone, 40),
                app.out.when(one.next),
                one.missed,
                cell(one.queue, 40),
            )
            for one in found
        ]
        app.out.table(
            ("SCHEDULE", "WORKFLOW", "CRON", "ZONE", "NEXT", "MISSED", "QUEUE"),
            rows,
            drop=("MISSED", "QUEUE", "ZONE", "WORKFLOW", "CRON"),
            cuts=("WORKFLOW", "QUEUE"),
        )

"""`everstep limit`: limit how many runs of a queue all workers together run at once, and how many they take per time."""

from __future__ import annotations

import re

import click

from everstep.cli.app import App
from everstep.cli.app import command as make
from everstep.cli.args.refs import QUEUE
from everstep.cli.args.times import span
from everstep.cli.draw import queue_text
from everstep.cli.draw.text import safe
from everstep.queues.enqueue import limits_of
from everstep.views.json import to_json
from everstep.views.queues import limits_view

_RATE = re.compile(r"(\d{1,30})\s*/\s*(\S.*)")


class Rate(click.ParamType[tuple[int, float]]):
    name = "rate"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, float]:
        if isinstance(value, tuple):
            return value
        found = _RATE.fullmatch(str(value).strip())
        if found is None:
            self.fail(f"must be a number of runs and a time, such as 10/60s or 1000/h, got {value!r}", param, ctx)
        time = found[2] if found[2][0].isdigit() else f"1{found[2]}"
        try:
            return int(found[1]), span(time)
        except ValueError as error:
            self.fail(str(error), param, ctx)


@make("limit")
@click.argument("queue", type=QUEUE)
@click.option("--concurrency", type=click.IntRange(1), metavar="N", help="Maximum number of runs at the same time (default: unchanged)")
@click.option(
    "--per-key",
    type=click.IntRange(1),
    metavar="N",
    help="Maximum number of runs of one key (enqueue --key) at the same time (default: unchanged)",
)
@click.option("--rate", type=Rate(), metavar="N/SPAN", help="Maximum number of runs taken per period, such as 10/60s (default: unchanged)")
@click.option("--none", "drop", is_flag=True, help="Remove the existing limits; only those given with it apply")
def command(app: App, queue: str, concurrency: int | None, per_key: int | None, rate: tuple[int, float] | None, drop: bool) -> None:
    """Set the limits of QUEUE for all workers together; without options, print them

    Limits that you omit do not change.

    Example: everstep limit mail --concurrency 2 --rate 100/60s
    """
    changes = bool(drop or concurrency or per_key or rate)
    with app.open(create=changes) as store:
        if changes:
            omitted = None if drop else ...
            store.limit(queue, concurrency=concurrency or omitted, per_key=per_key or omitted, rate=rate or omitted)
        limits = limits_of(store, queue)
    if app.out.as_json:
        app.out.data("limit", {"queue": queue, **to_json(limits_view(limits))})
    else:
        app.out.line(f"{safe(queue)}: {queue_text.limits(limits_view(limits)) or 'no limits'}")

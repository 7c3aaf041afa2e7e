"""`everstep stats`: how much is stored, and how runs and steps went."""

from __future__ import annotations

from datetime import UTC, datetime

import click

from everstep.cli.app import App
from everstep.cli.app import command as make
from everstep.cli.args.times import MOMENT
from everstep.cli.draw.text import cell, duration, plural, size
from everstep.cli.views import queues as depths
from everstep.cli.views.stats import Counted, count
from everstep.queues.enqueue import Queue


@make("stats")
@click.option("--since", type=MOMENT, help="Only runs begun since: 2h, 3d, yesterday, 2026-11-15.")
@click.option(
    "--runs",
    "most",
    type=click.IntRange(1, 1_000_000),
    default=1_000,
    show_default=True,
    help="Of how many runs, the newest, steps are counted.",
)
def command(app: App, since: object, most: int) -> None:
    """Count what is stored: runs by status, steps with p50, p95 and p99, bytes against full copies, resumes that came to an end, queues."""
    with app.open() as store:
        stored = store.stats()
        queues = store.queues(depths.MINUTES)
        with app.out.progress("counting") as progress:
            found = count(store, since, most, progress)
    if app.out.as_json:
        app.out.data("stats", {"store": stored, **found.facts(), "queues": [depths.facts(one) for one in queues]})
        return
    app.out.pairs(
        [
            ("runs", f"{stored['runs']:,}"),
            ("records", f"{stored['records']:,} in {size(stored['record_bytes'])}"),
            ("chunks", f"{stored['chunks']:,} in {size(stored['chunk_bytes'])}"),
            ("file", size(stored["file_bytes"]) if stored["file_bytes"] else ""),
            ("full copies", _copies(stored, found)),
            ("by status", ", ".join(f"{n:,} {app.out.status(status)}" for status, n in sorted(found.statuses.items()))),
            *_steps(found),
            *((f"queue {cell(one.name, 30)}", _queue(one)) for one in queues),
        ]
    )


def _queue(one: Queue) -> str:
    """What waits in a queue, since when, and what happened in it lately."""
    counts = ((one.ready, "ready"), (one.later, "later"), (one.waiting, "waiting"), (one.running, "running"))
    waits = ", ".join(f"{n:,} {what}" for n, what in counts if n) or "empty"
    oldest = "" if one.oldest is None else f", the oldest for {duration(max(0.0, (datetime.now(UTC) - one.oldest).total_seconds()))}"
    return waits + oldest + (f"; in {one.minutes} min {lately}" if (lately := depths.lately(one)) else "")


def _copies(stored: dict[str, int], found: Counted) -> str:
    """What a store that copies every state would take."""
    here = stored["record_bytes"] + stored["chunk_bytes"]
    return "" if not found.copies or not here else f"about {size(found.copies)}, {found.copies / here:,.1f} times as much"


def _steps(found: Counted) -> list[tuple[str, str]]:
    resumes = ("resumes", f"{found.resumed:,}, of which {found.resumed_well:,} succeeded" if found.resumed else "")
    if not found.steps:
        return [resumes]
    p50, p95, p99 = found.percentiles()
    failed = f"{found.failed:,} failed attempts ({found.failed / found.steps:.1%})"
    return [
        ("steps", f"{found.steps:,} of {plural(found.runs, 'run')}, {failed}"),
        ("step time", f"p50 {duration(p50)}, p95 {duration(p95)}, p99 {duration(p99)}"),
        ("spent", f"{duration(found.seconds)}, {found.tokens:,} tokens, ${found.cost:,.4f}"),
        resumes,
    ]

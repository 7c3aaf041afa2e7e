"""`everstep stats`: count what is stored, and summarise runs, steps and queues."""

from __future__ import annotations

from datetime import UTC, datetime

import click

from everstep.cli.app import App
from everstep.cli.app import command as make
from everstep.cli.args.times import MOMENT
from everstep.cli.draw import queue_text
from everstep.cli.draw.text import cell, duration, plural, size
from everstep.views.json import to_json
from everstep.views.queues import QueueView
from everstep.views.stats import StatsView, stats


@make("stats")
@click.option("--since", type=MOMENT, help="Count only runs that began after this time: 2h, 3d, yesterday, 2026-11-15")
@click.option(
    "--runs",
    "most",
    type=click.IntRange(1, 1_000_000),
    default=1_000,
    show_default=True,
    help="Number of newest runs whose steps are counted",
)
def command(app: App, since: datetime | None, most: int) -> None:
    """Count runs, steps, resumes, bytes and queues

    The output has runs by status; step times (p50, p95, p99); the stored bytes, and how many full copies of all states would take, compressed
    in the same way; how many resumed runs succeeded; and the queues. Steps that a fork shares with its parent are counted once.

    Example: everstep stats --since 7d
    """
    with app.open() as store, app.out.progress("counting") as progress:
        found = stats(store, since, most, progress)
    if app.out.as_json:
        app.out.data("stats", to_json(found))
        return
    stored = found.store
    app.out.pairs(
        [
            ("runs", f"{stored['runs']:,}"),
            ("records", f"{stored['records']:,} in {size(stored['record_bytes'])}"),
            ("chunks", f"{stored['chunks']:,} in {size(stored['chunk_bytes'])}"),
            ("file", size(stored["file_bytes"]) if stored["file_bytes"] else ""),
            ("checkpoints", f"{found.checkpoints:,}"),
            ("full copies", _copies(found)),
            ("by status", ", ".join(f"{n:,} {app.out.status(status)}" for status, n in sorted(found.statuses.items()))),
            *_steps(found),
            *((f"queue {cell(one.queue, 30)}", _queue(one)) for one in found.queues),
        ]
    )


def _queue(one: QueueView) -> str:
    """Describe a queue: its runs by state, the age of the oldest, and recent events."""
    counts = ((one.ready, "ready"), (one.later, "later"), (one.waiting, "waiting"), (one.running, "running"))
    waits = ", ".join(f"{n:,} {what}" for n, what in counts if n) or "empty"
    oldest = "" if one.oldest is None else f", oldest {duration(max(0.0, (datetime.now(UTC) - one.oldest).total_seconds()))}"
    return waits + oldest + (f"; in {one.lately.minutes} min {lately}" if (lately := queue_text.lately(one.lately)) else "")


def _copies(found: StatsView) -> str:
    """Estimate the size of a store that copies every state."""
    here, copies = found.store["record_bytes"] + found.store["chunk_bytes"], found.full_copies_bytes
    if not copies or not here:
        return ""
    return f"about {size(copies)} compressed, " + (
        f"{copies / here:,.1f} times as much" if copies >= here else "less than is stored with all records"
    )


def _steps(found: StatsView) -> list[tuple[str, str]]:
    again, steps = found.resumes, found.steps
    resumes = ("resumes", f"{again.runs:,}, of which {again.succeeded:,} succeeded" if again.runs else "")
    if not steps.count:
        return [resumes]
    failed = f"{plural(steps.failed, 'failed attempt')} ({steps.error_rate:.1%})"
    return [
        ("steps", f"{steps.count:,} of {plural(steps.runs, 'run')}, {failed}"),
        ("step time", f"p50 {duration(steps.p50)}, p95 {duration(steps.p95)}, p99 {duration(steps.p99)}"),
        ("spent", f"{duration(steps.seconds)}, {steps.tokens:,} tokens, ${steps.cost:,.4f}"),
        resumes,
    ]

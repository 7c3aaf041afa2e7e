"""The retention options of `prune` and `cleanup`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from everstep.cli.args.times import SPAN

_OPTIONS = (
    click.option("--keep-last", type=click.IntRange(1), metavar="N", help="Keep the newest N checkpoints of a run"),
    click.option("--keep-within", type=SPAN, metavar="SPAN", help="Keep checkpoints that are not older than this, such as 30d or 12h"),
    click.option("--keep-daily", type=click.IntRange(1), metavar="N", help="Keep the newest checkpoint of each of the last N days"),
    click.option("--keep-weekly", type=click.IntRange(1), metavar="N", help="Keep the newest checkpoint of each of the last N weeks"),
    click.option("--keep-tag", "keep_tagged", multiple=True, metavar="TAG", help="Keep checkpoints with this tag; repeatable"),
    click.option("--keep-kind", "keep_kinds", multiple=True, metavar="KIND", help="Keep checkpoints of this kind; repeatable"),
    click.option(
        "--max-bytes", type=click.IntRange(0), metavar="N", help="Drop the oldest checkpoints of all runs until at most N bytes are stored"
    ),
    click.option(
        "--completed",
        type=click.Choice(["all", "final", "delete"]),
        help="What to keep of ended runs: everything the rules keep, the last state, or nothing (failed runs are kept)",
    ),
    click.option("--minimum", type=click.IntRange(1), metavar="N", help="Keep at least N checkpoints of each run"),
)


def retention_options(function: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def chosen(given: dict[str, Any]) -> dict[str, Any] | None:
    """Return the retention of the options, or None to use the configured one. Removes the options from `given`."""
    names = ("keep_last", "keep_within", "keep_daily", "keep_weekly", "keep_tagged", "keep_kinds", "max_bytes", "completed", "minimum")
    found = {name: given.pop(name) for name in names}
    return {name: value for name, value in found.items() if value not in (None, ())} or None

"""The options that say what is kept, for the commands that drop things."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from everstep.cli.args.times import SPAN

_OPTIONS = (
    click.option("--keep-last", type=click.IntRange(1), metavar="N", help="The newest N checkpoints of a run."),
    click.option("--keep-within", type=SPAN, metavar="SPAN", help="Those of the last 30d, 12h…"),
    click.option("--keep-daily", type=click.IntRange(1), metavar="N", help="The newest of each of N days."),
    click.option("--keep-weekly", type=click.IntRange(1), metavar="N", help="The newest of each of N weeks."),
    click.option("--keep-tag", "keep_tagged", multiple=True, metavar="TAG", help="Those with this tag; may be given several times."),
    click.option("--keep-kind", "keep_kinds", multiple=True, metavar="KIND", help="Those of this kind; may be given several times."),
    click.option("--max-bytes", type=click.IntRange(0), metavar="N", help="The oldest go until a run takes no more than this."),
    click.option("--completed", type=click.Choice(["all", "final", "delete"]), help="What stays of runs that have ended."),
    click.option("--minimum", type=click.IntRange(1), metavar="N", help="Never fewer than N of a run."),
)


def retention_options(function: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def chosen(given: dict[str, Any]) -> dict[str, Any] | None:
    """The retention that the options say, or None for the one that holds anyway. Takes them out of what was given."""
    names = ("keep_last", "keep_within", "keep_daily", "keep_weekly", "keep_tagged", "keep_kinds", "max_bytes", "completed", "minimum")
    found = {name: given.pop(name) for name in names}
    return {name: value for name, value in found.items() if value not in (None, ())} or None

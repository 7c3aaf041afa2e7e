"""`everstep bisect`: the first checkpoint at which a condition on the state holds.

By default every checkpoint is looked at, oldest first, because a condition may hold, stop holding and hold again. With --sorted the
condition is taken to hold from some checkpoint on for good, and about log2(n) states are read.
"""

from __future__ import annotations

from typing import Any

import click

from everstep.cli import exit_codes
from everstep.cli.app import App
from everstep.cli.app import command as make
from everstep.cli.args.condition import Condition
from everstep.cli.args.naming import to_read
from everstep.cli.args.refs import RUN
from everstep.cli.draw.text import cell, plural
from everstep.cli.views import json as facts


@make("bisect")
@click.argument("run", type=RUN)
@click.option("--when", "text", required=True, metavar="EXPR", help="The condition: state.total > 100 and 'x' in state.tags.")
@click.option("--sorted", "is_sorted", is_flag=True, help="Once it holds, it holds for good: read only a few states.")
def command(app: App, run: str, text: str, is_sorted: bool) -> int:
    """Find the first checkpoint of RUN at which EXPR holds."""
    condition = Condition(text)
    with app.open() as store:
        info = store.get(to_read(app, store, run))
        numbers = _numbers(store, info.id)
        with app.out.progress("looking") as progress:
            found, read = (_halve if is_sorted else _walk)(store, info.id, numbers, condition, progress)
        one = None if found is None else store.checkpoint(f"{info.id}@{found}")
    if app.out.as_json:
        data = {
            "run": info.id,
            "when": text,
            "checkpoint": None if one is None else facts.of_checkpoint(one, app.hidden),
            "states_read": read,
        }
        app.out.data("bisect", data)
    elif one is None:
        app.out.say(f"at none of {plural(len(numbers), 'checkpoint')} of {info.id}")
    else:
        step = f"after step {cell(one.step, 60)}" if one.step else one.kind
        app.out.line(f"{app.out.style(one.ref, 'bold')}  {app.out.when(one.at)}  {step}  {cell(app.hidden(one.note) or '', 80)}".rstrip())
    return exit_codes.OK if one is not None else exit_codes.NOT_FOUND


def _numbers(store: Any, run: str) -> list[int]:
    """The checkpoints that have a state, oldest first."""
    out: list[int] = []
    after = None
    while True:
        page = store.checkpoints(run, oldest_first=True, limit=1_000, after=after)
        out += [one.number for one in page if not one.pruned]
        after = page.next
        if after is None:
            return out


def _walk(store: Any, run: str, numbers: list[int], condition: Condition, progress: Any) -> tuple[int | None, int]:
    for done, number in enumerate(numbers):
        progress(done, len(numbers))
        if condition.holds(store.view(f"{run}@{number}")):
            return number, done + 1
    return None, len(numbers)


def _halve(store: Any, run: str, numbers: list[int], condition: Condition, progress: Any) -> tuple[int | None, int]:
    low, high, read = 0, len(numbers), 0
    while low < high:
        middle = (low + high) // 2
        read += 1
        progress(read, len(numbers).bit_length())
        if condition.holds(store.view(f"{run}@{numbers[middle]}")):
            high = middle
        else:
            low = middle + 1
    return (numbers[low] if low < len(numbers) else None), read

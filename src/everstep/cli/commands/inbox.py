"""`everstep inbox`: list the open gates of all runs, so that a person sees what waits for an answer."""

from __future__ import annotations

from shlex import quote
from typing import Any

import click

from everstep.cli.app import App
from everstep.cli.app import command as make
from everstep.cli.args.workflow_target import pair
from everstep.cli.draw.short_ids import shortened
from everstep.cli.draw.text import cell, safe
from everstep.cli.draw.values import answers, example, gate_names
from everstep.views.json import to_json
from everstep.views.run import GateView, inbox


@make("inbox")
@click.option("--workflow", metavar="NAME", help="Show only gates of runs of this workflow")
@click.option("--tag", multiple=True, help="Show only gates of runs with this tag; repeatable")
@click.option("--session", metavar="NAME", help="Show only gates of runs of this session")
@click.option("--where", multiple=True, metavar="KEY=VALUE", help="Show only gates of runs with this metadata; repeatable")
@click.option("--limit", "-n", type=click.IntRange(1, 10_000), default=50, show_default=True, help="Number of gates to show")
def command(app: App, limit: int, where: tuple[str, ...], **filters: Any) -> None:
    """List the open gates of all runs, the oldest runs first

    A gate whose answer is recorded is not listed, even if its run has not been resumed yet.

    Example: everstep inbox --workflow order
    """
    query = {name: value for name, value in filters.items() if value not in (None, ())}
    if where:
        query["meta"] = dict(pair(text, "--where", "KEY=VALUE") for text in where)
    with app.open() as store:
        with app.out.progress("reading") as progress:
            found, more = inbox(store, app.mask, limit, progress, **query)
        if app.out.as_json:
            app.out.data("inbox", {"gates": to_json(found), "more": more})
            return
        short = {gate.run: shortened(store, gate.run) if app.out.terminal else gate.run for gate in found}
    if not found:
        app.out.say("No run waits for an answer.")
        return
    _print(app, found, short)
    if more:
        app.out.say(f"Only the first {limit:,} gates are shown. Use --limit to show more.")
    if app.out.terminal:
        first = found[0]
        app.out.say(f"To answer: everstep answer {first.run} {quote(gate_names(found)[0])} {example(first.schema)}", "dim")


def _print(app: App, found: list[GateView], short: dict[str, str]) -> None:
    head = ("RUN", "GATE", "QUESTION", "CHOICES", "ASKED", "DEADLINE")
    rows = [
        (
            safe(short[gate.run]), cell(name, 40), cell(gate.ask or "", 200), cell(" | ".join(answers(gate.schema, 30)), 60),
            app.out.when(gate.asked_at), app.out.when(gate.deadline),
        )
        for gate, name in zip(found, gate_names(found), strict=True)
    ]  # fmt: skip
    app.out.table(head, rows, drop=("CHOICES", "DEADLINE", "ASKED"), cuts=("QUESTION", "CHOICES"))

"""`everstep log`: the timeline of a run, as a list that can be followed, or its steps as a graph."""

from __future__ import annotations

import time
from typing import Any

import click

from everstep.cli.app import App
from everstep.cli.app import command as make
from everstep.cli.args.naming import to_read
from everstep.cli.args.refs import RUN
from everstep.cli.draw.timeline import Timeline
from everstep.cli.views import json as facts
from everstep.store.refs import find_run

_PAGE = 1_000
_ENDED = ("succeeded", "failed", "cancelled")


@make("log")
@click.argument("run", type=RUN, default="@last")
@click.option("--limit", "-n", type=click.IntRange(1, 1_000_000), default=50, show_default=True, help="How many entries, the newest.")
@click.option("--all", "everything", is_flag=True, help="All entries.")
@click.option("--follow", "-f", is_flag=True, help="Go on printing what happens, until the run has ended.")
@click.option("--graph", type=click.Choice(["mermaid", "dot"]), help="Print the steps as a graph with their statuses instead.")
def command(app: App, run: str, limit: int, everything: bool, follow: bool, graph: str | None) -> None:
    """Draw the timeline of a run: steps, attempts, checkpoints, gates, forks. Without RUN, of the one written last."""
    with app.open() as store:
        row = find_run(store.backend, to_read(app, store, run))
        if graph:
            from everstep.cli.draw.graph import draw

            text = draw(store, row.id, graph)
            if app.out.as_json:
                app.out.data("graph", {"run": row.id, "form": graph, "text": text})
            else:
                app.out.line(text)
            return
        after = 0 if everything else max(0, row.head_seq - limit)
        if app.out.as_json and not follow:
            app.out.data("log", {"run": row.id, "events": [facts.of_event(event, app.hidden) for event in _events(store, row.id, after)]})
            return
        timeline = Timeline(app, store, row.id)
        if not app.out.as_json:
            timeline.head(after)
        after = _print(app, store, row.id, after, timeline)
        if follow:
            _follow(app, store, row.id, after, timeline)
        elif not app.out.as_json:
            timeline.end()


def _events(store: Any, run: str, after: int) -> Any:
    while True:
        page = store.events(after, run=run, limit=_PAGE)
        yield from page
        if len(page) < _PAGE:
            return
        after = page.next


def _print(app: App, store: Any, run: str, after: int, timeline: Timeline) -> int:
    """Print what happened behind a place; gives the new place."""
    for event in _events(store, run, after):
        after = event.position or after
        if app.out.as_json:
            app.out.item("event", facts.of_event(event, app.hidden))
        else:
            timeline.event(event)
    return after


def _follow(app: App, store: Any, run: str, after: int, timeline: Timeline) -> None:
    while store.get(run).status not in _ENDED:
        time.sleep(0.2)
        after = _print(app, store, run, after, timeline)
    _print(app, store, run, after, timeline)

"""`everstep log`: print the timeline of a run, follow it, or draw its steps as a graph."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from everstep.cli.app import App
from everstep.cli.app import command as make
from everstep.cli.args.naming import to_read
from everstep.cli.args.refs import RUN
from everstep.cli.draw.hints import to_continue
from everstep.cli.draw.timeline import Timeline
from everstep.store.query import CRASHED
from everstep.views import journal
from everstep.views.json import to_json
from everstep.views.runs import seen_status

if TYPE_CHECKING:
    from everstep.api import Store

_ENDED = ("succeeded", "failed", "cancelled")


@make("log")
@click.argument("run", type=RUN, default="@last")
@click.option("--limit", "-n", type=click.IntRange(1, 1_000_000), default=50, show_default=True, help="Number of newest entries to print")
@click.option("--all", "everything", is_flag=True, help="Print all entries")
@click.option("--follow", "-f", is_flag=True, help="Keep printing new entries until the run has ended")
@click.option("--graph", type=click.Choice(["mermaid", "dot"]), help="Print the steps as a graph with their statuses instead")
def command(app: App, run: str, limit: int, everything: bool, follow: bool, graph: str | None) -> None:
    """Print the timeline of RUN: steps, attempts, checkpoints, gates, forks

    Without RUN, print the run that was written last.

    Example: everstep log o1 --follow
    """
    with app.open() as store:
        run = to_read(app, store, run)
        after = journal.newest(store, run, limit)
        if graph:
            _graph(app, store, run, graph)
            return
        after = 0 if everything else after
        if app.out.as_json and not follow:
            events = tuple(journal.whole_timeline(store, app.mask, run, after))
            app.out.data("log", to_json(journal.TimelinePage(run, events)))
            return
        timeline = Timeline(app, store, run)
        if not app.out.as_json:
            timeline.head(after)
        after = _print(app, store, run, after, timeline)
        if follow:
            _follow(app, store, run, after, timeline)
        elif not app.out.as_json:
            timeline.end()


def _graph(app: App, store: Store, run: str, form: str) -> None:
    from everstep.cli.draw.graph import draw
    from everstep.views.graph import graph

    text = draw(graph(store, run), form)
    if app.out.as_json:
        app.out.data("graph", {"run": run, "form": form, "text": text})
    else:
        app.out.raw(text)


def _print(app: App, store: Store, run: str, after: int, timeline: Timeline) -> int:
    """Print the events after a position; return the new position."""
    for event in journal.whole_timeline(store, app.mask, run, after):
        after = event.position or after
        if app.out.as_json:
            app.out.item("event", to_json(event))
        else:
            timeline.event(event)
    return after


def _follow(app: App, store: Store, run: str, after: int, timeline: Timeline) -> None:
    """Print new events until the run has ended. Say it once if its process dies: nothing would come until the run is resumed."""
    said = False
    while (info := store.get(run)).status not in _ENDED:
        crashed = seen_status(store, info)[0] == CRASHED
        if crashed and not said:
            app.out.say(f"{run} has crashed. {to_continue(app, info)}", "yellow")
        said = crashed
        time.sleep(0.2)
        after = _print(app, store, run, after, timeline)
    _print(app, store, run, after, timeline)

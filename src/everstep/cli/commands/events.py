"""`everstep events`: print what happened in all runs, in the order in which it was committed, and follow it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from everstep.cli.app import App
from everstep.cli.app import command as make
from everstep.cli.draw.timeline import Timeline
from everstep.views.journal import FeedPage, feed, feed_before
from everstep.views.json import to_json

if TYPE_CHECKING:
    from everstep.api import Store

_EACH = 0.2


@make("events")
@click.option("--limit", "-n", type=click.IntRange(1, 1_000_000), default=50, show_default=True, help="Number of newest events to print")
@click.option("--after", metavar="POSITION", help="Print all events after this position, which an earlier call printed as `next`")
@click.option("--name", "names", multiple=True, help="Print only events with this name, such as run_failed; repeatable")
@click.option("--follow", "-f", is_flag=True, help="Keep printing new events until Ctrl-C")
def command(app: App, limit: int, after: str | None, names: tuple[str, ...], follow: bool) -> None:
    """Print the events of all runs, oldest first

    With --json and --follow, each event is a line. For one run, see `everstep log`.

    Example: everstep events --follow --name run_failed
    """
    with app.open() as store:
        place: int | str = feed_before(store, limit) if after is None else after
        if app.out.as_json and not follow:
            page = feed(store, app.mask, place, names)
            app.out.data("events", to_json(page))
            return
        timeline = Timeline(app, store, None)
        page = _print(app, store, place, names, timeline)
        if not page.events and not follow:
            app.out.say("No event matches." if names or after is not None else "No events.")
        while follow:
            time.sleep(_EACH)
            page = _print(app, store, page.next, names, timeline)


def _print(app: App, store: Store, place: int | str, names: tuple[str, ...], timeline: Timeline) -> FeedPage:
    page = feed(store, app.mask, place, names)
    for event in page.events:
        if app.out.as_json:
            app.out.item("event", to_json(event))
        else:
            timeline.event(event)
    app.out.flush()
    return page

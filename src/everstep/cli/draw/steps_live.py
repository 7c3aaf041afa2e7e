"""Steps as they end, on stderr, while a command drives a run: a person at a terminal sees that something happens."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from everstep.cli.app import App
from everstep.cli.draw.text import cell

if TYPE_CHECKING:
    from everstep.api import Store
    from everstep.store.events.event import Event


def watch(app: App, store: Store) -> None:
    """Have a store tell about its steps, if somebody looks."""
    if app.out.quiet or app.out.as_json or not sys.stderr.isatty():
        return
    store.on("after_step", lambda event: _told(app, event))


def _told(app: App, event: Event) -> None:
    data = event.data
    well = data.get("status", "succeeded") == "succeeded"
    parts = [cell(str(data.get("step", "")), 60), "" if well else str(data["status"])]
    parts += [f"attempt {data['attempt']}"] if data.get("attempt", 1) > 1 else []
    parts += [f"${data['cost']:,.4f}"] if data.get("cost") else []
    app.out.say(f"{'✓' if well else '✗'} {'  '.join(part for part in parts if part)}", "green" if well else "red")

"""Prints each finished step on stderr while a command executes a run, so that a person at a terminal sees progress."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from everstep.cli.app import App
from everstep.cli.draw.text import cell

if TYPE_CHECKING:
    from everstep.api import Store
    from everstep.store.events.event import Event


def watch(app: App, store: Store) -> None:
    """Print the steps of a store as they end, if stderr is a terminal."""
    if app.out.quiet or app.out.as_json or not sys.stderr.isatty():
        return
    store.on("after_step", lambda event: _report(app, event))


def _report(app: App, event: Event) -> None:
    data = event.data
    well = data.get("status", "succeeded") == "succeeded"
    parts = [cell(str(data.get("step", "")), 60), "" if well else str(data["status"])]
    parts += [f"attempt {data['attempt']}"] if data.get("attempt", 1) > 1 else []
    parts += [f"${data['cost']:,.4f}"] if data.get("cost") else []
    app.out.say(f"{'✓' if well else '✗'} {'  '.join(part for part in parts if part)}", "green" if well else "red")

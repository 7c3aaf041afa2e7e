"""Steps as they end, on stderr, while a command drives a run: a person at a terminal sees that something happens."""

from __future__ import annotations

import sys
from typing import Any

from everstep.cli.app import App
from everstep.cli.text import cell, duration


def watch(app: App, store: Any) -> None:
    """Have a store tell about its steps, if somebody looks."""
    if app.out.quiet or app.out.as_json or not sys.stderr.isatty():
        return
    store.on("after_step", lambda event: _told(app, event))


def _told(app: App, event: Any) -> None:
    data = event.data
    failed = data.get("error")
    parts = [cell(str(data.get("step", "")), 60), duration(data["seconds"]) if "seconds" in data else ""]
    parts += [f"${data['cost']:,.4f}"] if data.get("cost") else []
    parts += [cell(app.redactor.text(f"{failed.get('type')}: {failed.get('message')}"), 100)] if isinstance(failed, dict) else []
    app.out.say(f"{'✗' if failed else '✓'} {'  '.join(part for part in parts if part)}", "red" if failed else "green")

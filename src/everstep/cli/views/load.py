"""Loads a state for a command: of a damaged checkpoint, the newest good one before it, and the person is told what was passed over."""

from __future__ import annotations

from typing import Any

from everstep.cli.app import App
from everstep.cli.draw.text import safe


def load_newest_good(app: App, store: Any, ref: str) -> tuple[str, Any]:
    """The checkpoint that was found, and its state."""
    found = store.load(ref, newest_good=True)
    if found.skipped:
        app.out.say(safe(str(found), lines=True), "yellow")
    return f"{found.run}@{found.number}", found.state

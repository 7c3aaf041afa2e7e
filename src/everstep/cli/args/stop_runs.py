"""Builds `pause` and `cancel`, the commands that stop runs at their next step, from any process."""

from __future__ import annotations

from typing import Any

import click

from everstep.cli.app import App
from everstep.cli.app import command as make
from everstep.cli.args.selection import GROUPS, chosen, each, several
from everstep.views.json import to_json
from everstep.views.runs import RunView, run_view

_OVER = {"cancel": ("succeeded", "cancelled"), "pause": ("succeeded", "cancelled", "failed")}


def stop_command(name: str, sentence: str) -> click.Command:
    """Build a command that calls the store's method of the same name."""

    @make(name, GROUPS, help=f"{sentence}\n\nExample: everstep {name} --workflow order --where customer=ann")
    @several
    @click.option("--reason", help="Reason, which is recorded in the journal")
    def command(app: App, runs: tuple[str, ...], reason: str | None, **given: Any) -> int:
        with app.open() as store:
            ids = chosen(app, store, runs, given, name, lambda run: run.status not in _OVER[name], ask=False)
            if not ids:
                return 1
            unchanged: set[str] = set()

            def stop(run: str) -> None:
                if getattr(store, name)(run, reason) is False:  # `cancel` returns this for a run that has succeeded
                    unchanged.add(run)

            done, failed, code = each(app, ids, stop)
            found = [run_view(store, store.get(run), app.mask) for run in done]
        if app.out.as_json:
            app.out.data(name, {"run": to_json(found[0]) if found else None, "runs": to_json(found), "failed": failed})
            return code
        for one in found:
            app.out.say(f"{one.id}: {_said(one, one.id in unchanged)}")
        return code

    return command


def _said(run: RunView, unchanged: bool) -> str:
    """Return the effect of the command in words."""
    if unchanged:
        return f"already {run.status}; nothing was changed"
    return "requested; its process stops at the next step" if run.open else run.status

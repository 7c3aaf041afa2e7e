"""Hints about the next command for a run, in one line. Only runs of workflows can be resumed by a command; others need their program."""

from __future__ import annotations

from collections.abc import Sequence
from shlex import quote
from typing import TYPE_CHECKING

from everstep.cli.app import App
from everstep.cli.draw.text import safe

if TYPE_CHECKING:
    from everstep.store.views import RunInfo
    from everstep.views.runs import RunView


def to_continue(app: App, run: RunInfo | RunView) -> str:
    """Say how to continue a run: with a command, or with the program that opens it."""
    return f"To continue: {resuming(app, run.id, workflow=run.workflow)}" if run.workflow else "To continue, run the program that opens it."


def resuming(app: App, run: str, modules: Sequence[str] = (), workflow: str | None = None) -> str:
    """Return the command that resumes a run. It names the module of the workflow, unless the configuration does: the one given, or the one
    that worked last time.
    """
    named = modules or (() if app.names_code() else app.worked_last_time(workflow) or ("MODULE",))
    return " ".join(["everstep resume", safe(quote(run)), *(f"--import {safe(quote(module))}" for module in named)])

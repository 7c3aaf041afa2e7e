"""What to do next with a run, in one line. Only a run of a workflow can be resumed; any other one needs its own program. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from shlex import quote
from typing import TYPE_CHECKING

from everstep.cli.app import App
from everstep.cli.draw.text import safe

if TYPE_CHECKING:
    from everstep.store.views import RunInfo
    from everstep.views.runs import RunView


def who_goes_on(app: App, run: RunInfo | RunView) -> str:
    """Who goes on with a run: a command, or the program that drives it."""
    return resuming(app, run.id) if run.workflow else "the program that drives it"


def resuming(app: App, run: str, modules: Sequence[str] = ()) -> str:
    """The command that resumes a run. It has to name what defines the workflow, unless the configuration does."""
    named = modules or (() if app.imports() else ("MODULE",))
    return " ".join(["everstep resume", run, *(f"--import {safe(quote(module))}" for module in named)])

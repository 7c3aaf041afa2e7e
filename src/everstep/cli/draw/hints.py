"""Hints about the next command for a run, in one line. Only runs of workflows can be resumed by a command; others need their program."""

from __future__ import annotations

from collections.abc import Sequence
from shlex import quote
from typing import TYPE_CHECKING

from everstep.cli.app import App
from everstep.cli.args.defining_file import defining_file
from everstep.cli.draw.text import safe

if TYPE_CHECKING:
    from everstep.store.views import RunInfo
    from everstep.views.runs import RunView

_NEEDED = {"openai-agents": "openai_agents.workflow(agent)"}  # openai_agents.run() defines the workflow only when it is called

_OF_PROGRAMS = {"openai-session", "pydantic-ai-steps", "adk-user", "adk-app"}  # labels of runs that no command continues


def to_continue(app: App, run: RunInfo | RunView) -> str:
    """Say how to continue a run: with a command, or with the program that opens it."""
    if not run.workflow or run.workflow in _OF_PROGRAMS:
        return "To continue, run the program that opens it."
    command, need = resuming(app, run.id, workflow=run.workflow), needed(run.workflow)
    if need and not app.worked_last_time(run.workflow):
        return f"To continue, run the program that started it. Or, in a module that calls {need}: {command}"
    return f"To continue: {command}"


def needed(workflow: str | None) -> str:
    """Return the call that a module must contain so that importing it defines the workflow of an adapter; empty for other workflows."""
    return _NEEDED.get((workflow or "").partition(":")[0], "")


def resuming(app: App, run: str, modules: Sequence[str] = (), workflow: str | None = None) -> str:
    """Return the command that resumes a run. It names the module of the workflow, unless the configuration does: the one given, the one that
    worked last time, or the only file here that seems to define it.
    """
    named = modules or (() if app.names_code() else app.worked_last_time(workflow) or defining_file(workflow) or ("MODULE",))
    return " ".join(["everstep resume", safe(quote(run)), *(f"--import {safe(quote(module))}" for module in named)])

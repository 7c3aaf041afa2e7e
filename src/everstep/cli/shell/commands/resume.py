"""`resume` in the shell: also asks for the answers of gates, and for the next task of a finished agent."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any

import click

from everstep.cli.app import App, interactive
from everstep.cli.args import workflow_target
from everstep.cli.args.choose import run_of
from everstep.cli.commands import resume
from everstep.cli.shell import agents, asking
from everstep.cli.shell.session import Session

_outside: Any = resume.command.callback


def _resume(task: str | None, **given: Any) -> int:
    session = click.get_current_context().find_root().obj
    assert isinstance(session, Session)
    session.learn(given["modules"])
    app = App.of(click.get_current_context())
    run = _chosen(app, given["run"])
    given |= {"run": run, "modules": ()}
    if given["check"] or given["from_step"] is not None or given["replay"] != "normal":
        return int(_outside(**given))
    if agents.is_agent(app, run):
        return _drive(app, run, given["answers"], lambda: agents.resume(app, session.modules, run, task))
    if task is not None:
        raise click.UsageError(f"--task is only for runs of an agent, and {run} is not one.")
    return _drive(app, run, given["answers"], lambda: int(_outside(**{**given, "answers": ()})))


def _chosen(app: App, run: str | None) -> str:
    with app.open() as store:
        return str(store.get(run_of(app, store, run, "resume", lambda found: not found.open)).id)


def _drive(app: App, run: str, answers: tuple[str, ...], on: Callable[[], int]) -> int:
    """Resume a run, and again as long as the person answers the gates at which it stops."""
    _give(app, run, answers)
    while not interactive() or asking.answer_gates(app, run):
        code = on()
        if not interactive() or not asking.waits(app, run):
            return code
    return 0


def _give(app: App, run: str, answers: tuple[str, ...]) -> None:
    if not answers:
        return
    with app.open() as store:
        for text in answers:
            gate, equals, value = text.partition("=")
            if not equals:
                raise click.UsageError(f"--answer must be GATE=VALUE, got {text!r}")
            store.answer(run, gate, workflow_target.value_of(value))


command = copy(resume.command)
command.callback = _resume
command.params = [*command.params, click.Option(["--task"], metavar="TEXT", help="Next task of a finished agent")]

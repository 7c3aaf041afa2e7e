"""`answer`, as outside; in the shell TAB completes the gates that wait."""

from __future__ import annotations

from copy import copy

import click
from click.shell_completion import CompletionItem

from everstep.cli.commands import answer
from everstep.cli.shell.session import Session


def _gates(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    session = ctx.find_root().obj
    assert isinstance(session, Session)
    with session.app.open() as store:
        waiting = [gate for gate in store.gates(ctx.params["run"]) if not gate.answered]
    return [CompletionItem(gate.name, help=gate.ask) for gate in waiting if gate.name.startswith(incomplete)]


_GATE = click.Argument(["gate"], required=False, shell_complete=_gates)

command = copy(answer.command)
command.params = [_GATE if one.name == "gate" else one for one in command.params]

"""`everstep answer`: answer a gate that a run waits at. The first answer counts."""

from __future__ import annotations

from shlex import quote

import click

from everstep.cli.app import App, interactive
from everstep.cli.app import command as make
from everstep.cli.args import workflow_target
from everstep.cli.args.naming import to_change
from everstep.cli.args.refs import GATE, RUN
from everstep.cli.draw.hints import to_continue
from everstep.cli.draw.text import cell, safe
from everstep.cli.draw.values import answers, example, gate_names, shown
from everstep.errors import NotFound
from everstep.runtime.waits.control import answerable
from everstep.store.gates import Gate
from everstep.views.json import to_json
from everstep.views.queues import queue_entry
from everstep.views.run import gate_view


@make("answer")
@click.argument("run", type=RUN)
@click.argument("gate", type=GATE, required=False)
@click.argument("value", required=False)
@click.option("--by", help="Record who answers")
@click.option("--early", is_flag=True, help="Answer a gate that the run has not reached yet, although it waits at another one")
@click.option("--text", "as_text", is_flag=True, help="Take VALUE as text even if it looks like JSON")
def command(app: App, run: str, gate: str | None, value: str | None, by: str | None, early: bool, as_text: bool) -> None:
    """Answer GATE of RUN with VALUE (JSON or text); without GATE, list the open gates

    Example: everstep answer o1 approval yes
    """
    with app.open() as store:
        run = to_change(store, run)
        waiting = [found for found in store.gates(run) if found.open]
        if gate is None:
            _list(app, run, waiting)
            return
        if value is None:
            answerable(store, run, gate, early)  # before a person types an answer that would be refused
            value = _ask(app, gate, waiting)
        answer = value if as_text else workflow_target.value_of(value)
        store.answer(run, gate, answer, by=by, early=early)
        found = store.get(run)
        is_queued = queue_entry(store, app.mask, found.id) is not None
    if app.out.as_json:
        app.out.data("answer", {"run": found.id, "gate": gate, "value": answer})
    early_note = "" if any(gate in (one.name, one.address) for one in waiting) else " The run has not reached this gate yet."
    app.out.say(f"Answer recorded.{early_note} {'A worker will resume the run.' if is_queued else to_continue(app, found)}", "dim")


def _list(app: App, run: str, waiting: list[Gate]) -> None:
    if app.out.as_json:
        app.out.data("gates", to_json([gate_view(gate, app.mask) for gate in waiting]))
        return
    if not waiting:
        raise NotFound(
            f"run {run!r} has no open gate",
            remedy=f"If its gate was answered, continue the run: `everstep resume {run}`. To see its status: `everstep show {run}`.",
        )
    names = gate_names(waiting)
    for gate, name in zip(waiting, names, strict=True):
        named = " | ".join(answers(app.mask(gate.schema)))
        choices = f" ({named})" if named else ""
        app.out.prose(f"{name}: {cell(app.mask(gate.ask) or '', 400)}{choices}")
    if app.out.terminal:
        app.out.say(f"To answer: everstep answer {safe(quote(run))} {quote(names[0])} {example(app.mask(waiting[0].schema))}", "dim")


def _ask(app: App, gate: str, waiting: list[Gate]) -> str:
    if not interactive():
        raise click.UsageError("Missing argument 'VALUE': the answer.")
    matching = [one for one in waiting if gate in (one.name, one.address)]
    found = matching[0] if len(matching) == 1 else None
    if found is not None:
        app.out.say(cell(app.mask(found.ask) or "", 400))
    if found is None or not found.choices:
        return str(click.prompt("Answer", err=True))
    app.out.say(f"one of {_choices(app, found)}")  # not by click, which would print them unescaped
    return str(click.prompt("Answer", type=click.Choice([str(choice) for choice in found.choices]), show_choices=False, err=True))


def _choices(app: App, gate: Gate) -> str:
    return " | ".join(shown(app.mask(choice), 40) for choice in gate.choices or ())

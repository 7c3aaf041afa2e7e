"""Asks the person during a resume: for the answer of a gate, and for the next task of a finished agent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from everstep.cli.app import App
from everstep.cli.args import workflow_target
from everstep.cli.draw.text import cell, safe
from everstep.cli.draw.values import shown
from everstep.errors import BadAnswer

if TYPE_CHECKING:
    from everstep.api import Store
    from everstep.store.gates import Gate


def answer_gates(app: App, run: str) -> bool:
    """Ask for the answers that a run waits for; return False if the person left one open."""
    with app.open() as store:
        waiting = [gate for gate in store.gates(run) if gate.open] if store.get(run).status == "waiting" else []
        return all(_answer(app, store, gate) for gate in waiting)


def waits(app: App, run: str) -> bool:
    """Return whether a run waits for an answer."""
    with app.open() as store:
        return store.get(run).status == "waiting" and any(gate.open for gate in store.gates(run))


def _answer(app: App, store: Store, gate: Gate) -> bool:
    app.out.say(f"gate {safe(gate.name)}: {cell(app.mask(gate.ask) or '', 400)}", "yellow")
    choices = f" ({', '.join(_word(app.mask(choice)) for choice in gate.choices)})" if gate.choices else ""
    while True:
        text = str(click.prompt(f"Answer{choices}, or Enter to leave it open", default="", show_default=False, err=True))
        if not text:
            app.out.say(f"{safe(gate.run)} is still waiting.")
            return False
        try:
            store.answer(gate.run, gate.address, value_of(text, gate.choices))
        except BadAnswer as error:
            app.out.say(f"error: {safe(app.mask(error.message))} [{error.code}]")
        else:
            return True


def _word(choice: Any) -> str:
    return cell(choice, 40) if isinstance(choice, str) else shown(choice, 40)


def value_of(text: str, choices: list[Any] | None) -> Any:
    """Return the value that the person typed: one of the choices as shown, else JSON or text."""
    return next((choice for choice in choices or () if choice == text), None) or workflow_target.value_of(text)


def next_task(run: str) -> str:
    """Ask for the next task of a finished agent; empty for none."""
    return str(click.prompt(f"{safe(run)} has finished. Its next task, or Enter for none", default="", show_default=False, err=True))

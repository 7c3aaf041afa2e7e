"""Prints the outcome of a run: the result on stdout, the rest on stderr; and returns an exit code."""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from everstep.cli import exit_codes
from everstep.cli.app import App
from everstep.cli.draw.hints import resuming
from everstep.cli.draw.text import cell, safe
from everstep.cli.draw.values import pretty, shown
from everstep.cli.failures import in_commands
from everstep.errors import EverstepError, Interrupted
from everstep.views.json import to_json
from everstep.views.outcome import outcome_view
from everstep.views.stored.values import as_json, dumps

if TYPE_CHECKING:
    from everstep.runtime.outcome import Outcome

_CODES = {"succeeded": exit_codes.OK, "waiting": exit_codes.OK, "queued": exit_codes.OK, "running": exit_codes.INTERRUPTED}


@contextmanager
def driving(app: App, modules: Sequence[str]) -> Iterator[None]:
    """Execute a run inside this: its output goes to the right stream, and a run that a signal stops gets a hint how to continue."""
    try:
        with app.out.apart():
            yield
    except SystemExit as error:
        stopped = error.__cause__
        if isinstance(stopped, Interrupted):
            app.out.say(f"{stopped.run}: stopped ({stopped.reason}). To continue: {resuming(app, stopped.run, modules)}", "yellow")
        raise


def tell(app: App, outcome: Outcome[Any], modules: Sequence[str] = ()) -> int:
    """Print an outcome; return the exit code. `modules` define its workflow, so the hint to resume it names them."""
    code = exit_codes.FOUND if outcome.report.differences else _CODES.get(outcome.status, exit_codes.FAILED)
    if app.out.as_json:
        app.out.data("outcome", to_json(outcome_view(outcome, app.mask)))
        return code
    _say(app, outcome, modules)
    if outcome.status == "succeeded" and outcome.result is not None:
        value = app.mask(outcome.result)
        app.out.line(
            safe(value, lines=True) if isinstance(value, str) else pretty(value) if app.out.terminal else dumps(as_json(value), indent=2)
        )
    return code


def _say(app: App, outcome: Outcome[Any], modules: Sequence[str]) -> None:
    colour = app.out.colour_of(outcome.status)
    error = (
        ""
        if outcome.error is None
        else f": {type(outcome.error).__qualname__}: {cell(app.mask.text(str(outcome.error).splitlines()[0] if str(outcome.error) else ''), 300)}"
    )
    reason = f" ({safe(app.mask(outcome.reason))})" if outcome.reason else ""
    app.out.say(f"{outcome.run}: {outcome.status}{error}{reason}", colour)
    if outcome.report.kept or outcome.report.executed or outcome.report.differences:
        app.out.say(safe(app.mask.text(str(outcome.report)), lines=True), "dim")
    for gate in outcome.gates:
        if gate.open:
            app.out.say(f"gate {safe(gate.name)}: {cell(app.mask(gate.ask) or '', 400)}", "yellow")
            choice = shown(gate.choices[0], 60).strip('"') if gate.choices else "VALUE"
            app.out.say(f"  everstep answer {gate.run} {safe(gate.name)} {choice}", "dim")
    if app.debug and outcome.error is not None:
        app.out.say(safe(app.mask.text("".join(traceback.format_exception(outcome.error)).rstrip()), lines=True))
    remedy = outcome.error.remedy if isinstance(outcome.error, EverstepError) else ""
    if remedy:
        bare, command = f"everstep resume {outcome.run}", resuming(app, outcome.run, modules)
        app.out.say(f"hint: {safe(app.mask.text(in_commands(remedy).replace(bare, command)), lines=True)}")
    elif outcome.status in ("failed", "running") and (app.configured is None or app.configured["enabled"]):
        app.out.say(f"  {resuming(app, outcome.run, modules)}", "dim")

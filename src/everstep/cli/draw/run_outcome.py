"""Prints the outcome of a run: the result on stdout, the rest on stderr; and returns an exit code."""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from shlex import quote
from typing import TYPE_CHECKING, Any

from everstep.cli import exit_codes
from everstep.cli.app import App
from everstep.cli.draw.hints import resuming
from everstep.cli.draw.text import cell, safe
from everstep.cli.draw.values import example, gate_names, pretty
from everstep.cli.failures import in_commands
from everstep.cli.layout.frames import last_frames
from everstep.errors import EverstepError, Interrupted
from everstep.runtime.report import handled_hint
from everstep.views.json import to_json
from everstep.views.outcome import outcome_view
from everstep.views.stored.values import as_json, dumps

if TYPE_CHECKING:
    from everstep.api import Store
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


def tell(app: App, outcome: Outcome[Any], modules: Sequence[str] = (), result: bool = True, store: Store | None = None) -> int:
    """Print an outcome; return the exit code. `modules` define its workflow, so the hint to resume it names them."""
    code = exit_codes.FOUND if outcome.report.differences else _CODES.get(outcome.status, exit_codes.FAILED)
    if app.out.as_json:
        app.out.data("outcome", to_json(outcome_view(outcome, app.mask)))
        return code
    _say(app, outcome, modules, store)
    if result and outcome.status == "succeeded" and outcome.result is not None:
        value = app.mask(outcome.result)
        app.out.raw(
            safe(value, lines=True) if isinstance(value, str) else pretty(value) if app.out.terminal else dumps(as_json(value), indent=2)
        )
    return code


def _say(app: App, outcome: Outcome[Any], modules: Sequence[str], store: Store | None) -> None:
    error = "" if outcome.error is None else f": {type(outcome.error).__qualname__}: {cell(app.mask.text(_first_line(outcome.error)), 300)}"
    reason = f" ({safe(app.mask(outcome.reason))})" if outcome.reason else ""
    app.out.say(f"{outcome.run}: {outcome.status}{error}{reason}", app.out.colour_of(outcome.status))
    _frames(app, outcome)
    if outcome.report.kept or outcome.report.executed or outcome.report.differences:
        app.out.say(safe(app.mask.text(_report(app, outcome, modules)), lines=True), "dim")
    waiting = [gate for gate in outcome.gates if gate.open]
    for gate, name in zip(waiting, gate_names(waiting), strict=True):
        app.out.say(f"gate {name}: {cell(app.mask(gate.ask) or '', 400)}", "yellow")
        app.out.say(f"  everstep answer {gate.run} {quote(name)} {example(app.mask(gate.schema))}", "dim")
    _next(app, outcome, modules, store)


def _report(app: App, outcome: Outcome[Any], modules: Sequence[str]) -> str:
    """Return the report, with commands in place of the calls that run a failed step again."""
    text = str(outcome.report)
    if not outcome.report.handled:
        return text
    hint, bare = handled_hint(outcome.run, outcome.report.handled), f"everstep resume {outcome.run}"
    return text.replace(hint, in_commands(hint).replace(bare, resuming(app, outcome.run, modules)))


def _first_line(error: BaseException) -> str:
    return str(error).splitlines()[0] if str(error) else ""


def _frames(app: App, outcome: Outcome) -> None:
    """Print where in the program the error was raised; with --debug, the whole traceback."""
    if outcome.error is None:
        return
    if app.debug:
        app.out.say(safe(app.mask.text("".join(traceback.format_exception(outcome.error)).rstrip()), lines=True))
        return
    for line in last_frames(outcome.error) if not isinstance(outcome.error, EverstepError) else ():
        app.out.say(f"  {safe(app.mask.text(line))}", "dim")


def _next(app: App, outcome: Outcome, modules: Sequence[str], store: Store | None) -> None:
    """Print what to type next for a run that did not end well."""
    remedy = outcome.error.remedy if isinstance(outcome.error, EverstepError) else ""
    if remedy:
        bare, command = f"everstep resume {outcome.run}", resuming(app, outcome.run, modules)
        app.out.say(f"hint: {safe(app.mask.text(in_commands(remedy, outcome.run).replace(bare, command)), lines=True)}")
        return
    if outcome.status not in ("failed", "running") or (app.configured is not None and not app.configured["enabled"]):
        return
    if outcome.status == "failed":
        step = None if store is None else _failed_step(store, outcome.run)
        app.out.say(
            f"To see {'the input and error of the step' if step else 'the whole traceback'}"
            f"{'' if outcome.report.handled else ', and to continue when the cause is fixed'}:",
            "dim",
        )
        app.out.say(f"  everstep show {safe(quote(outcome.run))}{f' {safe(quote(step))}' if step else ''}", "dim")
    if not outcome.report.handled:  # a resume would only replay the failure; the report says what to do instead
        app.out.say(f"  {resuming(app, outcome.run, modules)}", "dim")


def _failed_step(store: Store, run: str) -> str | None:
    """Return the step that failed last, if it is the last one of the run."""
    steps = store.steps(run)
    return steps[-1].address if steps and steps[-1].status == "failed" else None

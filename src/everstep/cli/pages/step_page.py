"""The page of a step: its input, its output or error, and its attempts."""

from __future__ import annotations

from everstep.cli.app import App
from everstep.cli.draw.text import duration, safe
from everstep.cli.pages.error_words import error_cell, error_words, print_traceback
from everstep.cli.pages.value_words import call_words, value_words
from everstep.views.json import to_json
from everstep.views.step import AttemptView, StepView


def show_step(app: App, one: StepView, full: bool) -> None:
    """Print a step. Long values are cut unless `full`."""
    if app.out.as_json:
        app.out.data("step", to_json(one))
        return
    newest = one.attempts[-1]
    app.out.line(f"{app.out.style(f'{one.run} {safe(one.step)}', 'bold')}  {app.out.status(one.status)}")
    app.out.pairs(
        [
            ("began", app.out.when(newest.started)),
            ("took", duration(newest.seconds)),
            ("used", _used(newest)),
            ("worker", safe(newest.worker)),
            ("input", safe(one.input) if one.arguments is None else call_words(one.arguments, full) or "no arguments"),
            ("output", value_words(one.output, full) + (" (skipped)" if newest.skipped else "") if one.status == "succeeded" else ""),
            ("error", error_words(one.run, one.error.type, one.error.message) if one.error else ""),
        ]
    )
    if one.error:
        print_traceback(app, one.error.message, one.error.traceback, full)
    if len(one.attempts) > 1:
        _attempts(app, one)


def _used(one: AttemptView) -> str:
    parts = (f"{one.tokens:,} tokens" if one.tokens else "", f"${one.cost:,.4f}" if one.cost else "")
    return ", ".join(part for part in parts if part)


def _attempts(app: App, one: StepView) -> None:
    app.out.line()
    rows = [
        (str(n), made.status, app.out.when(made.started), duration(made.seconds), error_cell(made.error.type, made.error.message) if made.error else "")
        for n, made in enumerate(one.attempts, 1)
    ]  # fmt: skip
    app.out.table(("ATTEMPT", "STATUS", "BEGAN", "TOOK", "ERROR"), rows, right=(0,), drop=("TOOK", "BEGAN"), cuts=("ERROR",))

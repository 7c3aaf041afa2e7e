"""The page of a run: what it is about, its input and result, its gates, checkpoints and forks."""

from __future__ import annotations

from collections.abc import Sequence
from shlex import quote

from everstep.cli.app import App
from everstep.cli.draw import queue_text
from everstep.cli.draw.hints import resuming
from everstep.cli.draw.text import cell, safe, size
from everstep.cli.draw.values import answers, gate_names, shown
from everstep.cli.pages.checkpoint_page import used_words
from everstep.cli.pages.error_words import error_words, print_traceback
from everstep.cli.pages.value_words import call_words, value_words
from everstep.ids import unquote
from everstep.views.json import to_json
from everstep.views.run import CheckpointView, GateView, RunDetail
from everstep.views.runs import RunView


def show_run(app: App, found: RunDetail, full: bool) -> None:
    """Print a run. Long inputs and results are cut unless `full`."""
    if app.out.as_json:
        app.out.data("run", to_json(found))
        return
    run, checkpoints = found.run, found.checkpoints
    text = unquote(run.id)
    app.out.line(f"{app.out.style(cell(text, 200), 'bold')}  {app.out.status(run.status)}" + (f"  {run.id}" if text != run.id else ""))
    app.out.pairs(
        [
            *_about(app, run, checkpoints),
            ("queue", "; ".join(filter(None, (queue_text.asked(found.task), queue_text.status(app, found.queue_entry))))),
            ("input", call_words(found.input, full)),
            ("result", value_words(found.result, full) if run.status == "succeeded" and run.workflow else ""),
            ("unread", safe(found.unread or "")),
            *_further(app, run, found.queue_entry is not None),
        ]
    )
    if run.error:
        print_traceback(app, app.mask.text(run.error["message"]), app.mask.text(run.error.get("traceback") or ""), full)
    _gates(app, run, found.gates)
    _list(app, checkpoints, run.checkpoints)
    if found.forks:
        app.out.line()
        app.out.line(app.out.style("FORKS AND CHILDREN", "dim"))
        for fork in found.forks:
            app.out.line(
                f"{fork.id}  {app.out.status(fork.status)}"
                + (f"  from {run.id}@{fork.parent_checkpoint}" if fork.parent_checkpoint else "")
            )


def _about(app: App, run: RunView, checkpoints: Sequence[CheckpointView]) -> list[tuple[str, str]]:
    origin = f"forked {run.origin}" if run.parent is not None and not run.child else run.origin
    return [
        ("workflow", cell(run.workflow or "", 100)),
        ("session", cell(run.session or "", 100)),
        ("origin", origin),
        ("tags", safe(", ".join(run.tags))),
        ("note", cell(run.note or "", 400)),
        ("meta", shown(run.meta) if run.meta else ""),
        ("began", app.out.when(run.created_at)),
        ("updated", app.out.when(run.updated_at) + (", open in a process" if run.open else "")),
        ("stored", size(run.stored_bytes)),
        ("used", _used(run, checkpoints[0]) if checkpoints else ""),
    ]


def _used(run: RunView, newest: CheckpointView) -> str:
    """Describe what a run has used. A run that is at work, or was cut off, may have used more since its newest checkpoint."""
    words = used_words(newest.used)
    return f"{words} until @{newest.number}" if words and run.status in ("running", "crashed", "interrupted") else words


def _further(app: App, run: RunView, is_queued: bool) -> list[tuple[str, str]]:
    error = run.error
    return [
        ("error", error_words(run.id, app.mask.text(error["type"]), app.mask.text(error["message"])) if error else ""),
        ("next", app.out.style(_next(app, run), "dim") if app.out.terminal and not is_queued else ""),
    ]


def _next(app: App, run: RunView) -> str:
    if run.status in ("failed", "crashed", "interrupted") and run.workflow:
        return resuming(app, run.id, workflow=run.workflow)
    return ""


def _gates(app: App, run: RunView, gates: Sequence[GateView]) -> None:
    for gate, name in zip(gates, gate_names(gates), strict=True):
        app.out.line()
        app.out.prose(f"waits at gate {name}: {cell(gate.ask or '', 400)}")
        if named := answers(gate.schema, 60):
            app.out.prose(f"  one of {', '.join(named)}")
        if app.out.terminal:
            app.out.prose(f"  everstep answer {safe(quote(run.id))} {quote(name)} VALUE", "dim")


def _list(app: App, checkpoints: Sequence[CheckpointView], total: int) -> None:
    if not checkpoints:
        return
    app.out.line()
    head = ("CHECKPOINT", "KIND", "AT", "STEP", "TAGS", "NOTE")
    rows = [
        (
            one.ref if len(one.ref) < 40 else f"@{one.number}", one.kind + (" (pruned)" if one.pruned else ""), app.out.when(one.at),
            cell(one.step or "", 40), cell(", ".join(one.tags), 30), cell(one.note or "", 60),
        )
        for one in checkpoints
    ]  # fmt: skip
    app.out.table(head, rows, drop=("STEP", "TAGS", "NOTE", "AT"), cuts=("NOTE", "TAGS", "STEP"))
    if total > len(checkpoints):
        app.out.say(f"The newest {len(checkpoints):,} of {total:,} checkpoints. Use --limit to show more.")

"""`everstep show`: show a run, or one of its checkpoints. Reads no state and not the whole journal."""

from __future__ import annotations

from collections.abc import Sequence

import click

from everstep.cli.app import App
from everstep.cli.app import command as make
from everstep.cli.args.naming import to_read
from everstep.cli.args.refs import REF
from everstep.cli.draw import queue_text
from everstep.cli.draw.hints import resuming
from everstep.cli.draw.text import cell, duration, plural, safe, size
from everstep.cli.draw.values import shown
from everstep.ids import unquote
from everstep.views.json import to_json
from everstep.views.run import CheckpointView, GateView, RunDetail, checkpoint, detail
from everstep.views.runs import RunView

_MANY = 10


@make("show")
@click.argument("ref", type=REF)
@click.option("--limit", "-n", type=click.IntRange(1, 10_000), default=_MANY, show_default=True, help="Number of checkpoints to list")
def command(app: App, ref: str, limit: int) -> None:
    """Show the run or checkpoint REF

    Example: everstep show o1@7
    """
    with app.open() as store:
        ref = to_read(app, store, ref)
        if "~" in ref or "@" in ref:
            _checkpoint(app, checkpoint(store, app.mask, ref))
        else:
            _run(app, detail(store, app.mask, ref, checkpoints=limit, forks=_MANY))


def _checkpoint(app: App, one: CheckpointView) -> None:
    if app.out.as_json:
        app.out.data("checkpoint", to_json(one))
        return
    app.out.line(app.out.style(one.ref, "bold"))
    used = one.used
    app.out.pairs(
        [
            ("kind", one.kind + (f" ({safe(one.trigger)})" if one.trigger else "") + (", state pruned" if one.pruned else "")),
            ("at", app.out.when(one.at)),
            ("step", cell(one.step or "", 100)),
            ("progress", f"{one.percent:.0f} %" if one.percent is not None else ""),
            ("note", cell(one.note or "", 400)),
            ("tags", safe(", ".join(one.tags))),
            ("meta", shown(one.meta) if one.meta else ""),
            ("used", _used(used)),
            ("digest", one.digest),
        ]
    )


def _used(used: dict[str, float]) -> str:
    parts = [plural(int(used["steps"]), "step") if used["steps"] else "", duration(used["seconds"]) if used["seconds"] else ""]
    parts += [f"{used['tokens']:,.0f} tokens" if used["tokens"] else "", f"${used['cost']:,.4f}" if used["cost"] else ""]
    return ", ".join(part for part in parts if part)


def _run(app: App, found: RunDetail) -> None:
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
            *_further(app, run, found.queue_entry is not None),
        ]
    )
    _traceback(app, run)
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
        ("used", _used(checkpoints[0].used) if checkpoints else ""),
    ]


def _further(app: App, run: RunView, is_queued: bool) -> list[tuple[str, str]]:
    error = run.error
    return [
        ("error", cell(app.mask.text(f"{error['type']}: {error['message']}"), 1_000) if error else ""),
        ("next", app.out.style(_next(app, run), "dim") if app.out.terminal and not is_queued else ""),
    ]


def _traceback(app: App, run: RunView) -> None:
    text = run.error.get("traceback") if run.error else None
    if text:
        app.out.line()
        app.out.line(app.out.style("TRACEBACK", "dim"))
        app.out.line(safe(app.mask.text(text.rstrip()), lines=True))


def _next(app: App, run: RunView) -> str:
    if run.status in ("failed", "running") and run.workflow and not run.open:
        return resuming(app, run.id)
    return ""


def _gates(app: App, run: RunView, gates: Sequence[GateView]) -> None:
    for gate in gates:
        app.out.line()
        app.out.line(f"waits at gate {app.out.style(safe(gate.gate), 'bold')}: {cell(gate.ask or '', 400)}")
        if gate.choices:
            app.out.line(f"  one of {', '.join(shown(choice, 60) for choice in gate.choices)}")
        if app.out.terminal:
            app.out.line(app.out.style(f"  everstep answer {run.id} {safe(gate.gate)} VALUE", "dim"))


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
    app.out.table(head, rows)
    if total > len(checkpoints):
        app.out.say(f"The newest {len(checkpoints):,} of {total:,} checkpoints. Use --limit to show more.")

"""Runs, checkpoints, steps and gates as JSON objects: the documented shapes of `--json`. No I/O."""

from __future__ import annotations

from typing import Any

from everstep.cli.draw.text import iso
from everstep.cli.draw.values import to_json


def of_run(run: Any, hidden: Any) -> dict[str, Any]:
    return {
        "id": run.id, "status": run.status, "workflow": run.workflow, "session": run.session, "tags": list(run.tags), "note": hidden(run.note),
        "meta": to_json(hidden(run.meta)), "parent": run.parent, "parent_checkpoint": run.parent_number, "child": run.child, "created_at": iso(run.created_at),
        "updated_at": iso(run.updated_at), "checkpoints": run.checkpoints, "stored_bytes": run.stored_bytes, "open": run.open, "error": to_json(hidden(run.error)),
    }  # fmt: skip


def of_checkpoint(one: Any, hidden: Any) -> dict[str, Any]:
    return {
        "ref": one.ref, "run": one.run, "number": one.number, "at": iso(one.at), "kind": one.kind, "trigger": one.trigger, "step": one.step,
        "note": hidden(one.note), "tags": list(one.tags), "meta": to_json(hidden(one.meta)), "progress": list(one.progress) if one.progress else None,
        "used": one.used, "digest": one.digest, "pruned": one.pruned,
    }  # fmt: skip


def of_gate(gate: Any, hidden: Any) -> dict[str, Any]:
    return {
        "run": gate.run, "gate": gate.name, "address": gate.address, "ask": hidden(gate.ask), "schema": to_json(hidden(gate.schema)),
        "asked_at": iso(gate.asked_at), "deadline": iso(gate.deadline) if gate.deadline else None, "answered": gate.answered,
        "answer": to_json(hidden(gate.answer)), "by": gate.by, "cancelled": gate.cancelled,
    }  # fmt: skip


def of_change(change: Any, hidden: Any) -> dict[str, Any]:
    return {
        "path": to_json(hidden(list(change.path))),
        "kind": change.kind,
        "before": to_json(hidden(change.before, change.path)),
        "after": to_json(hidden(change.after, change.path)),
    }


def of_event(event: Any, hidden: Any) -> dict[str, Any]:
    return {
        "name": event.name,
        "run": event.run,
        "at": iso(event.at),
        "position": event.position,
        "seq": event.seq,
        "attempt": event.attempt,
        "data": to_json(hidden(event.data)),
    }


def of_report(report: Any, hidden: Any) -> dict[str, Any]:
    """What a resume was worth."""
    names = ("attempt", "kept", "executed", "seconds", "seconds_saved", "tokens_saved", "cost_saved", "unused", "new", "not_reached")
    found = {name: getattr(report, name) for name in names}
    differences = [
        {"step": d.address, "what": d.what, "path": to_json(hidden(list(d.path))), "recorded": hidden(d.recorded), "now": hidden(d.now)}
        for d in report.differences
    ]
    return {**found, "definition_changed": bool(report.changed), "differences": differences}

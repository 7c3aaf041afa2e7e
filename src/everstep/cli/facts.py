"""Runs, checkpoints, steps and gates as JSON objects: the documented shapes of `--json`. No I/O."""

from __future__ import annotations

from typing import Any

from everstep.cli.plain import to_json
from everstep.cli.text import iso


def of_run(run: Any) -> dict[str, Any]:
    return {
        "id": run.id, "status": run.status, "workflow": run.workflow, "session": run.session, "tags": list(run.tags), "note": run.note,
        "meta": run.meta, "parent": run.parent, "parent_checkpoint": run.parent_number, "child": run.child, "created_at": iso(run.created_at),
        "updated_at": iso(run.updated_at), "checkpoints": run.checkpoints, "stored_bytes": run.stored_bytes, "open": run.open, "error": run.error,
    }  # fmt: skip


def of_checkpoint(one: Any) -> dict[str, Any]:
    return {
        "ref": one.ref, "run": one.run, "number": one.number, "at": iso(one.at), "kind": one.kind, "trigger": one.trigger, "step": one.step,
        "note": one.note, "tags": list(one.tags), "meta": one.meta, "progress": list(one.progress) if one.progress else None,
        "used": one.used, "digest": one.digest, "pruned": one.pruned,
    }  # fmt: skip


def of_step(step: Any) -> dict[str, Any]:
    return {
        "address": step.address, "status": step.status, "attempt": step.attempt, "started": iso(step.started), "ended": iso(step.ended),
        "seconds": step.seconds, "tokens": step.tokens, "cost": step.cost, "worker": step.worker, "input": step.input, "error": step.error,
        "skipped": step.skipped,
    }  # fmt: skip


def of_gate(gate: Any, hidden: Any) -> dict[str, Any]:
    return {
        "run": gate.run, "gate": gate.name, "address": gate.address, "ask": hidden(gate.ask), "schema": gate.schema,
        "asked_at": iso(gate.asked_at), "deadline": iso(gate.deadline) if gate.deadline else None, "answered": gate.answered,
        "answer": to_json(hidden(gate.answer)), "by": gate.by,
    }  # fmt: skip


def of_change(change: Any, hidden: Any) -> dict[str, Any]:
    path = to_json(list(change.path))
    key = change.path[-1] if change.path else None
    return {
        "path": path,
        "kind": change.kind,
        "before": to_json(_of(key, change.before, hidden)),
        "after": to_json(_of(key, change.after, hidden)),
    }


def _of(key: Any, value: Any, hidden: Any) -> Any:
    """A value under its key: a key may be reason enough to hide it."""
    return hidden({key: value})[key] if isinstance(key, str) else hidden(value)


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


def of_report(report: Any) -> dict[str, Any]:
    """What a resume was worth."""
    names = ("attempt", "kept", "executed", "seconds", "seconds_saved", "tokens_saved", "cost_saved", "unused")
    found = {name: getattr(report, name) for name in names}
    differences = [{"step": d.address, "recorded": d.recorded, "now": d.now} for d in report.differences]
    return {**found, "definition_changed": bool(report.changed), "differences": differences}

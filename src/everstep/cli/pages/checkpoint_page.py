"""The page of a checkpoint."""

from __future__ import annotations

from everstep.cli.app import App
from everstep.cli.draw.text import cell, duration, plural, safe
from everstep.cli.draw.values import shown
from everstep.views.json import to_json
from everstep.views.run import CheckpointView


def show_checkpoint(app: App, one: CheckpointView) -> None:
    """Print a checkpoint."""
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
            ("used", used_words(used)),
            ("digest", one.digest),
        ]
    )


def used_words(used: dict[str, float]) -> str:
    """Describe what a run has used."""
    parts = [plural(int(used["steps"]), "step") if used["steps"] else "", duration(used["seconds"]) if used["seconds"] else ""]
    parts += [f"{used['tokens']:,.0f} tokens" if used["tokens"] else "", f"${used['cost']:,.4f}" if used["cost"] else ""]
    return ", ".join(part for part in parts if part)

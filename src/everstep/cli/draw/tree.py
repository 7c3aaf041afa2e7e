"""Draws runs as trees: forks and children under the run that they come from."""

from __future__ import annotations

from everstep.cli.app import App
from everstep.cli.draw.text import cell
from everstep.views.runs import Branch, Forest


def draw(app: App, forest: Forest) -> None:
    """Draw the trees of runs."""
    out = app.out
    for branch in forest.branches:
        run = branch.run
        origin = f" {run.origin}" if run.origin else ""
        out.line(
            f"{_lead(branch)}{out.style(run.id, 'bold')}  {out.status(run.status)}{out.style(cell(origin, 80), 'dim')}  {cell(run.note or '', 60)}".rstrip()
        )
    if forest.cut:
        out.say(f"Only the first {len(forest.branches):,} runs are shown.")


def _lead(branch: Branch) -> str:
    """Return the lines that lead to a run."""
    if not branch.lasts:
        return ""
    *above, last = branch.lasts
    return "".join("   " if one else "│  " for one in above) + ("└─ " if last else "├─ ")

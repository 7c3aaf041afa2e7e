"""The forest of runs: forks and children under the run that they come from."""

from __future__ import annotations

from typing import Any

from everstep.cli.app import App
from everstep.cli.draw.text import cell
from everstep.errors import NotFound

_MOST = 2_000


def draw(app: App, store: Any, runs: Any) -> None:
    """Draw the trees that some runs belong to, the newest tree first."""
    drawn: set[str] = set()
    for run in runs:
        root = _root(store, run)
        if root.id not in drawn:
            _branch(app, store, root, "", "", drawn)


def _root(store: Any, run: Any) -> Any:
    seen = {run.id}
    while run.parent is not None and run.parent not in seen:
        found = _parent(store, run.parent)
        if found is None:  # it was deleted
            return run
        run = found
        seen.add(run.id)
    return run


def _parent(store: Any, id: str) -> Any:
    """Return the run with this id; None if it was deleted."""
    try:
        return store.get(id)
    except NotFound:
        return None


def _branch(app: App, store: Any, run: Any, before: str, below: str, drawn: set[str]) -> None:
    """A run and what comes from it. Without recursion: forks of forks may be thousands deep."""
    out = app.out
    waiting = [(run, before, below)]
    while waiting and len(drawn) < _MOST:
        one, first, rest = waiting.pop()
        if one.id in drawn:
            continue
        drawn.add(one.id)
        origin = "" if one.parent is None else f" called by {one.parent}" if one.child else f" from {one.parent}@{one.parent_number}"
        out.line(
            f"{first}{out.style(one.id, 'bold')}  {out.status(one.status)}{out.style(cell(origin, 80), 'dim')}  {cell(app.hidden(one.note) or '', 60)}".rstrip()
        )
        children = list(store.runs(parent=one.id, oldest_first=True, limit=500))
        for i, child in reversed(list(enumerate(children))):
            last = i == len(children) - 1
            waiting.append((child, rest + ("└─ " if last else "├─ "), rest + ("   " if last else "│  ")))
    if waiting:
        out.say(f"only the first {_MOST:,} runs are drawn")

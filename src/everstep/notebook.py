"""Tables for notebooks: what `_repr_html_` of runs, checkpoints, differences and timelines returns. Escapes everything; no I/O.

A cell is shortened, and so is a long table: a notebook keeps what it shows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

MOST_ROWS = 50
_LONGEST = 200
_COLUMNS = {
    "RunInfo": ("id", "status", "workflow", "updated_at", "checkpoints", "note"),
    "Checkpoint": ("ref", "kind", "at", "step", "tags", "note"),
    "Change": ("path", "kind", "before", "after"),
    "Event": ("at", "name", "run", "data"),
    "Step": ("address", "status", "attempt", "started", "seconds", "input"),
}


def listed(items: Sequence[Any]) -> str:
    """Return a list of runs, checkpoints, changes, events or steps as a table."""
    if not items:
        return "<p>empty</p>"
    columns = _COLUMNS.get(type(items[0]).__name__, ())
    if not columns:
        return table(("value",), [(item,) for item in items])
    return table(columns, [[getattr(item, column) for column in columns] for item in items])


def pairs(title: str, about: Iterable[tuple[str, Any]]) -> str:
    """Return the facts about one thing as a table; those that are None or empty are left out."""
    rows = "".join(f"<tr><th>{_cell(name)}</th><td>{_cell(value)}</td></tr>" for name, value in about if value not in (None, "", (), {}))
    return f"<table><caption>{_cell(title)}</caption>{rows}</table>"


def table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Return rows as a table, at most 50 of them."""
    shown = "".join(f"<tr>{''.join(f'<td>{_cell(cell)}</td>' for cell in row)}</tr>" for row in rows[:MOST_ROWS])
    more = f"<p>… and {len(rows) - MOST_ROWS:,} more</p>" if len(rows) > MOST_ROWS else ""
    return f"<table><tr>{''.join(f'<th>{_cell(name)}</th>' for name in head)}</tr>{shown}</table>{more}"


def _cell(value: Any) -> str:
    from html import escape

    if value is None:
        return ""
    if isinstance(value, datetime):
        text = value.isoformat(sep=" ", timespec="seconds")
    elif isinstance(value, str):
        text = value
    elif isinstance(value, tuple) and all(isinstance(part, (str, int)) for part in value):
        text = ", ".join(map(str, value))
    else:
        text = f"{value:,.3f}" if type(value) is float else repr(value)
    return escape(text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…")

"""Rows of CSV that are safe to open in a spreadsheet: no cell is a formula, and no cell has a control character."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable

from everstep.cli.draw.text import safe

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")


def row(cells: Iterable[object]) -> str:
    """Return one row without its end."""
    out = io.StringIO()
    csv.writer(out, lineterminator="").writerow([_cell(cell) for cell in cells])
    return out.getvalue()


def _cell(value: object) -> str:
    """Return a cell. A spreadsheet runs a text that begins like a formula, also after spaces; after an apostrophe it does not."""
    if value is None:
        return ""
    if type(value) is int:
        return str(value)
    text = str(value)
    return ("'" if text.lstrip(" \u00a0\u3000\ufeff").startswith(_FORMULA) else "") + safe(text)

"""Fits the columns of a table into a line: shrinks those that may be cut, then leaves out whole columns in a chosen order. No I/O.

A column that is cut to a few letters says nothing, so a narrow terminal gets fewer columns instead of thin ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

GAP = 2
_THIN = 12


def fit(natural: Mapping[int, int], least: Mapping[int, int], drop: Sequence[int], columns: int) -> dict[int, int]:
    """Return the columns that stay with their widths. `natural` has the width of each, `least` that of columns that may be cut.

    The first columns of `drop` go first. If even the rest does not fit, the last of the columns that may be cut gets what is left.
    """
    kept = dict(natural)
    for one in drop:
        if _total({i: min(width, least.get(i, width)) for i, width in kept.items()}) <= columns:
            break
        kept.pop(one, None)
    over = _total(kept) - columns
    for i in sorted(set(least) & set(kept), key=lambda i: -kept[i]):
        if over <= 0:
            break
        taken = min(over, max(0, kept[i] - least[i]))
        kept[i] -= taken
        over -= taken
    return kept


def least_of(head: str, natural: int) -> int:
    """Return the least width at which a column that may be cut still says something."""
    return min(natural, max(len(head), _THIN))


def _total(widths: Mapping[int, int]) -> int:
    return sum(widths.values()) + GAP * max(0, len(widths) - 1)

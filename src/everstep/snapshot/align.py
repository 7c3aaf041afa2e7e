"""Pairs the items of two lists so that as few as possible differ. No I/O.

Short parts are paired by the smallest number of edits (insert, remove, replace). If that would take too long, items that are unique on both
sides are paired first, and then the parts between them.
"""

from __future__ import annotations

from collections.abc import Iterator

from everstep.snapshot.delta import anchors

MOST_CELLS = 1 << 16  # pairs of items that are compared with each other at once
Pair = tuple[int | None, int | None]


def aligned(a: list[bytes], b: list[bytes]) -> Iterator[Pair]:
    """Yield pairs of positions, rising on both sides; None on one side for an added or removed item."""
    if _small(a, b):
        yield from _fewest(a, b, 0, 0)
        return
    i = j = 0
    for x, y in [*anchors(a, b), (len(a), len(b))]:
        yield from _gap(a[i:x], b[j:y], i, j)
        if x < len(a):
            yield x, y
        i, j = x + 1, y + 1


def _small(a: list[bytes], b: list[bytes]) -> bool:
    return (len(a) + 1) * (len(b) + 1) <= MOST_CELLS


def _gap(a: list[bytes], b: list[bytes], i: int, j: int) -> Iterator[Pair]:
    """Pair the items between two anchors: by the fewest edits, or one after the other if there are too many."""
    if _small(a, b):
        yield from _fewest(a, b, i, j)
        return
    both = min(len(a), len(b))
    yield from ((i + k, j + k) for k in range(both))
    yield from ((i + k, None) for k in range(both, len(a)))
    yield from ((None, j + k) for k in range(both, len(b)))


def _fewest(a: list[bytes], b: list[bytes], i: int, j: int) -> Iterator[Pair]:
    """Yield the pairing with the fewest edits; the two parts begin at `i` and `j`."""
    left = _edits(a, b)  # the number of edits that the rest takes, for each pair of positions
    x = y = 0
    while x < len(a) or y < len(b):
        here = left[x][y]
        if x < len(a) and y < len(b) and here == left[x + 1][y + 1] + (a[x] != b[y]):
            yield i + x, j + y
            x, y = x + 1, y + 1
        elif x < len(a) and here == left[x + 1][y] + 1:
            yield i + x, None
            x += 1
        else:
            yield None, j + y
            y += 1


def _edits(a: list[bytes], b: list[bytes]) -> list[list[int]]:
    rows = [list(range(len(b), -1, -1))]
    for item in reversed(a):
        below = rows[-1]
        row = [below[-1] + 1]
        for k in range(len(b) - 1, -1, -1):
            same = below[k + 1] if item == b[k] else below[k + 1] + 1
            row.append(min(same, below[k] + 1, row[-1] + 1))
        rows.append(row[::-1])
    return rows[::-1]

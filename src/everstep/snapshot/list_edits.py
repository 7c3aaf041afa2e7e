"""The edits of a list since the last checkpoint: a table of pieces [old start, length], with old start -1 for new items. No I/O."""

from __future__ import annotations

MAX_PIECES = 512
Pieces = list[list[int]]


def replaced(pieces: Pieces, i: int, j: int, n: int) -> Pieces:
    """Return the table after n new items replaced the positions i to j."""
    out: Pieces = []
    at = 0
    placed = False
    for start, length in pieces:
        end = at + length
        if (before := min(end, i) - at) > 0:
            out.append([start, before])
        if not placed and end >= i and at <= i:
            placed = True
            if n:
                out.append([-1, n])
        if (after := end - max(at, j)) > 0 and end > j:
            out.append([start if start < 0 else start + length - after, after])
        at = end
    if not placed and n:
        out.append([-1, n])
    return _joined(out)


def _joined(pieces: Pieces) -> Pieces:
    """Join neighbours of a table; beyond MAX_PIECES, keep only the range between the first and the last change."""
    out: Pieces = []
    for start, length in pieces:
        last = out[-1] if out else None
        if last is not None and ((start < 0 and last[0] < 0) or (start >= 0 and last[0] >= 0 and last[0] + last[1] == start)):
            last[1] += length
        else:
            out.append([start, length])
    if len(out) <= MAX_PIECES:
        return out
    head = [out[0]] if out[0][0] == 0 else []
    tail = [out[-1]] if out[-1][0] >= 0 else []
    middle = out[len(head) : len(out) - len(tail)]
    return [*head, [-1, sum(length for _, length in middle)], *tail]

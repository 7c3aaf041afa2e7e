"""Estimate how large the store would be with a full copy of the state at every checkpoint. Samples a few states; reads only.

Of the largest runs, some checkpoints spread over the run are loaded, encoded and compressed as a store would do. The size is assumed to
change evenly between two of them. The rest of the store is assumed to be like the sample, in proportion to the bytes stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from everstep import clock as clocks
from everstep.backends.contract.core import Backend
from everstep.codec.values import encode
from everstep.errors import Damaged, LimitExceeded, NotFound, Unstorable
from everstep.fields import Shape
from everstep.records import Framing, Pruned, RunRow
from everstep.store import load

_MOST_US = 1_000_000
_MOST_RUNS = 20
_ROUNDS = ((1.0, 0.0), (0.5,), (0.25, 0.75))  # positions in a run: its ends first, then more while there is time


class Naive(Shape):
    """The estimated size of full copies, and the sample behind it."""

    bytes: int
    states: int
    runs: int
    share: float
    """The part of all stored bytes that belongs to the sampled runs."""

    def sentence(self, stored: int) -> str:
        times = f", {self.bytes / stored:,.1f} times as much" if 0 < stored <= self.bytes else ", without the records of steps and events"
        looked = f"{self.states} states of {self.runs} runs, which hold {self.share:.0%} of the stored bytes"
        return f"full copies of every checkpoint would take about {shown_size(self.bytes)}{times} (estimated from {looked}; compressed the same way)"


def naive_size(backend: Backend, framer: Framing, rows: Sequence[RunRow], stored: int) -> Naive | None:
    """Return the estimate; None if there is no checkpoint. `rows` are the runs to sample, largest first; `stored` is the sum over all runs."""
    marks = {row.id: backend.pruned(row.id) for row in rows[:_MOST_RUNS] if row.checkpoints}
    runs = [row for row in rows[:_MOST_RUNS] if row.checkpoints]
    sizes: dict[str, dict[int, int]] = {row.id: {} for row in runs}
    began = clocks.clock.boot_us()
    for row, share in [(row, share) for shares in _ROUNDS for row in runs for share in shares]:
        number = 1 + round((row.checkpoints - 1) * share)
        if any(sizes.values()) and clocks.clock.boot_us() - began > _MOST_US:
            break
        if number not in sizes[row.id]:
            sizes[row.id].update(_size(backend, framer, row, number, marks[row.id]))
    known = [row for row in runs if sizes[row.id]]
    looked = sum(row.stored for row in known)
    if not looked:
        return None
    part = min(looked / stored, 1.0) if stored else 1.0
    total = sum(_average(sizes[row.id]) * (row.checkpoints - _pruned(marks[row.id])) for row in known)
    return Naive(round(total / part), sum(map(len, sizes.values())), len(known), part)


def _size(backend: Backend, framer: Framing, row: RunRow, number: int, mark: Pruned | None) -> dict[int, int]:
    """Return the size of a full copy at a checkpoint, by its number; empty if it was pruned or is damaged."""
    if mark is not None and not mark.has_state(number):
        return {}
    try:
        return {number: _copy_size(framer, encode(load.load(backend, row, number).value))}
    except (Damaged, NotFound, Unstorable, LimitExceeded):
        return {}


def _copy_size(framer: Framing, data: bytes) -> int:
    try:
        return len(framer.inner.wrap(data))
    except LimitExceeded:
        return len(data)


def _average(sizes: dict[int, int]) -> float:
    """The mean over all checkpoints from the first to the last known one."""
    points = sorted(sizes.items())
    if len(points) == 1:
        return float(points[0][1])
    area = sum((y - x) * (a + b) / 2 for (x, a), (y, b) in pairwise(points))
    return area / (points[-1][0] - points[0][0])


def _pruned(mark: Pruned | None) -> int:
    return 0 if mark is None else sum(last - first + 1 for first, last in mark.numbers)


def shown_size(size: int) -> str:
    """Format a number of bytes for people."""
    amount = float(size)
    for unit in ("bytes", "KB", "MB", "GB"):
        if amount < 1000 or unit == "GB":
            break
        amount /= 1000
    return f"{amount:,.0f} {unit}" if unit == "bytes" or amount >= 100 else f"{amount:,.1f} {unit}"

"""Tries many damages, here or on all cores, and counts the results. Part of `flips` and `files`.

Each process has its own bench; each attempt has a number, so that a failure can be reproduced.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

from harness.faults.count import MOST_NOTES, Count, Progress
from harness.faults.damage.reads import DETECTED, MISSING, SAME, WRONG
from harness.faults.damage.sample import Sample
from harness.faults.damage.trial import Bench, Outcome

SLICE = 1_000
Attempt = Callable[[Bench, int], Outcome]
Found = tuple[Counter[str], list[str]]
_bench: Bench | None = None


def tried(
    count: Count, attempt: Attempt, numbers: list[int], bench: Bench, sample: Sample | None, folder: Path, progress: Progress,
    minutes: float | None = None,
) -> None:  # fmt: skip
    """Try all numbers: on all cores if a sample for further benches is given, otherwise on this bench. With `minutes`, as many as possible."""
    ends = None if minutes is None else time.monotonic() + 60 * minutes
    slices = [numbers[i : i + SLICE] for i in range(0, len(numbers), SLICE)]
    results = _everywhere(attempt, slices, sample, folder, ends) if sample is not None else (_some(attempt, bench, some) for some in slices)
    for found, notes in results:
        count.tried += found.total()
        count.held += found[SAME]
        count.detected += found[DETECTED]
        count.wrong += found[WRONG]
        count.missing += found[MISSING]
        for note in notes:
            count.note(note)
        if progress is not None:
            progress(count)


def _everywhere(attempt: Attempt, slices: list[list[int]], sample: Sample, folder: Path, ends: float | None) -> Iterator[Found]:
    context = multiprocessing.get_context("forkserver")
    with ProcessPoolExecutor(os.cpu_count(), context, _begin, (sample, folder)) as pool:
        yield from pool.map(partial(_some_there, attempt, ends), slices)


def _begin(sample: Sample, folder: Path) -> None:
    global _bench
    _bench = Bench(sample, folder / f"process-{os.getpid()}")


def _some_there(attempt: Attempt, ends: float | None, numbers: list[int]) -> Found:
    if ends is not None and time.monotonic() > ends:
        return Counter(), []
    if _bench is None:
        raise AssertionError("this process has no bench")
    return _some(attempt, _bench, numbers)


def _some(attempt: Attempt, bench: Bench, numbers: list[int]) -> Found:
    """Count the outcomes of some numbers, and describe the bad ones."""
    found: Counter[str] = Counter()
    notes: list[str] = []
    for number in numbers:
        kind, said = attempt(bench, number)
        found[kind] += 1
        if kind in (WRONG, MISSING) and len(notes) < MOST_NOTES:
            notes.append(f"{number}: {kind}: {said}")
    return found, notes

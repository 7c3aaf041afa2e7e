"""A durable step, `run.step(name, fn, i)` with a result of 1 KB, against a one-row insert of the same bytes, step by step.

From the same run come the flatness and the disk that a step takes. Processor time is that of the whole process (all its threads,
the kernel's share included) over batches of steps that alternate with batches of inserts; the function itself only hands out a
result that was made before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from time import process_time_ns

import everstep
from benchmarks import comparison, fsyncs, workload
from benchmarks.floors import OneRow, RawAppend
from benchmarks.options import Options
from benchmarks.peers import STEP_LABELS
from benchmarks.table import Bar, Line
from benchmarks.table import ms as show
from benchmarks.timing import interleave, ms, settle, size
from benchmarks.turns import Times, flatness

BATCH = 250


def lines(options: Options) -> Iterator[Line]:
    for steps in options.steps:
        folder = options.folder / f"steps-{steps}"
        times = measure(steps, folder)
        yield against_floor(steps, times)
        yield flatness(f"steps, last 10 % / first 10 %, N={steps:,}", times)
        stored = size(folder / "own")
        yield Line(f"disk for each step of 1 KB, N={steps:,}", f"{stored / steps / 1000:.2f} KB", note=f"{stored / 1e6:.2f} MB after close")
    yield processor(options.steps[-1], options.folder / "processor")
    yield fsyncs.line("step", "everstep_steps", options)
    yield fsyncs.line("step with its checkpoint, every(steps=1)", "everstep_joined", options)
    labels = {name: label for name, label in STEP_LABELS.items() if options.peers or name.startswith("everstep")}
    yield from comparison.group("step", labels, options, loads=False)


def measure(steps: int, folder: Path) -> Times:
    items = workload.messages(steps)
    bodies = [workload.encoded(item) for item in items]
    own = folder / "own"
    own.mkdir(parents=True)

    def answer(i: int) -> workload.Message:
        return items[i]

    with (
        OneRow(folder) as row,
        RawAppend(folder) as raw,
        everstep.open(str(own / "store.db")) as store,
        store.run("talk") as run,
    ):
        return interleave(
            {
                "ours": lambda i: run.step("answer", answer, i),
                "row": lambda i: row.write(bodies[i]),
                "raw": lambda i: raw.write(bodies[i]),
            },
            steps,
        )


def against_floor(steps: int, times: Times) -> Line:
    ours, floor = ms(times["ours"]), ms(times["row"])
    return Line(
        f"durable step, 1 KB, N={steps:,} / one-row insert",
        show(ours),
        show(floor),
        ours / floor,
        Bar("<=", 1.6),
        f"{ours / ms(times['raw']):.2f}x a raw append + fdatasync",
        raw={"ours_ms": ours, "floor_ms": floor},
    )


def processor(steps: int, folder: Path) -> Line:
    items = workload.messages(steps)
    bodies = [workload.encoded(item) for item in items]
    ours, floor = [], []
    folder.mkdir(parents=True)

    def answer(i: int) -> workload.Message:
        return items[i]

    with OneRow(folder) as row, everstep.open(str(folder / "store.db")) as store, store.run("talk") as run:
        settle()
        for first in range(0, steps, BATCH):
            ours.append(_spent(lambda i: run.step("answer", answer, i), first))
            floor.append(_spent(lambda i: row.write(bodies[i]), first))
    took = median(ours)
    note = f"median of {len(ours)} batches of {BATCH}; least {min(ours):.3f}, mean {sum(ours) / len(ours):.3f} ms"
    return Line(f"processor time of a step, N={steps:,}", show(took), show(median(floor)), took, Bar("<=", 0.15, "ms"), note)


def _spent(operation: Callable[[int], object], first: int) -> float:
    """Milliseconds of processor time that one operation of a batch took."""
    start = process_time_ns()
    for i in range(first, first + BATCH):
        operation(i)
    return (process_time_ns() - start) / BATCH / 1e6

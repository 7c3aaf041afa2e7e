"""Sixteen threads of one store, each with its own run: the slow tail of a checkpoint, against the median of a one-row insert alone.

Rounds of the threads and of the floor alternate.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from threading import Barrier
from typing import Any

import everstep
from benchmarks import workload
from benchmarks.floors import OneRow
from benchmarks.options import Options
from benchmarks.table import Bar, Line
from benchmarks.table import ms as show
from benchmarks.timing import ms, percentile, settle, timed


def lines(options: Options) -> Iterator[Line]:
    folder = options.folder / "threads"
    folder.mkdir(parents=True)
    bodies = [workload.encoded(item) for item in workload.messages(options.thread_turns)]
    floors: list[int] = []
    times: list[int] = []
    with ExitStack() as stack:
        row = stack.enter_context(OneRow(folder))
        store = stack.enter_context(everstep.open(str(folder / "store.db")))
        runs = [stack.enter_context(store.run(f"thread-{i}", state=workload.state())) for i in range(options.threads)]
        settle()
        for _ in range(options.rounds):
            floors += [timed(lambda i: row.write(bodies[i]), i) for i in range(len(bodies))]
            times += together(runs, bodies)
    tail, floor = percentile(times, 99) / 1e6, ms(floors)
    note = f"p99 of {len(times):,}; median {ms(times):.3f} ms; largest {max(times) / 1e6:.1f} ms"
    yield Line(f"{options.threads} threads, p99 / one-row insert median", show(tail), show(floor), tail / floor, Bar("<=", 40), note)


def together(runs: list[Any], bodies: list[bytes]) -> list[int]:
    """Return the time of every checkpoint when all runs take their turns at once."""
    barrier = Barrier(len(runs))

    def turns(run: Any) -> list[int]:
        coming = workload.stack(bodies)

        def checkpoint(i: int) -> None:
            new = coming.pop()
            workload.turn(run.state, new)
            run.checkpoint()

        barrier.wait()
        return [timed(checkpoint, i) for i in range(len(bodies))]

    with ThreadPoolExecutor(len(runs)) as pool:
        return [time for times in pool.map(turns, runs) for time in times]

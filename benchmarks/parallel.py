"""Steps of one run at the same time: 100 asyncio steps by gather, and run.map on 8 threads, against one step after the other by
the same API. Rounds of all four alternate, each in a run of its own; opening it is not timed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from statistics import median
from time import perf_counter

import everstep
from benchmarks import workload
from benchmarks.options import Options
from benchmarks.table import Line
from benchmarks.timing import settle

THREADS = 8


def lines(options: Options) -> Iterator[Line]:
    folder = options.folder / "parallel"
    folder.mkdir(parents=True)
    items = workload.messages(options.parallel)
    rates: dict[str, list[float]] = {name: [] for name in ("threads", "one", "tasks", "one task")}
    with everstep.open(str(folder / "store.db")) as store:
        settle()
        for turn in range(options.rounds * 2 + 1):
            for name, taken in (in_threads(store, items, turn) | asyncio.run(in_tasks(store, items, turn))).items():
                rates[name].append(len(items) / taken)
    rate = {name: median(taken) for name, taken in rates.items()}
    note = f"durable steps of 1 KB, median of {options.rounds * 2 + 1} alternating rounds of {len(items)} steps"
    for label, name, alone in (
        (f"{len(items)} asyncio steps by gather / one by one", "tasks", "one task"),
        (f"run.map on {THREADS} threads / one by one", "threads", "one"),
    ):
        yield Line(label, f"{rate[name]:,.0f}/s", f"{rate[alone]:,.0f}/s", rate[name] / rate[alone], note=note)


def in_threads(store: everstep.Store, items: list[workload.Message], turn: int) -> dict[str, float]:
    def answer(i: int) -> workload.Message:
        return items[i]

    with store.run(f"one-{turn}") as run:
        start = perf_counter()
        for i in range(len(items)):
            run.step("answer", answer, i)
        alone = perf_counter() - start
    with store.run(f"threads-{turn}") as run:
        start = perf_counter()
        run.map(answer, range(len(items)), concurrency=THREADS)
        return {"one": alone, "threads": perf_counter() - start}


async def in_tasks(store: everstep.Store, items: list[workload.Message], turn: int) -> dict[str, float]:
    async def answer(i: int) -> workload.Message:
        return items[i]

    async with store.run(f"one-task-{turn}") as run:
        start = perf_counter()
        for i in range(len(items)):
            await run.step("answer", answer, i)
        alone = perf_counter() - start
    async with store.run(f"tasks-{turn}") as run:
        start = perf_counter()
        await asyncio.gather(*(run.step("answer", answer, i) for i in range(len(items))))
        return {"one task": alone, "tasks": perf_counter() - start}

"""Many asyncio runs in one process share their commits: the rate of all together against that of one alone, by the same API.

Opening the runs is not timed. One alone and all together alternate for some rounds; the medians of the rates are compared.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack
from statistics import median
from time import perf_counter
from typing import Any

import everstep
from benchmarks import workload
from benchmarks.options import Options
from benchmarks.table import Bar, Line
from benchmarks.timing import settle


def lines(options: Options) -> Iterator[Line]:
    folder = options.folder / "tasks"
    folder.mkdir(parents=True)
    with everstep.open(str(folder / "store.db")) as store:
        alone, together = asyncio.run(measure(store, options))
    yield Line(
        f"{options.tasks} asyncio runs / one asyncio run",
        f"{together:,.0f}/s",
        f"{alone:,.0f}/s",
        together / alone,
        Bar(">=", 8),
        f"durable checkpoints of 1 KB turns, median of {options.rounds} alternating rounds",
    )


async def measure(store: everstep.Store, options: Options) -> tuple[float, float]:
    bodies = [workload.encoded(item) for item in workload.messages(options.task_turns)]
    alone, together = [], []
    async with AsyncExitStack() as stack:
        runs = [await stack.enter_async_context(store.run(f"task-{i}", state=workload.state())) for i in range(options.tasks)]
        single = await stack.enter_async_context(store.run("alone", state=workload.state()))
        settle()
        for _ in range(options.rounds):
            alone.append(await _rate([single], bodies * 5))
            together.append(await _rate(runs, bodies))
    return median(alone), median(together)


async def _rate(runs: list[Any], bodies: list[bytes]) -> float:
    coming = [workload.stack(bodies) for _ in runs]
    start = perf_counter()
    await asyncio.gather(*map(_turns, runs, coming))
    return len(runs) * len(bodies) / (perf_counter() - start)


async def _turns(run: Any, coming: list[workload.Message]) -> None:
    while coming:
        new = coming.pop()
        workload.turn(run.state, new)
        await run.checkpoint()

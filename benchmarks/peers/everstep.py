"""Everstep itself: tracked state, one durable checkpoint a turn. `load_times` keeps what `store.load` alone took."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter_ns

import everstep
from benchmarks import workload
from benchmarks.timing import Laps
from benchmarks.workload import Message

load_times: list[int] = []


def run(items: list[Message], folder: Path, laps: Laps) -> None:
    with everstep.open(str(folder / "store.db")) as store, store.run("chat", state=workload.state()) as live:
        coming = items[::-1]
        items.clear()  # see workload.stack
        while coming:
            new = coming.pop()
            laps.start()
            workload.turn(live.state, new)
            live.checkpoint()
            laps.end()


def load(folder: Path) -> int:
    with everstep.open(str(folder / "store.db")) as store:
        start = perf_counter_ns()
        state = store.load("chat")
        load_times.append(perf_counter_ns() - start)
        return len(state["messages"])

"""Everstep: a loop of its own under the policy every(steps=1), so that each step brings a checkpoint of the state along."""

from __future__ import annotations

from pathlib import Path

import everstep
from benchmarks import workload
from benchmarks.timing import Laps
from benchmarks.workload import Message


def run(items: list[Message], folder: Path, laps: Laps) -> None:
    policy = everstep.every(steps=1)
    with everstep.open(str(folder / "store.db")) as store, store.run("talk", state=workload.state(), policy=policy) as live:
        coming = items[::-1]
        items.clear()  # see workload.stack
        for i in range(len(coming)):
            laps.start()
            workload.turn(live.state, live.step("answer", lambda i: coming.pop(), i))
            laps.end()

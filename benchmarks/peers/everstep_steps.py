"""Everstep: a workflow that takes one durable step for each item."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter_ns

import everstep
from benchmarks.timing import Laps
from benchmarks.workload import Message

given: list[Message] = []
watch = Laps()
spans: list[int] = []


@everstep.step
def answer(i: int) -> Message:
    return given[i]


@everstep.workflow
def talk(count: int) -> int:
    start = perf_counter_ns()
    for i in range(count):
        watch.start()
        answer(i)
        watch.end()
    spans.append(perf_counter_ns() - start)
    return count


def run(items: list[Message], folder: Path, laps: Laps) -> None:
    global given, watch
    given, watch = items, laps
    with everstep.open(str(folder / "store.db")) as store:
        store.start(talk, len(items), id="talk").unwrap()


def resume(items: list[Message], folder: Path) -> int:
    global given
    given = items
    with everstep.open(str(folder / "store.db")) as store:
        store.resume("talk").unwrap()
    return spans[-1]

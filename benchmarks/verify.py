"""Verifying a store: megabytes of its file per second at each depth, on a store such as agents leave behind.

The store holds a chat of 1 KB turns, a run of steps with results of 1 KB, some states of 10 MB of which messages anywhere are edited, and a
fork of one of them. The limit applies to wall time. The note has the same by processor time, because one thread does all the work and a
shared machine has other load. The floor is reading the file and hashing it, in the same rounds and by the same clock: no check of every
byte can be faster.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from random import Random
from statistics import median
from time import perf_counter_ns, process_time_ns

import everstep
from benchmarks import workload
from benchmarks.options import Options
from benchmarks.table import Bar, Line
from benchmarks.timing import settle

HELD = 10_000
EDITS = 200
READ = 1 << 20


def lines(options: Options) -> Iterator[Line]:
    folder = options.folder / "verify"
    folder.mkdir(parents=True)
    path = folder / "store.db"
    write(path, options.verified_turns, options.verified_states)
    with everstep.open(str(path)) as store:
        for depth, bar in (("quick", None), ("records", None), ("full", Bar(">=", 50, "MB/s"))):
            yield line(store, path, depth, bar, options.rounds)


def write(path: Path, turns: int, states: int) -> None:
    """Write a typical store. The benchmark measures the files, not their creation, so writes are not awaited."""
    with everstep.open(str(path)) as store:
        chat(store, turns)
        steps(store, turns)
        for i in range(states):
            large(store, f"large-{i}", i)
        store.fork("large-0", "fork")
        edit(store, "fork", EDITS // 10, 99)


def chat(store: everstep.Store, turns: int) -> None:
    coming = workload.stack([workload.encoded(item) for item in workload.messages(turns)])
    with store.run("chat", state=workload.state(), durability="async") as run:
        while coming:
            new = coming.pop()
            workload.turn(run.state, new)
            del new
            run.checkpoint()


def steps(store: everstep.Store, count: int) -> None:
    items = workload.messages(count, seed=17)
    with store.run("talk", durability="async") as run:
        for i in range(count):
            run.step("answer", lambda i: items[i], i)


def large(store: everstep.Store, name: str, seed: int) -> None:
    with store.run(name, state=workload.state(workload.messages(HELD, seed)), durability="async") as run:
        run.checkpoint()
    edit(store, name, EDITS, seed)


def edit(store: everstep.Store, name: str, edits: int, seed: int) -> None:
    rng = Random(seed)
    with store.run(name, durability="async") as run:
        for _ in range(edits):
            run.state["messages"][rng.randrange(HELD)]["content"] = workload.text(rng, 1000)
            run.checkpoint()


def line(store: everstep.Store, path: Path, depth: str, bar: Bar | None, rounds: int) -> Line:
    settle()
    size = path.stat().st_size
    took: list[int] = []
    spent: list[int] = []
    floor: list[int] = []
    for _ in range(rounds):
        floor.append(hashed(path))
        start, worked = perf_counter_ns(), process_time_ns()
        report = store.verify(depth)  # type: ignore[arg-type]
        took.append(perf_counter_ns() - start)
        spent.append(process_time_ns() - worked)
        if not report.ok:
            raise RuntimeError(str(report))
    speed, alone = pace(size, median(took)), pace(size, median(spent))
    held = f"{size / 1e6:.0f} MB: {report.runs} runs, {report.records:,} records, {report.chunks:,} chunks"
    note = f"quickest {pace(size, min(took)):,.0f} MB/s, by processor time {alone:,.0f}; {held}"
    return Line(f"verify {depth}", f"{speed:,.0f} MB/s", f"{pace(size, median(floor)):,.0f} MB/s", speed if bar else None, bar, note)


def hashed(path: Path) -> int:
    """Return the nanoseconds to read a file and hash it."""
    start = perf_counter_ns()
    digest = sha256()
    with path.open("rb") as file:
        while part := file.read(READ):
            digest.update(part)
    return perf_counter_ns() - start


def pace(size: int, ns: float) -> float:
    return size * 1e3 / ns

"""The cost of a step if the store is switched off: `run.step` of a disabled store, and a decorated function outside of any run, relative to
the bare call. Batches of the three alternate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from statistics import median
from time import perf_counter_ns

import everstep
from benchmarks.options import Options
from benchmarks.table import Bar, Line
from benchmarks.timing import settle

ROUNDS = 15


def same(i: int) -> int:
    return i


decorated = everstep.step(same)


def lines(options: Options) -> Iterator[Line]:
    folder = options.folder / "disabled"
    folder.mkdir(parents=True)
    with everstep.open(str(folder / "store.db"), enabled=False) as store, store.run("off") as run:
        calls: dict[str, Callable[[int], object]] = {
            "bare": same,
            "step of a disabled store": lambda i: run.step("same", same, i),
            "decorated step in a disabled store": decorated,
        }
        times = measure(calls, options.calls)
    times |= measure({"decorated step outside of a run": decorated}, options.calls)
    if any(folder.iterdir()):
        raise RuntimeError(f"a disabled store has written {[path.name for path in folder.iterdir()]}")
    bare = median(times.pop("bare"))
    for name, taken in times.items():
        over = median(taken) - bare
        note = f"ns a call; median of {ROUNDS} alternating batches of {options.calls:,}"
        yield Line(f"{name}, over the bare call", f"+{over:,.0f} ns", f"{bare:,.0f} ns", over, Bar("<=", 1000, "ns"), note)


def measure(calls: dict[str, Callable[[int], object]], count: int) -> dict[str, list[float]]:
    settle()
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(ROUNDS):
        for name, call in calls.items():
            start = perf_counter_ns()
            for i in range(count):
                call(i)
            times[name].append((perf_counter_ns() - start) / count)
    return times

"""The number of simultaneous writers: 1,000 writers on one run, 1,000 runs at once as asyncio tasks and as threads, 20 processes on 20 runs
and on one.

Every writer adds its own items, and in the end each item must be there once: the number of missing or duplicate items is compared with the
limit. A writer that finds a run open is refused and tries again; such refusals are counted, and any other error is a failure. A turn on a
shared run opens it, adds an item and closes it; on a writer's own run, which is already open, a turn is one checkpoint.

`python -m benchmarks.limits HOW PATH NAME TURNS` is one of the processes: it prints "ready", waits for a line, and prints its results.
"""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from threading import Barrier
from time import perf_counter, perf_counter_ns
from typing import Any

import everstep
from benchmarks.options import Options
from benchmarks.process import TIMEOUT, Failed, environment
from benchmarks.table import Bar, Line
from benchmarks.timing import percentile
from everstep.errors import EverstepError, LeaseHeld

PATIENCE = 0.05


@dataclass
class Seen:
    """The results of one writer, or of all together. Times are nanoseconds."""

    times: list[int] = field(default_factory=list)
    errors: Counter[str] = field(default_factory=Counter)


def lines(options: Options) -> Iterator[Line]:
    folder = options.folder / "limits"
    folder.mkdir(parents=True)
    yield one_run_by_threads(folder / "one.db", options.writers)
    yield many_tasks(folder / "tasks.db", options.writers, options.writer_turns)
    yield many_threads(folder / "threads.db", options.writers, options.writer_turns)
    processes, turns = options.processes, options.process_turns
    yield by_processes(folder / "apart.db", processes, turns, shared=False)
    yield by_processes(folder / "shared.db", processes, max(1, turns // 10), shared=True)


def one_run_by_threads(path: Path, writers: int) -> Line:
    with everstep.open(str(path)) as store:
        begin(store, ["one"])
        seen, took = at_once(writers, lambda i, ready: take_turns(store, "one", f"w{i}", 1, ready))
        return told(f"{writers:,} writers, one run", store, ["one"], [f"w{i}-0" for i in range(writers)], seen, took)


def many_threads(path: Path, writers: int, turns: int) -> Line:
    names = [f"run-{i}" for i in range(writers)]
    with everstep.open(str(path)) as store:
        begin(store, names)
        seen, took = at_once(writers, lambda i, ready: add_own(store, names[i], turns, ready))
        return told(f"{writers:,} threads, {writers:,} runs", store, names, expected(names, turns), seen, took)


def many_tasks(path: Path, writers: int, turns: int) -> Line:
    names = [f"run-{i}" for i in range(writers)]
    with everstep.open(str(path)) as store:
        begin(store, names)
        seen, took = asyncio.run(tasks(store, names, turns))
        return told(f"{writers:,} asyncio tasks, {writers:,} runs", store, names, expected(names, turns), seen, took)


def by_processes(path: Path, count: int, turns: int, shared: bool) -> Line:
    runs = ["one"] if shared else [f"p{i}" for i in range(count)]
    with everstep.open(str(path)) as store:
        begin(store, runs)
        seen, took = children("shared" if shared else "own", path, [f"p{i}" for i in range(count)], turns)
        items = expected([f"p{i}" for i in range(count)], turns)
        return told(f"{count} processes, {'one run' if shared else f'{count} runs'}", store, runs, items, seen, took)


def begin(store: everstep.Store, names: list[str]) -> None:
    for name in names:
        with store.run(name, state={"items": []}, durability="exit"):
            pass


def expected(names: list[str], turns: int) -> list[str]:
    return [f"{name}-{turn}" for name in names for turn in range(turns)]


def told(name: str, store: everstep.Store, runs: list[str], items: list[str], seen: Seen, took: float) -> Line:
    """Return the line of a measurement: its figure is the rate of writes, its limit that nothing was lost and nothing else failed."""
    there = Counter(item for run in runs for item in store.load(run)["items"])
    wrong = sum((Counter(items) - there).values()) + sum((there - Counter(items)).values())
    others = sum(count for kind, count in seen.errors.items() if kind != LeaseHeld.__name__)
    report = store.verify("quick")
    said = f"{len(items):,} items in {took:.1f} s; p50 {median(seen.times) / 1e6:,.1f}, p99 {percentile(seen.times, 99) / 1e6:,.0f} ms"
    errors = ", ".join(f"{count:,} {kind}" for kind, count in seen.errors.most_common()) or "no errors"
    return Line(
        f"{name}: items lost or twice, errors",
        f"{len(seen.times) / took:,.0f}/s",
        "",
        float(wrong + others + len(report.problems)),
        Bar("==", 0, ""),
        f"{said}; {errors}",
        raw={"seconds": took, "errors": dict(seen.errors), "wrong": wrong},
    )


def take_turns(store: everstep.Store, run: str, who: str, turns: int, ready: Callable[[], object]) -> Seen:
    """Add items to a run that others write, too: open it, add, close it; wait if it is open."""
    seen = Seen()
    patience = random.Random(who)
    ready()
    for turn in range(turns):
        start = perf_counter_ns()
        while not _added(store, run, f"{who}-{turn}", seen):
            time.sleep(patience.uniform(0, PATIENCE))
        seen.times.append(perf_counter_ns() - start)
    return seen


def _added(store: everstep.Store, run: str, item: str, seen: Seen) -> bool:
    try:
        with store.run(run) as live:
            live.state["items"].append(item)
    except EverstepError as error:
        seen.errors[type(error).__name__] += 1
        return not isinstance(error, LeaseHeld)
    return True


def add_own(store: everstep.Store, run: str, turns: int, ready: Callable[[], object]) -> Seen:
    """Add items to a run that no other writer uses, with a checkpoint for each."""
    seen = Seen()
    with store.run(run) as live:
        ready()
        try:
            for turn in range(turns):
                start = perf_counter_ns()
                live.state["items"].append(f"{run}-{turn}")
                live.checkpoint()
                seen.times.append(perf_counter_ns() - start)
        except EverstepError as error:
            seen.errors[type(error).__name__] += 1
    return seen


async def add_own_async(live: Any, run: str, turns: int) -> Seen:
    seen = Seen()
    try:
        for turn in range(turns):
            start = perf_counter_ns()
            live.state["items"].append(f"{run}-{turn}")
            await live.checkpoint()
            seen.times.append(perf_counter_ns() - start)
    except EverstepError as error:
        seen.errors[type(error).__name__] += 1
    return seen


async def tasks(store: everstep.Store, names: list[str], turns: int) -> tuple[Seen, float]:
    async with AsyncExitStack() as stack:
        runs = [await stack.enter_async_context(store.run(name)) for name in names]
        start = perf_counter()
        all_seen = await asyncio.gather(*(add_own_async(live, name, turns) for live, name in zip(runs, names, strict=True)))
        return together(all_seen), perf_counter() - start


def at_once(count: int, work: Callable[[int, Callable[[], object]], Seen]) -> tuple[Seen, float]:
    """Start many threads together when all are ready; return the results and the seconds until the last has ended."""
    barrier = Barrier(count + 1, timeout=TIMEOUT)

    def one(i: int) -> Seen:
        try:
            return work(i, barrier.wait)
        except BaseException:
            barrier.abort()  # a thread that failed before it was ready would block the others
            raise

    with ThreadPoolExecutor(count) as pool:
        futures = [pool.submit(one, i) for i in range(count)]
        barrier.wait()
        start = perf_counter()
        return together([future.result() for future in futures]), perf_counter() - start


def together(all_seen: Iterable[Seen]) -> Seen:
    whole = Seen()
    for seen in all_seen:
        whole.times += seen.times
        whole.errors += seen.errors
    return whole


def children(how: str, path: Path, names: list[str], turns: int) -> tuple[Seen, float]:
    """Start processes together; return the results and the seconds until the last has ended."""
    with ExitStack() as stack:
        started = [stack.enter_context(_child(how, path, name, turns)) for name in names]
        stack.callback(lambda: [process.kill() for process in started])
        for process in started:
            process.stdout.readline()
        start = perf_counter()
        for process in started:
            process.stdin.write("go\n")
            process.stdin.flush()
        return together([_heard(process) for process in started]), perf_counter() - start


def _heard(process: subprocess.Popen[str]) -> Seen:
    said, complaint = process.communicate(timeout=TIMEOUT)
    if process.returncode:
        raise Failed((complaint.strip().splitlines() or [f"exit {process.returncode}"])[-1])
    found = json.loads(said)
    return Seen(found["times"], Counter(found["errors"]))


def _child(how: str, path: Path, name: str, turns: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "benchmarks.limits", how, str(path), name, str(turns)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, env=environment(), text=True, **pipes)


def main() -> None:
    how, path, name, turns = sys.argv[1:]

    def ready() -> None:
        print("ready", flush=True)
        sys.stdin.readline()

    with everstep.open(path) as store:
        seen = take_turns(store, "one", name, int(turns), ready) if how == "shared" else add_own(store, name, int(turns), ready)
    print(json.dumps({"times": seen.times, "errors": seen.errors}), flush=True)


if __name__ == "__main__":
    main()

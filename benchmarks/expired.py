"""Upkeep of a store of 100,000 finished runs, on SQLite and on PostgreSQL: verify in three depths, gc, and retention that deletes all of
them.

Each part runs in its own process, which reports its duration, its processor time, and its maximum of memory. During the retention another
process writes; its longest wait is compared with its longest one before, as in `upkeep`.

`python -m benchmarks.expired URL PART` is such a process.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import everstep
from benchmarks import server
from benchmarks.options import Options
from benchmarks.process import TIMEOUT, Failed, environment
from benchmarks.table import Bar, Line
from benchmarks.upkeep import Outside, waits
from everstep.backends.contract.core import Outcome
from everstep.errors import EverstepError
from everstep.store.store import first_commit

AT_ONCE = 2_000
MEMORY = Bar("<=", 300, "MB")
SECONDS = {"quick": 3, "records": 30, "full": 30, "gc": 30}
ALL = everstep.Retention(keep_within=0.001, completed="delete")


def lines(options: Options) -> Iterator[Line]:
    folder = options.folder / "expired"
    folder.mkdir(parents=True)
    yield from measured("SQLite", str(folder / "store.db"), options)
    with server.started(options) as home:
        yield from measured(server.version(home), home.database(), options)


def measured(name: str, url: str, options: Options) -> Iterator[Line]:
    count = options.expired_runs
    write(url, count)
    for part, most in SECONDS.items():
        found = child(url, part)
        note = f"{found['cpu']:.1f} s of processor time in the client"
        label = f"{name}: {'verify ' if part != 'gc' else ''}{part} of {count:,} finished runs"
        yield Line(label, f"{found['seconds']:.1f} s", "", found["seconds"], Bar("<=", most, "s"), note)
        yield Line("  memory at most", f"{found['memory']:.0f} MB", "", found["memory"], MEMORY, "")
    with everstep.open(url) as store, Outside(store, Path(url) if name == "SQLite" else url) as writer:  # type: ignore[arg-type]
        time.sleep(options.quiet_seconds)
        quiet = writer.times()
        found = child(url, "retention")
        busy = writer.times()
    rate = count / found["seconds"]
    note = f"{found['seconds']:.1f} s, {found['cpu']:.1f} s of processor time in the client; a writer beside it"
    yield Line(f"{name}: retention deletes {count:,} runs", f"{rate:,.0f} runs/s", "", rate, Bar(">=", 2_000, "runs/s"), note)
    yield waits(f"beside it on {name}", quiet, busy)


def write(url: str, count: int) -> None:
    """Write ended runs, each with its first record. The benchmark measures their presence, not their creation."""
    left = threading.Semaphore(AT_ONCE)
    problems: list[BaseException] = []

    def done(outcome: Outcome) -> None:
        if isinstance(outcome, BaseException):
            problems.append(outcome)
        left.release()

    with everstep.open(url) as store:
        for n in range(count):
            left.acquire()
            fields = {"workflow": "order", "tags": ("nightly",) if n % 10 == 0 else ()}
            store.backend.submit(first_commit(store, f"order-{n:07}", fields, {"workflow": "order"}, (), status="succeeded"), done)
        for _ in range(AT_ONCE):
            left.acquire()
    if problems:
        raise problems[0]


def child(url: str, part: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.expired", url, part]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=TIMEOUT, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise Failed(done.stderr.strip().splitlines()[-1])
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def main() -> None:
    url, part = sys.argv[1:]
    with everstep.open(url) as store:
        start, spent = perf_counter(), process_time()
        if part == "gc":
            problems: list[Any] = store.gc().problems
        elif part == "retention":
            problems = [problem for problem in store.cleanup(ALL).problems if problem]
        else:
            problems = store.verify(part).problems  # type: ignore[arg-type]
        took, spent = perf_counter() - start, process_time() - spent
    if problems:
        raise EverstepError(f"{part} of {url}: {problems[0]}")
    print(json.dumps({"seconds": took, "cpu": spent, "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}))


if __name__ == "__main__":
    main()

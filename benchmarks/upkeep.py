"""Prune and gc of one run of 10,000 checkpoints while another run is written, by a thread of this process and by another process.

The newest ten are kept, and twenty older ones, which get added bases. The time is that of both together; the bytes are those of the file,
before and after close. A concurrent writer takes its turns of 1 KB one after the other; its longest turn is compared with the longest of a
few quiet seconds right before.

`python -m benchmarks.upkeep PATH` is the writer of the other process: it writes until it gets a line, reports the times of its turns, and
so on; "end" ends it.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event, Thread
from time import perf_counter, perf_counter_ns, process_time
from types import TracebackType
from typing import Any

import everstep
from benchmarks import workload
from benchmarks.options import Options
from benchmarks.process import TIMEOUT, environment
from benchmarks.table import Bar, Line
from benchmarks.timing import ms, percentile, settle

LAST, TAGGED = 10, 20
PAUSE = 0.001
"""The pause between two turns of the writer: without it, the disk itself would be measured."""


def lines(options: Options) -> Iterator[Line]:
    folder = options.folder / "upkeep"
    folder.mkdir(parents=True)
    made = folder / "made.db"
    fill(made, options.pruned)
    for where, beside in (("in this process", Inside), ("in another process", Outside)):
        path = folder / f"{beside.__name__}.db"
        shutil.copy(made, path)
        yield from measured(path, where, beside, options)


def fill(path: Path, turns: int) -> None:
    bodies = [workload.encoded(item) for item in workload.messages(turns)]
    coming = workload.stack(bodies)
    with everstep.open(str(path)) as store, store.run("long", state=workload.state(), durability="exit") as run:
        for number in range(1, turns + 1):
            new = coming.pop()
            workload.turn(run.state, new)
            run.checkpoint(tags=["kept"] if number % (turns // TAGGED) == 0 else ())


def measured(path: Path, where: str, beside: Callable[..., Inside | Outside], options: Options) -> Iterator[Line]:
    before = path.stat().st_size
    with everstep.open(str(path)) as store:
        checkpoints = store.get("long").checkpoints
        settle()
        with beside(store, path) as writer:
            time.sleep(options.quiet_seconds)
            quiet = writer.times()
            start, spent = perf_counter(), process_time()
            plan = store.prune(everstep.Retention(keep_last=LAST, keep_tagged="kept"), run="long")
            pruned = perf_counter() - start
            store.gc()
            took, spent = perf_counter() - start, process_time() - spent
            busy = writer.times()
        whole = store.verify("full").ok
    after = path.stat().st_size
    if not whole or not LAST + TAGGED - 1 <= plan.kept <= LAST + TAGGED:
        raise RuntimeError(f"{plan.kept} checkpoints were kept, and the store is {'' if whole else 'not '}whole")
    note = f"{plan.kept} stay; {before / 1e6:.1f} > {after / 1e6:.1f} MB; prune {pruned:.1f} s, gc {took - pruned:.1f} s, {spent:.1f} s of processor time"
    yield Line(f"prune + gc of {checkpoints:,} checkpoints, a writer {where}", f"{took:.2f} s", "", took, Bar("<=", 10, "s"), note)
    yield waits(where, quiet, busy)


def waits(where: str, quiet: list[int], busy: list[int]) -> Line:
    longest, alone = max(busy) / 1e6, max(quiet) / 1e6
    note = (
        f"{len(busy):,} turns, median {ms(busy):.2f}, p99 {percentile(busy, 99) / 1e6:.1f} ms; "
        f"quiet: {len(quiet):,} turns, median {ms(quiet):.2f}, p99 {percentile(quiet, 99) / 1e6:.1f} ms"
    )
    name = f"longest wait of the writer {where}, above its longest quiet one"
    return Line(name, f"{longest:.1f} ms", f"{alone:.1f} ms", max(0.0, longest - alone), Bar("<=", 50, "ms"), note)


class Writing:
    """Takes turns on its own run until a request to stop; returns the times since the last request."""

    def __init__(self, store: everstep.Store) -> None:
        self._store = store
        self._times: list[int] = []
        self._stopped = Event()
        self._problem: BaseException | None = None
        self._thread = Thread(target=self._write)
        self._thread.start()

    def _write(self) -> None:
        bodies = [workload.encoded(item) for item in workload.messages(1000)]
        try:
            with self._store.run("live", state=workload.state()) as run:
                while not self._stopped.is_set():
                    coming = workload.stack(bodies)
                    run.state["messages"].clear()
                    while coming and not self._stopped.wait(PAUSE):
                        self._times.append(_turn(run, coming.pop()))
        except BaseException as problem:  # noqa: BLE001 - raised again in the thread that reads the times
            self._problem = problem

    def times(self) -> list[int]:
        if self._problem is not None:
            raise self._problem
        found, self._times = self._times, []
        return found

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()
        self.times()


def _turn(run: Any, new: workload.Message) -> int:
    start = perf_counter_ns()
    workload.turn(run.state, new)
    run.checkpoint()
    return perf_counter_ns() - start


class Inside:
    """The writer as a thread of the process that prunes."""

    def __init__(self, store: everstep.Store, path: Path) -> None:
        self._writing = Writing(store)

    def times(self) -> list[int]:
        return self._writing.times()

    def __enter__(self) -> Inside:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._writing.stop()


class Outside:
    """The writer as a process of its own."""

    def __init__(self, store: everstep.Store, path: Path) -> None:
        command = [sys.executable, "-m", "benchmarks.upkeep", str(path)]
        self._process = subprocess.Popen(command, env=environment(), text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._hear()  # "ready"

    def _hear(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the writer ended with {self._process.wait(TIMEOUT)}")
        return json.loads(line)

    def _tell(self, word: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{word}\n")
        self._process.stdin.flush()

    def times(self) -> list[int]:
        self._tell("times")
        found: list[int] = self._hear()
        return found

    def __enter__(self) -> Outside:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._tell("end")
        self._process.wait(TIMEOUT)


def main() -> None:
    with everstep.open(sys.argv[1]) as store:
        writing = Writing(store)
        print('"ready"', flush=True)
        for line in sys.stdin:
            if line.strip() == "end":
                break
            print(json.dumps(writing.times()), flush=True)
        writing.stop()


if __name__ == "__main__":
    main()

"""Queues with workers in their own processes: the time from `enqueue` to the first line of the workflow, and from the death of a worker to
the first line in another one. On SQLite and on PostgreSQL, with default settings.

The worker is idle when a run is enqueued, for a varying time: a worker that polls at fixed times would otherwise always be met at the same
moment. A worker that dies is killed with kill -9 in the middle of a workflow.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random
from select import select
from statistics import median
from typing import Any

import everstep
from benchmarks import process, server
from benchmarks.hand import greet, linger
from benchmarks.options import Options
from benchmarks.table import Bar, Line
from benchmarks.table import ms as show
from benchmarks.timing import percentile

PATIENCE = 30.0
START_MS, TAKE_OVER_SECONDS = 20, 15


class Hand:
    """A worker process, and its messages."""

    def __init__(self, url: str) -> None:
        command = [sys.executable, "-m", "benchmarks.hand", url]
        self._process = subprocess.Popen(command, env=process.environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, bufsize=0)
        self.hear("ready")

    def hear(self, what: str) -> dict[str, Any]:
        """Return the next line, which must be of this kind."""
        if not select([self], [], [], PATIENCE)[0]:
            raise process.Failed(f"a worker did not say {what!r} within {PATIENCE:.0f} s")
        said = self.line()
        if said["what"] != what:
            raise process.Failed(f"a worker said {said} instead of {what!r}")
        return said

    def line(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        text = self._process.stdout.readline()
        if not text:
            raise process.Failed("a worker has ended on its own")
        return dict(json.loads(text))

    def fileno(self) -> int:
        assert self._process.stdout is not None
        return self._process.stdout.fileno()

    def kill(self) -> int:
        """Kill it with kill -9; returns the time."""
        at = time.monotonic_ns()
        self.close()
        return at

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()


def lines(options: Options) -> Iterator[Line]:
    folder = options.folder / "workers"
    folder.mkdir(parents=True)
    with server.started(options) as home:
        for label, url in (("SQLite", str(folder / "store.db")), ("PostgreSQL", home.database())):
            with everstep.open(url) as store:
                yield latency(label, store, url, options.latencies)
                yield take_over(label, store, url, options.take_overs, folder / label)


def latency(label: str, store: everstep.Store, url: str, count: int) -> Line:
    rng, whole, after = Random(5), [], []
    with hand(url) as worker:
        for i in range(count):
            time.sleep(0.02 + rng.random() * 0.05)
            start = time.monotonic_ns()
            placed = store.enqueue(greet, i)
            returned = time.monotonic_ns()
            begun = worker.hear("begun")["at"]
            whole.append(begun - start)
            after.append(begun - returned)
            placed.wait(PATIENCE).unwrap()
    took = median(whole) / 1e6
    note = (
        f"median of {count}, the commit of enqueue included ({median(after) / 1e6:.1f} ms after it returned); "
        f"90 % within {percentile(whole, 90) / 1e6:.1f}, slowest {max(whole) / 1e6:.1f} ms"
    )
    return Line(f"{label}: from enqueue to start, one idle worker", show(took), "", took, Bar("<=", START_MS, "ms"), note)


def take_over(label: str, store: everstep.Store, url: str, count: int, folder: Path) -> Line:
    folder.mkdir()
    with ExitStack() as stack:
        hands = [stack.enter_context(hand(url)) for _ in range(2)]
        took = []
        for i in range(count):
            took.append(_one_take_over(store, hands, folder, i))
            hands.append(stack.enter_context(hand(url)))
    slowest = max(took)
    note = f"slowest of {count}; median {median(took):.2f} s; kill -9 of one of two workers on this machine"
    return Line(
        f"{label}: from a worker's death to the start in another", f"{slowest:.2f} s", "", slowest, Bar("<=", TAKE_OVER_SECONDS, "s"), note
    )


def _one_take_over(store: everstep.Store, hands: list[Hand], folder: Path, number: int) -> float:
    """Measure one take-over in seconds. Removes the worker that it kills."""
    sign = folder / str(number)
    placed = store.enqueue(linger, number, str(sign))
    first, _ = _begun(hands)
    time.sleep(0.1 * (1 + number % 5))
    hands.remove(first)
    died = first.kill()
    _, began = _begun(hands)
    sign.touch()
    placed.wait(PATIENCE).unwrap()
    return float(began - died) / 1e9


def _begun(hands: list[Hand]) -> tuple[Hand, int]:
    """Return which of some workers begins a workflow next, and when."""
    who = next(iter(select(hands, [], [], PATIENCE)[0]), None)
    if who is None:
        raise process.Failed(f"no worker began a workflow within {PATIENCE:.0f} s")
    return who, who.hear("begun")["at"]


@contextmanager
def hand(url: str) -> Iterator[Hand]:
    made = Hand(url)
    try:
        yield made
    finally:
        made.close()

"""The child process that finds how much one program gets done: `python -m benchmarks.rate NAME URL SECONDS SETTINGS`.

It runs workflows of 1 KB steps on so many threads ("threads:16") or asyncio tasks ("tasks:100") at once: first workflows without end, whose steps
are counted, then workflows of one step, which are counted themselves. Prints {"rates": [{setting, steps, runs}], "trips": {runs, steps}} as
JSON: how many a second and the milliseconds of processor time of this process for each; and how many round trips to the server a one-step
workflow makes, and each further step. A missing package is printed as {"missing": ...}.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from importlib import import_module
from itertools import count
from time import perf_counter, process_time
from typing import Any, cast

from benchmarks import workload
from benchmarks.peers import Program, RatePeer
from benchmarks.timing import settle
from benchmarks.wire import Wire

LENGTHS = {"steps": 1_000_000, "runs": 1}
WATCHED = 10
PATIENCE = 60.0
PAUSE = 0.01
ITEMS = workload.messages(50)

Rate = tuple[float, float]


class Tally:
    """The work done so far, by workflow. A program asks after each step whether to continue, so that all end soon after the window."""

    def __init__(self, name: str) -> None:
        self.going = True
        self.done = {"steps": 0, "runs": 0}
        self.begun: set[str] = set()
        self.errors: list[BaseException] = []
        self._lock = threading.Lock()
        self._ids = (f"{name}-{i}" for i in count())

    def id(self) -> str:
        with self._lock:
            return next(self._ids)

    def step(self, name: str) -> bool:
        with self._lock:
            self.done["steps"] += 1
            self.begun.add(name)
        return self.going

    def run(self) -> None:
        with self._lock:
            self.done["runs"] += 1


class Window:
    """Opens when each worker has a running workflow; closes after its duration, if it has seen two of each worker."""

    def __init__(self, tally: Tally, what: str, width: int, seconds: float) -> None:
        self._tally = tally
        self._what = what
        self._width = width
        self._seconds = seconds
        self._limit = perf_counter() + PATIENCE
        self._opened: tuple[float, float, int] | None = None

    def look(self) -> Rate | None:
        """Return the rate per second, and the milliseconds of processor time of each, if it has closed."""
        now, done = perf_counter(), self._tally.done[self._what]
        if self._tally.errors:
            raise self._tally.errors[0]
        if now > self._limit:
            raise TimeoutError(f"only {done} {self._what} within {PATIENCE:.0f} s")
        if self._opened is None:
            self._opened = (now, process_time(), done) if len(self._tally.begun) >= self._width else None
            return None
        start, spent, first = self._opened
        if now - start < self._seconds or done - first < 2 * self._width:
            return None
        self._tally.going = False
        return (done - first) / (now - start), (process_time() - spent) / (done - first) * 1e3


def in_threads(program: Program, width: int, what: str, seconds: float, tally: Tally) -> Rate:
    def work() -> None:
        try:
            while tally.going:
                program.talk(tally.id(), LENGTHS[what], tally)
                tally.run()
        except BaseException as error:  # noqa: BLE001 - raised in the thread that waits
            tally.errors.append(error)

    threads = [threading.Thread(target=work, daemon=True) for _ in range(width)]
    for thread in threads:
        thread.start()
    window = Window(tally, what, width, seconds)
    while (rate := window.look()) is None:
        time.sleep(PAUSE)
    for thread in threads:
        thread.join()
    return rate


async def in_tasks(program: Program, width: int, what: str, seconds: float, tally: Tally) -> Rate:
    async def work() -> None:
        while tally.going:
            await program.talk_async(tally.id(), LENGTHS[what], tally)
            tally.run()

    async def watch() -> Rate:
        window = Window(tally, what, width, seconds)
        while (rate := window.look()) is None:
            await asyncio.sleep(PAUSE)
        return rate

    async with asyncio.TaskGroup() as group:
        for _ in range(width):
            group.create_task(work())
        watching = group.create_task(watch())
    return watching.result()


def phases(peer: RatePeer, url: str, seconds: float, settings: list[str]) -> Iterator[dict[str, Any]]:
    for setting in settings:
        kind, _, number = setting.partition(":")
        width = int(number)
        found = {}
        for what in LENGTHS:
            tally = Tally(f"{kind}-{width}-{what}")
            if kind == "threads":
                with peer.opened(url, width) as program:
                    found[what] = in_threads(program, width, what, seconds, tally)
            else:
                found[what] = asyncio.run(in_a_loop(peer, url, width, what, seconds, tally))
        yield {"setting": setting, **found}


async def in_a_loop(peer: RatePeer, url: str, width: int, what: str, seconds: float, tally: Tally) -> Rate:
    async with peer.opened_async(url, width) as program:
        return await in_tasks(program, width, what, seconds, tally)


def trips(peer: RatePeer, url: str) -> dict[str, float]:
    """Count round trips on the wire, one workflow after the other, including those that a program makes by itself."""
    found = {}
    with Wire(url) as wire, peer.opened(wire.url, 1) as program:
        for length in (1, 1 + WATCHED):
            tally = Tally(f"trips-{length}")
            program.talk(tally.id(), length, tally)
            before = wire.trips
            for _ in range(WATCHED):
                program.talk(tally.id(), length, tally)
            found[length] = (wire.trips - before) / WATCHED
    return {"runs": found[1], "steps": (found[1 + WATCHED] - found[1]) / WATCHED}


def main() -> None:
    name, url, seconds, settings = sys.argv[1:]
    try:
        peer = cast(RatePeer, import_module(f"benchmarks.peers.{name}"))
    except ImportError as error:
        if name.startswith("everstep"):
            raise
        print(json.dumps({"missing": error.name or str(error)}))
        return
    settle()
    said = {"trips": trips(peer, url), "rates": list(phases(peer, url, float(seconds), settings.split(",")))}
    print(json.dumps(said), flush=True)
    os._exit(0)  # threads that some peers leave behind would keep the process from ending


if __name__ == "__main__":
    main()

"""Many writers at once, on one run and on many: each item is there once in the end, and the only error is that a run is open.

`python -m benchmarks --only limits` has the figures, with more of everything.
"""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path

import pytest
import warm

import everstep
from everstep.errors import LeaseHeld


def add(store: everstep.Store, run: str, item: str) -> int:
    """Add an item to a run that others write, too; how often it was open."""
    refused = 0
    chance = random.Random(item)
    while True:
        try:
            with store.run(run, state={"items": []}) as live:
                live.state["items"].append(item)
            return refused
        except LeaseHeld:
            refused += 1
            time.sleep(chance.uniform(0, 0.02))


def all_at_once(count: int, work: Callable[[int], object]) -> None:
    """Threads that begin together; raises what any of them raised."""
    barrier = threading.Barrier(count)
    problems: list[BaseException] = []

    def one(i: int) -> None:
        try:
            barrier.wait(60)
            work(i)
        except BaseException as problem:
            problems.append(problem)

    threads = [threading.Thread(target=one, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []


def test_a_hundred_writers_of_one_run_take_turns_and_nothing_is_lost(store: everstep.Store) -> None:
    all_at_once(100, lambda i: add(store, "one", f"w{i}"))
    assert sorted(store.load("one")["items"]) == sorted(f"w{i}" for i in range(100))
    assert store.verify("full").ok


def test_a_hundred_writers_that_each_have_the_store_open_for_themselves_take_turns(tmp_path: Path) -> None:
    with everstep.open(tmp_path / "s.db") as first, ExitStack() as stack:
        stores = [stack.enter_context(everstep.open(tmp_path / "s.db")) for _ in range(20)]
        all_at_once(100, lambda i: add(stores[i % 20], "one", f"w{i}"))
        assert sorted(first.load("one")["items"]) == sorted(f"w{i}" for i in range(100))
        assert first.verify("full").ok


def test_two_hundred_runs_are_open_and_written_at_once_by_threads(store: everstep.Store) -> None:
    opened = threading.Barrier(200)

    def work(i: int) -> None:
        with store.run(f"run-{i}", state={"items": []}) as live:
            opened.wait(60)
            for turn in range(3):
                live.state["items"].append(f"{i}-{turn}")
                live.checkpoint()

    all_at_once(200, work)
    assert [store.load(f"run-{i}")["items"] for i in range(200)] == [[f"{i}-{turn}" for turn in range(3)] for i in range(200)]
    assert store.verify("full").ok


def test_two_hundred_runs_are_open_and_written_at_once_by_tasks(store: everstep.Store) -> None:
    async def turns(live: everstep.Run, i: int) -> None:
        for turn in range(3):
            live.state["items"].append(f"{i}-{turn}")
            await live.checkpoint()  # type: ignore[misc]

    async def main() -> None:
        async with AsyncExitStack() as stack:
            runs = [await stack.enter_async_context(store.run(f"run-{i}", state={"items": []})) for i in range(200)]  # type: ignore[arg-type]
            await asyncio.gather(*(turns(live, i) for i, live in enumerate(runs)))

    asyncio.run(main())
    assert [store.load(f"run-{i}")["items"] for i in range(200)] == [[f"{i}-{turn}" for turn in range(3)] for i in range(200)]
    assert store.verify("full").ok


CHILD = """
import random, sys, time
import everstep
from everstep.errors import LeaseHeld
path, who, run, turns = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
chance, refused = random.Random(who), 0
with everstep.open(path) as store:
    print("ready", flush=True); sys.stdin.readline()
    for turn in range(turns):
        while True:
            try:
                with store.run(run, state={"items": []}) as live:
                    live.state["items"].append(f"{who}-{turn}")
                break
            except LeaseHeld:
                refused += 1
                time.sleep(chance.uniform(0, 0.02))
print(refused, flush=True)
"""


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Callable[[int, Callable[[int], str]], list[int]]]:
    """Processes that each add ten items to the run that they are given; how often each was refused."""
    started: list[subprocess.Popen[str]] = []
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(Path(everstep.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])}

    def start(count: int, run_of: Callable[[int], str]) -> list[int]:
        for i in range(count):
            command = [sys.executable, "-c", CHILD, str(tmp_path / "s.db"), f"p{i}", run_of(i), "10"]
            started.append(warm.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True, env=environment))
        for process in started:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in started:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        said = [process.communicate(timeout=120)[0] for process in started]
        assert [process.returncode for process in started] == [0] * count
        return [int(one) for one in said]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_eight_processes_write_one_run_in_turns(processes: Callable[..., list[int]], tmp_path: Path) -> None:
    refused = processes(8, lambda i: "one")
    assert sum(refused) > 0  # they really met
    with everstep.open(tmp_path / "s.db") as store:
        items = store.load("one")["items"]
        assert sorted(items) == sorted(f"p{i}-{turn}" for i in range(8) for turn in range(10))
        assert [[item for item in items if item.startswith(f"p{i}-")] for i in range(8)] == [
            [f"p{i}-{t}" for t in range(10)] for i in range(8)
        ]
        assert store.verify("full").ok


def test_eight_processes_write_eight_runs_and_nobody_is_refused(processes: Callable[..., list[int]], tmp_path: Path) -> None:
    assert processes(8, lambda i: f"run-{i}") == [0] * 8
    with everstep.open(tmp_path / "s.db") as store:
        assert [store.load(f"run-{i}")["items"] for i in range(8)] == [[f"p{i}-{turn}" for turn in range(10)] for i in range(8)]
        assert store.verify("full").ok

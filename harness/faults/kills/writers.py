"""Two writers on one run: no update is lost, and the history stays one line.

    updates     two processes that each add to one counter, again and again, as fast as they get the run
    races       a process whose lease is no longer renewed keeps writing while another one takes over the run

The canary is a backend that neither excludes a second writer nor fences, like a plain saver. `takeovers` covers workers that are stopped
and wake up. Relies on `actor` for processes; the store is in SQLite.
"""

from __future__ import annotations

import random
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import everstep
from everstep.api import Store
from everstep.backends.registry import open_backend
from everstep.errors import EverstepError, LeaseHeld
from harness.faults.actor import Actor
from harness.faults.broken_backends import Unleased
from harness.faults.count import Count, Progress

LEASE = 0.03


def run(folder: Path, *, deep: bool, seed: int = 0, progress: Progress = None) -> Count:
    """200 updates and 10 races; deep: 1,000 and 200."""
    count = Count("two processes write one run")
    with count.timed():
        _updates(folder / "updates.db", count, 500 if deep else 100)
        _races(folder / "races.db", count, 200 if deep else 10, progress)
        count.tell_canary("a backend without leases and fencing", canary(folder))
    return count


def canary(folder: Path) -> bool:
    """Whether lost updates are detected if nothing prevents them."""
    broken = Count("canary")
    _updates(folder / "canary.db", broken, 50, unleased=True)
    return broken.lost > 0


def add(pipe: Connection, path: Path, times: int, unleased: bool) -> None:
    backend: Any = open_backend(path)
    with Store(Unleased(backend) if unleased else backend) as store:
        pipe.send("ready")
        pipe.recv()
        for _ in range(times):
            _add_one(store)
        pipe.send(times)


def _add_one(store: Store) -> None:
    while True:
        try:
            with store.run("counter", state={"n": 0}) as run:
                run.state["n"] += 1
                run.checkpoint()
            return
        except LeaseHeld:
            time.sleep(random.random() * 0.002)  # noqa: S311


def _updates(path: Path, count: Count, times: int, unleased: bool = False) -> None:
    everstep.open(path).close()
    with Actor(add, path, times, unleased) as one, Actor(add, path, times, unleased) as other:
        for actor in (one, other):
            actor.hear()
        for actor in (one, other):
            actor.tell("go")
        done = one.hear() + other.hear()
    with everstep.open(path) as store:
        found, checkpoints = store.load("counter")["n"], store.get("counter").checkpoints
        numbers = [store.load("counter", at=n)["n"] for n in range(1, checkpoints + 1)]
    count.tried += done
    count.held += min(found, done)
    count.lost += max(0, done - found)
    if (found, list(dict.fromkeys(numbers))) != (done, list(range(1, done + 1))):
        count.note(f"{done} updates by two processes were acknowledged, the counter is {found} after {checkpoints} checkpoints")


def write_on(pipe: Connection, path: Path, run: str) -> None:
    """Write until another process has the run; send the newest number that was acknowledged."""
    with everstep.open(path, lease_seconds=LEASE) as store:
        store.keeper.close()
        handle = store.run(run, state={"n": 0}).__enter__()
        handle.checkpoint()
        pipe.send("open")
        acknowledged = 1
        try:
            while True:
                handle.state["n"] += 1
                acknowledged = handle.checkpoint().number
        except EverstepError as error:
            pipe.send((acknowledged, type(error).__name__))
        pipe.recv()


def _races(path: Path, count: Count, times: int, progress: Progress) -> None:
    with everstep.open(path) as store:
        for i in range(times):
            with Actor(write_on, path, f"r{i}") as first:
                first.hear()
                _race(store, f"r{i}", first, count)
            if progress is not None:
                progress(count)


def _race(store: Store, name: str, first: Actor, count: Count) -> None:
    while True:
        try:
            handle = store.run(name).__enter__()
            break
        except LeaseHeld:
            time.sleep(LEASE / 4)
    taken_at, head = handle.state["n"], handle.number
    for _ in range(5):
        handle.state["n"] += 1000
        handle.checkpoint()
    acknowledged, said = first.hear()
    handle.__exit__(None, None, None)
    count.tried += 1
    epochs = [r.epoch for r in store.backend.records(name, 1, 10**6)]
    good = said == "LostLease" and acknowledged <= head <= acknowledged + 1 and epochs == sorted(epochs)
    states = [store.load(name, at=n)["n"] for n in range(1, store.get(name).checkpoints + 1)]
    expected = [*range(head), *(taken_at + 1000 * (k + 1) for k in range(5))]
    count.lost += acknowledged > head
    count.wrong += states[: len(expected)] != expected or epochs != sorted(epochs)
    if good and states[: len(expected)] == expected:
        count.held += 1
    else:
        count.note(f"race {name}: acknowledged up to {acknowledged}, taken over at {head}; {said}; epochs {sorted(set(epochs))}; {states}")

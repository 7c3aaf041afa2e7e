"""A single allocation that fails: the nth one that Python makes inside a save, a step, a load, a fork or an open.

What must be true is what `memory` says: the call works or raises, nothing acknowledged is lost, and the same process goes on, or says
that the store is closed. Needs an interpreter that has `_testcapi`; where it has not, nothing is tried and the count says so. The canary
is a program that says "saved" before it saves.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from importlib.util import find_spec
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import everstep
from everstep.testing.faults.actor import Actor, ActorDied
from everstep.testing.faults.count import Count, Progress
from everstep.testing.faults.suffering import ENCODER_ENDS, Acts, Told, faults_of, prepare

ACTS = ("save", "step", "load", "fork", "open", "leave")
FIRST = 64


def available() -> bool:
    return find_spec("_testcapi") is not None


def run(folder: Path, *, deep: bool, seed: int = 0, progress: Progress = None) -> Count:
    """8 allocations of each act; deep: 250."""
    count = Count("an allocation fails")
    if not available():
        count.harness += " (not tried: this interpreter has no _testcapi)"
        return count
    ended = 0
    with count.timed():
        known = prepare(folder / "prepared.db")
        rng = random.Random(seed)  # noqa: S311
        for act in ACTS:
            last = _last(folder, act, known)
            for n in sorted(rng.sample(range(last), min(last, 250 if deep else 8))):
                ended += _one(folder, act, n, known, count)
                if progress is not None:
                    progress(count)
        count.tell_canary("said to be saved before it was", canary(folder))
    count.harness += f" ({ended} times it ended the process in the encoder)"
    return count


def canary(folder: Path) -> bool:
    """Whether it shows when what is said to be saved is not."""
    broken = Count("canary")
    known = prepare(folder / "prepared.db")
    for n in range(0, 200, 25):
        _one(folder, "early", n, known, broken)
        if broken.lost:
            return True
    return False


def _last(folder: Path, act: str, known: dict[str, list[int]]) -> int:
    """How many allocations an act makes, to a power of two: beyond it nothing fails."""
    n = FIRST
    while n < 1 << 20:
        probe = Count("probe")
        _one(folder, act, n, known, probe)
        if not probe.tried:
            return n
        n *= 2
    return n


def _one(folder: Path, act: str, n: int, known: dict[str, list[int]], count: Count) -> bool:
    """One process in which one allocation fails; True if it was ended by that."""
    told: list[Told] = []
    ended = False
    path = folder / "work" / "s.db"
    path.parent.mkdir()
    shutil.copy(folder / "prepared.db", path)
    with Actor(suffer, path, act, n) as actor:
        try:
            while (said := actor.hear()) is not None:
                told.append(said)
        except ActorDied as error:
            ended = actor.ended() in ENCODER_ENDS
            if not ended:
                count.note(f"allocation {n} of {act}: {error} after {told[-1] if told else 'nothing'}")
    fired = ended or any("error" in said for said in told)
    faults = faults_of(path, told, known, count)
    count.tried += fired
    count.held += fired and not faults
    for fault in faults:
        count.note(f"allocation {n} of {act}: {fault}")
    shutil.rmtree(path.parent)
    return ended


def suffer(pipe: Connection, path: Path, act: str, n: int) -> None:
    """Do one thing in which the nth allocation fails, then go on as if nothing had been."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    os.environ["RUST_BACKTRACE"] = "0"
    store = everstep.open(path)
    acts = Acts(store, pipe, act == "early", _failing(n))
    todo: dict[str, Callable[[], None]] = {
        "save": lambda: acts.save(1),
        "early": lambda: acts.save(1),
        "step": lambda: acts.step(2),
        "load": lambda: acts.load(1),
        "fork": lambda: acts.fork(1),
        "open": lambda: acts.open(path),
        "leave": acts.leave,
    }
    todo[act]()
    acts.around = None
    if act != "leave":
        acts.save(3)
        acts.leave()
    acts.close()
    pipe.send(None)


def _failing(n: int) -> Any:
    import _testcapi  # type: ignore[import-not-found, unused-ignore]

    def around(act: Callable[[], Told]) -> Told:
        _testcapi.set_nomemory(n, n + 1)
        try:
            return act()
        finally:
            _testcapi.remove_mem_hooks()

    return around

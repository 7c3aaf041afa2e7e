"""A single allocation that fails: the nth one that Python makes inside a save, a step, a load, a fork, an open or an end. A part of `memory`.

Nobody is ready for that everywhere: the interpreter and C extensions answer with odd errors, or end the process. What is judged is the
store: nothing acknowledged is lost, it verifies, and the run goes on. Needs an interpreter that has `_testcapi`.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from importlib.util import find_spec
from multiprocessing.connection import Connection
from pathlib import Path

import everstep
from everstep.testing.faults.actor import Actor, ActorDied
from everstep.testing.faults.count import Count, Progress
from everstep.testing.faults.suffering import Acts, Around, Told, settle

ACTS = ("save", "step", "load", "fork", "open", "leave")
FIRST, MOST = 512, 1 << 16
PATIENCE = 30.0


def available() -> bool:
    return find_spec("_testcapi") is not None


def sweep(folder: Path, times: int, seed: int, known: dict[str, list[int]], count: Count, progress: Progress) -> None:
    """So many allocations of each act, chosen by chance."""
    rng = random.Random(seed)  # noqa: S311
    for act in ACTS:
        last = _last(folder, act, known)
        for n in sorted(rng.sample(range(last), min(last, times))):
            _one(folder, act, n, known, count)
            if progress is not None:
                progress(count)


def _last(folder: Path, act: str, known: dict[str, list[int]]) -> int:
    """How many allocations an act makes, to a power of two: beyond it nothing fails."""
    n = FIRST
    while n < MOST:
        probe = Count("probe")
        _one(folder, act, n, known, probe)
        if not probe.tried:
            return n
        n *= 2
    return n


def _one(folder: Path, act: str, n: int, known: dict[str, list[int]], count: Count) -> None:
    """One process in which one allocation fails."""
    told: list[Told] = []
    ended = False
    path = folder / "work" / "s.db"
    path.parent.mkdir()
    shutil.copy(folder / "prepared.db", path)
    with Actor(suffer, path, act, n) as actor:
        try:
            while (said := actor.hear(PATIENCE)) is not None:
                told.append({**said, "strange": False})
        except ActorDied:
            ended = True
        except TimeoutError as error:
            count.note(f"allocation {n} of {act}: {error} after {told[-1:]}")
    settle(f"allocation {n} of {act}", path, told, ended, known, count)


def suffer(pipe: Connection, path: Path, act: str, n: int) -> None:
    """Do one thing in which the nth allocation fails, then go on as if nothing had been."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    os.environ["RUST_BACKTRACE"] = "0"
    acts = Acts(everstep.open(path), pipe, around=_failing(n))
    todo: dict[str, Callable[[], None]] = {
        "save": lambda: acts.save(1),
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


def _failing(n: int) -> Around:
    import _testcapi  # type: ignore[import-not-found, unused-ignore]

    def around(act: Callable[[], Told]) -> Told:
        _testcapi.set_nomemory(n, n + 1)
        try:
            return act()
        finally:
            _testcapi.remove_mem_hooks()

    return around

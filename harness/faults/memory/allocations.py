"""Allocations that fail, a single one or some after each other, inside a save, a step, a load, a fork and what else a program does.

A part of `memory`. The allocations are those of C: of the interpreter, SQLite, the encoder and the compressor. Nobody is ready for that
everywhere: the interpreter and C extensions answer with odd errors, or end the process. What is judged is the store: nothing acknowledged
is lost, it verifies, the run goes on, and nobody waits for ever. Needs a C compiler, for `starve.c`.
"""

from __future__ import annotations

import ctypes
import os
import random
import shutil
from collections.abc import Callable
from dataclasses import asdict
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import everstep
from harness.faults.actor import Actor, ActorDied
from harness.faults.count import Count, Progress
from harness.faults.kills.shim import apart, build, why_not
from harness.faults.memory.low_memory import Acts, Told, settle

ACTS = ("save", "later save", "deferred saves", "step", "load", "verify", "fork", "open", "leave", "close")
AT_ONCE = (1, 1, 3, 30, 300)
LATER = 9  # saves: the WAL is cared for by a thread then
NEVER = 1 << 40
PATIENCE = 30.0
SOURCE = Path(__file__).with_name("starve.c")


def available() -> bool:
    return why_not() is None


def sweep(folder: Path, times: int, seed: int, known: dict[str, list[int]], count: Count, progress: Progress) -> None:
    """So many allocations of each act, chosen by chance, in processes that have the library."""
    asked = {"folder": str(folder), "times": times, "seed": seed, "known": known}

    def grown(found: dict[str, Any]) -> Count:
        return Count(**{**asdict(count), "tried": count.tried + found["tried"]})

    tell = None if progress is None else lambda found: progress(grown(found))
    found = Count(**apart(__name__, asked, tell, LD_PRELOAD=str(build(SOURCE)), PYTHONMALLOC="malloc"))
    count.tried, count.held = count.tried + found.tried, count.held + found.held
    count.lost, count.wrong = count.lost + found.lost, count.wrong + found.wrong
    for sentence in found.notes:
        count.note(sentence)


def served(asked: dict[str, Any], tell: Callable[[Any], None]) -> dict[str, Any]:
    """In a process that has the library, and whose processes have it, too."""
    count, rng = Count("allocations"), random.Random(asked["seed"])  # noqa: S311
    folder, known = Path(asked["folder"]), asked["known"]
    for act in ACTS:
        most = _one(folder, act, NEVER, 1, False, known, Count("probe"))
        if not most:
            count.note(f"the allocations of {act} could not be counted")
        for first in sorted(rng.sample(range(most), min(most, asked["times"]))):
            _one(folder, act, first, rng.choice(AT_ONCE), rng.random() < 0.3, known, count)
            tell({"tried": count.tried})
    return asdict(count)


def _one(folder: Path, act: str, first: int, times: int, everyone: bool, known: dict[str, list[int]], count: Count) -> int:
    """One process in which allocations fail; how many it made in the act."""
    where = f"{times} allocations from {first} of {act} on{' in all threads' if everyone else ''}"
    told: list[Told] = []
    ended, made = False, 0
    path = folder / "work" / "s.db"
    path.parent.mkdir()
    shutil.copy(folder / "prepared.db", path)
    with Actor(suffer, path, act, first, times, everyone) as actor:
        try:
            while (said := actor.hear(PATIENCE)) is not None:
                made = max(made, said.get("made", 0))
                told.append({**said, "strange": False})
        except ActorDied:
            ended = True
        except TimeoutError as error:
            count.note(f"{where}: {error} after {told[-1:]}")
    settle(where, path, told, ended, known, count)
    return made


def suffer(pipe: Connection, path: Path, act: str, first: int, times: int, everyone: bool) -> None:
    """Do one thing in which allocations fail, then go on as if nothing had been."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    os.environ["RUST_BACKTRACE"] = "0"
    acts = Acts(everstep.open(path), pipe)
    todo: dict[str, Callable[[], None]] = {
        "save": lambda: acts.save(1),
        "later save": lambda: acts.save(1),
        "deferred saves": lambda: acts.defer(1),
        "step": lambda: acts.step(2),
        "load": lambda: acts.load(1),
        "verify": acts.verify,
        "fork": lambda: acts.fork(1),
        "open": lambda: acts.open(path),
        "leave": acts.leave,
        "close": acts.close,
    }
    for turn in range(LATER if act == "later save" else 0):
        acts.save(turn)
    if act == "close":
        acts.leave()
    made: list[int] = []
    acts.around = _starving(first, times, everyone, made)
    todo[act]()
    acts.around = None
    if act not in ("leave", "close"):
        acts.save(3)
        acts.leave()
    acts.close()
    pipe.send({"what": "count", "made": made[0]})
    pipe.send(None)


def _starving(first: int, times: int, everyone: bool, made: list[int]) -> Callable[[Callable[[], Told]], Told]:
    library = ctypes.CDLL(None)
    starve, feed = library.everstep_starve, library.everstep_feed
    starve.argtypes, feed.restype = [ctypes.c_long, ctypes.c_long, ctypes.c_int], ctypes.c_long

    def around(act: Callable[[], Told]) -> Told:
        starve(first, times, everyone)
        try:
            return act()
        finally:
            made.append(feed())

    return around

"""Too little memory: processes that may use only a few megabytes more than they have save, record steps and fork, or load and verify.

The cap (RLIMIT_AS) is set at many values, so that a different allocation fails each time. Each call works or raises. Acknowledged saves
are unchanged afterwards, and the same process continues when there is memory again, or reports that the store is closed or that its handle writes
no more. The C encoder ends the process if it gets no memory for its output; such ends are counted, and checked like any kill. CPython
itself hangs if it gets no memory for an integer while it searches for an exception handler (it tries again until there is some): a process
that is silent for a while gets memory from outside, and must continue then. The canary is a program that says "saved" before it saves.
Relies on `actor` for processes.
"""

from __future__ import annotations

import gc
import os
import random
import resource
import shutil
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import everstep
from harness.faults.actor import Actor, ActorDied
from harness.faults.count import Count, Progress
from harness.faults.memory.low_memory import ENCODER_ENDS, KB, Acts, Told, prepare, settle

MOST_SPARE = 6 * KB * KB
TURNS = 16
QUIET = 10.0  # seconds


def run(folder: Path, *, deep: bool, seed: int = 0, progress: Progress = None) -> Count:
    """8 caps for a process that writes and 8 for one that reads; deep: 300 each."""
    count = Count("memory runs out")
    ended = 0
    with count.timed():
        known = prepare(folder / "prepared.db")
        for play in (write, read):
            for spare in _caps(300 if deep else 8, seed):
                ended += _one(folder, play, spare, known, count)
                if progress is not None:
                    progress(count)
        count.tell_canary("said to be saved before it was", canary(folder / "canary"))
    count.harness += f" ({ended} caps ended the process in the encoder)"
    return count


def canary(folder: Path) -> bool:
    """Whether a save that is reported but not made is detected."""
    broken = Count("canary")
    folder.mkdir()
    known = prepare(folder / "prepared.db")
    for spare in _caps(12, 0):
        _one(folder, write_too_late, spare, known, broken)
        if broken.lost:
            return True
    return False


def _caps(times: int, seed: int) -> Iterator[int]:
    """Yield caps from nothing to where most calls work, each only once."""
    rng = random.Random(seed)  # noqa: S311
    step = MOST_SPARE // times
    for i in range(times):
        yield i * step + rng.randrange(step)


def _one(folder: Path, play: object, spare: int, known: dict[str, list[int]], count: Count) -> bool:
    """Run one process under one cap; True if the cap ended it."""
    told: list[Told] = []
    ended = False
    path = folder / "work" / "s.db"
    path.parent.mkdir()
    shutil.copy(folder / "prepared.db", path)
    with Actor(play, path, spare) as actor:  # type: ignore[arg-type]
        try:
            while (said := _hear(actor)) is not None:
                told.append(said)
        except ActorDied as error:
            ended = actor.ended() in ENCODER_ENDS
            if not ended:
                count.note(f"cap {spare}: {error} after {told[-1] if told else 'nothing'}")
    settle(f"cap {spare}", path, told, ended, known, count)
    return ended


def _hear(actor: Actor) -> Told | None:
    """Return the next message of a process; if it hangs, give it its memory back."""
    if actor.silent(QUIET):
        hard = resource.prlimit(actor.pid, resource.RLIMIT_AS)[1]
        resource.prlimit(actor.pid, resource.RLIMIT_AS, (hard, hard))
    said: Told | None = actor.hear()
    return said


def write(pipe: Connection, path: Path, spare: int, early: bool = False) -> None:
    """Make all calls of a program, with `spare` bytes more than are in use, then with enough again."""
    acts = _begin(pipe, path, spare, early)
    for turn in range(TURNS):
        acts.save(turn)
        acts.step(turn)
        if turn % 4 == 1:
            acts.fork(turn)
        if turn % 4 == 3:
            acts.defer(turn)
    acts.open(path)
    _end(acts, pipe)


def write_too_late(pipe: Connection, path: Path, spare: int) -> None:
    write(pipe, path, spare, early=True)


def read(pipe: Connection, path: Path, spare: int) -> None:
    """Load and verify, in the same way."""
    acts = _begin(pipe, path, spare)
    for turn in range(TURNS):
        acts.load(turn)
    acts.verify()
    _end(acts, pipe)


def _begin(pipe: Connection, path: Path, spare: int, early: bool = False) -> Acts:
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # the encoder prints a lot when it aborts,
    os.environ["RUST_BACKTRACE"] = "0"  # and would hang while it collects more
    acts = Acts(everstep.open(path), pipe, early)
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    acts.limits = (pages * resource.getpagesize() + spare, hard), (hard, hard)
    resource.setrlimit(resource.RLIMIT_AS, acts.limits[0])
    return acts


def _end(acts: Acts, pipe: Connection) -> None:
    if acts.limits is not None:
        resource.setrlimit(resource.RLIMIT_AS, acts.limits[1])
        acts.limits = None
    acts.save(TURNS)
    acts.leave()
    acts.close()
    pipe.send(None)

"""prune and gc beside live writers and readers: nothing reachable is ever freed.

Two processes write two runs of one family. Their states rotate among a few pages, so that unreferenced chunks are
written again at any moment, also during a gc. A third process forks and deletes, a fourth one loads saved states; meanwhile prune and
gc run without a pause. In the end every acknowledged checkpoint loads as it was saved or was pruned, and the store verifies. The
canary is a backend that forgets when a chunk was written.
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
from everstep.errors import Damaged, EverstepError, NotFound, PrunedCheckpoint, StoreBusy
from harness.faults.actor import Actor, ActorDied
from harness.faults.broken_backends import Unstamped
from harness.faults.count import Count, Progress
from harness.faults.machine.actions import shorten

WRITERS = ("one", "two")
PAGES = 40
PAUSE = 0.002  # seconds: without an fsync to wait for, writers that never pause keep gc from its turn


def run(folder: Path, *, deep: bool, seed: int = 0, progress: Progress = None) -> Count:
    """8 times gc that freed something; deep: 400."""
    count = Count("prune and gc beside live writers")
    with count.timed():
        for part in range(50 if deep else 1):  # prune and gc read all of a run, so one that grows forever would slow everything down
            _beside(folder / f"{part}.db", count, 8, seed + part, progress)
        count.tell_canary("a backend that forgets when a chunk was written", canary(folder))
    return count


def canary(folder: Path) -> bool:
    """Whether it is detected that gc frees chunks that are being written."""
    broken = Count("canary")
    _beside(folder / "canary.db", broken, 20, 0, None, unstamped=True)
    return any("not stored" in note for note in broken.notes)


def page_of(number: int) -> list[str]:
    """One of a few contents, each of many chunks."""
    return [f"page {number % PAGES}, line {line}: " + "word " * 12 for line in range(60)]


def state_of(writer: str, number: int) -> Any:
    return {"writer": writer, "page": page_of(number * 7 + (number // 11)), "number": number}


def write(pipe: Connection, path: Path, writer: str) -> None:
    """Save until told to stop; report how many were acknowledged."""
    with shorten(), everstep.open(path) as store, store.run(writer) as run:
        number = 0
        pipe.send("ready")
        while not pipe.poll(PAUSE):
            number += 1
            run.checkpoint(state=state_of(writer, number))
        run.checkpoint(state=state_of(writer, number + 1))
        pipe.send(number + 1)


def fork(pipe: Connection, path: Path, seed: int) -> None:
    """Fork existing runs, continue them a little, and delete them."""
    rng = random.Random(seed)  # noqa: S311
    problems: list[str] = []
    with shorten(), everstep.open(path) as store:
        pipe.send("ready")
        while not pipe.poll(PAUSE):
            try:
                name = store.fork(f"{rng.choice(WRITERS)}~{rng.randrange(3)}", edit={"page": page_of(rng.randrange(PAGES))}).id
                with store.run(name) as run:
                    run.state["page"] = page_of(rng.randrange(PAGES))
                    run.checkpoint()
                store.load(name)
                store.delete(name)
            except Damaged as error:
                problems.append(f"fork: {error.message}")
                break
            except NotFound:  # nothing is saved yet, or it was pruned meanwhile
                continue
        pipe.send(problems)


def read(pipe: Connection, path: Path, seed: int) -> None:
    """Load existing states: each must be right, or pruned."""
    rng = random.Random(seed)  # noqa: S311
    problems: list[str] = []
    with everstep.open(path) as store:
        pipe.send("ready")
        while not pipe.poll(PAUSE) and not problems:
            ref = f"{rng.choice(WRITERS)}~{rng.choice((0, 0, 1, 5))}"
            try:
                found = store.load(ref)
            except NotFound:
                continue
            except Damaged as error:
                problems.append(f"{ref}: {error.message}")
                break
            if found.get("number") and found != state_of(found["writer"], found["number"]):
                problems.append(f"{ref} is {found!r:.200}")
        pipe.send(problems)


def _beside(path: Path, count: Count, times: int, seed: int, progress: Progress, unstamped: bool = False) -> None:
    with everstep.open(path) as store:
        with store.run("root") as run:
            run.checkpoint(state=state_of("root", 0))
        for writer in WRITERS:
            store.fork("root", writer, edit={"writer": writer})
    backend: Any = open_backend(path)
    before, enough = count.tried, count.tried + times
    writers = [Actor(write, path, writer) for writer in WRITERS]
    others = [Actor(fork, path, seed), Actor(read, path, seed)]
    with Store(Unstamped(backend) if unstamped else backend) as store, writers[0], writers[1], others[0], others[1]:
        for actor in (*writers, *others):
            actor.hear()
        for number in range(20 * times):
            _clean(store, count, number)
            if progress is not None:
                progress(count)
            if count.notes or count.tried >= enough or not all(actor.silent(0) for actor in (*others, *writers)):
                break  # enough, or a process found damage and stopped
        problems, made = _stop(others, writers)
        if _judge(store, dict(zip(WRITERS, made, strict=True)), problems, count):
            count.held += count.tried - before


def _clean(store: Store, count: Count, number: int) -> None:
    """Run one prune and one gc, while the writers continue. A gc that freed nothing does not count as tried."""
    try:
        plan = store.prune(everstep.Retention(keep_last=1 + number % 3))
        found = store.gc()
    except StoreBusy:  # the others had the store for too long; the next one continues
        return
    count.tried += found.chunks > 0
    for problem in [*plan.problems, *found.problems]:
        count.note(f"gc {number}: {problem}")
    if not found.chunks:
        time.sleep(0.01)  # let the writers make some


def _stop(others: list[Actor], writers: list[Actor]) -> tuple[list[str], list[int]]:
    """Return the problems of the others, and the number of saves of each writer. A writer that died reports no number, which is a problem."""
    for actor in (*others, *writers):
        actor.tell("stop")
    problems: list[str] = []
    made: list[int] = []
    for actor in (*others, *writers):
        try:
            said = actor.hear()
        except (ActorDied, TimeoutError) as error:
            problems.append(str(error))
            said = 0 if actor in writers else []
        if isinstance(said, int):
            made.append(said)
        else:
            problems += said
    return problems, made


def _judge(store: Store, made: dict[str, int], problems: list[str], count: Count) -> bool:
    """Whether everything that was saved is there."""
    before = count.bad
    count.wrong += len(problems)
    for writer, numbers in made.items():
        for number in range(1, numbers + 1):
            problems += _fault(store, writer, number, count)
    if not (report := store.verify("full")).ok:
        count.wrong += 1
        problems.append(str(report))
    for problem in problems:
        count.note(problem)
    return count.bad == before


def _fault(store: Store, writer: str, number: int, count: Count) -> list[str]:
    """A fork's first checkpoint is its parent's state; those that it saved come after it."""
    ref = f"{writer}@{number + 1}"
    try:
        found = store.load(ref)
    except PrunedCheckpoint:
        return []
    except EverstepError as error:
        count.lost += 1
        return [f"{ref}: {error.message}"]
    if found != state_of(writer, number):
        count.wrong += 1
        return [f"{ref} is {found!r:.200}"]
    return []

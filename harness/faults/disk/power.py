"""Cuts the power at every file operation, and compares the recovered store with the acknowledged saves.

The workload is recorded once (`power_vfs`). Then the files are rebuilt as they could be after a crash at any point (`power_disk`),
opened like any store, and compared with the log lines before that point. For a crash right after an acknowledgement,
one of the states always loses everything that was not synced: there a store with too few syncs fails. Some
states start another recording: the power fails again while the store recovers and the program continues.

Everstep creates the folder of the store inside the recorded folder, so its own name can be lost, too.
If a store is refused or reports damage after a mere power loss, it has lost acknowledged saves: this counts as lost.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from itertools import islice
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from unittest.mock import patch

import apsw

from everstep.backends.sqlite.files import store_file
from harness.faults.actor import Actor
from harness.faults.count import Count, Progress
from harness.faults.disk.power_disk import FATES, Disk, State
from harness.faults.disk.power_vfs import Op, Recorder
from harness.faults.log import Log
from harness.faults.verdict import Verdict, judge
from harness.faults.workload import OWN_PLACE, Workload

SHORT, DEEP = (440, 40, 2), (10_000, 300, 5)
"""The number of states of the first crash; of a second one while the program continues after the first; and how often that."""
WAL_BYTES = 320 << 10  # more than it holds when it is merged: it grows, however late; small enough to be rebuilt often
RESUME_EVERY = 10
"""One state in this many is also played to its end."""


@dataclass(frozen=True, slots=True)
class Found:
    """The files after a crash behind one operation, and the log up to there."""

    after: int
    fate: str
    state: State
    log: bytes


class _Noted(Log):
    """A log whose lines are recorded among the operations."""

    def __init__(self, path: Path, recorder: Recorder):
        super().__init__(path)
        self._recorder = recorder

    def write(self, line: bytes) -> None:
        super().write(line)
        self._recorder.note(line)


def record(folder: Path, seed: int, broken: str = "") -> list[Op]:
    """Record all file operations of the workload on its store, from its beginning or from the content of the folder.

    Runs in a separate process: no process from before the crash survives it.
    """
    (folder / "store").mkdir(parents=True, exist_ok=True)
    with Actor(_recorded, str(folder), seed, broken) as actor:
        ops: list[Op] = actor.hear()
    return ops


def _recorded(pipe: Connection, folder: str, seed: int, broken: str) -> None:
    recorder = Recorder(Path(folder, "store"))
    log = _Noted(Path(folder, "log"), recorder)
    recorder.note(Path(folder, "log").read_bytes())
    with recorder.recording(), _BROKEN[broken]():
        Workload(Path(folder), seed, log, place=OWN_PLACE, wal_bytes=WAL_BYTES).play()
    log.close()
    pipe.send(recorder.ops)


def crashes(ops: list[Op], goal: int, seed: int) -> Iterator[Found]:
    """Yield this many different states, from all points and with all fates; fewer if there are no more."""
    random = Random(seed)  # noqa: S311 -- has to be the same each time
    seen: set[bytes] = set()
    while len(seen) < goal:
        known = len(seen)
        for found in _played(ops, _plan(ops, goal - known, random), random):
            digest = found.state.digest() + found.log[-64:]
            if digest not in seen:
                seen.add(digest)
                yield found
        if len(seen) == known:
            return


def _plan(ops: list[Op], goal: int, random: Random) -> dict[int, list[str]]:
    """Choose where the power is lost, and the fate of data that was not synced: a third right after an acknowledgement, where everything is
    lost.
    """
    notes = [index for index, op in enumerate(ops) if op.what == "note"]
    others = [(index, fate) for index in range(notes[0], len(ops)) if ops[index].what != "note" for fate in FATES]
    behind = random.sample(notes, min(len(notes), goal // 3))
    chosen = [(index, "lost") for index in behind] + random.sample(others, min(len(others), goal - len(behind)))
    plan: dict[int, list[str]] = {}
    for index, fate in chosen:
        plan.setdefault(index, []).append(fate)
    return plan


def _played(ops: list[Op], plan: dict[int, list[str]], random: Random) -> Iterator[Found]:
    disk, log = Disk(), b""
    for index, op in enumerate(ops):
        disk.play(op)
        log += op.data if op.what == "note" else b""
        for fate in plan.get(index, ()):
            yield Found(index, fate, disk.after(fate, random), log)


def put(found: Found, folder: Path) -> None:
    """Turn a folder into its state after the crash."""
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "store").mkdir(parents=True)
    found.state.write(folder / "store")
    wal = folder / f"{OWN_PLACE}-wal"
    if wal.exists() and found.after % 5 == 0:  # the index of a WAL is never synced: it is missing, or contains anything
        wal.with_name("store.db-shm").write_bytes(Random(found.after).randbytes(32 << 10))  # noqa: S311 -- has to be the same each time
    (folder / "log").write_bytes(found.log)


def judged(found: Found, folder: Path, seed: int, resume: bool) -> Verdict:
    """Open the found files, as after a restart."""
    put(found, folder)
    return judge(folder, seed, resume=resume, place=OWN_PLACE)


def _add(count: Count, verdict: Verdict, found: Found) -> None:
    count.tried += 1
    count.held += verdict.ok
    count.lost += bool(verdict.lost or verdict.detected)
    count.wrong += bool(verdict.wrong)
    count.missing += bool(verdict.missing)
    count.leftovers += bool(verdict.leftovers)
    if not verdict.ok:
        count.note(f"power lost after operation {found.after}, {found.fate}: {verdict}")


def sweep(ops: list[Op], folder: Path, goal: int, seed: int, count: Count, progress: Progress = None) -> list[Found]:
    """Judge this many states; return some of them, from all points."""
    some: list[Found] = []
    for number, found in enumerate(islice(crashes(ops, goal, seed), goal)):
        resume = number % RESUME_EVERY == 0
        _add(count, judged(found, folder, seed, resume), found)
        if resume:
            some.append(found)
        if progress is not None and resume:
            progress(count)
    return some


def run(folder: Path, *, deep: bool, seed: int = 0, progress: Progress = None) -> Count:
    count = Count("power lost at every file operation")
    with count.timed():
        first, again, times = DEEP if deep else SHORT
        some = sweep(record(folder / "recorded", seed), folder / "found", first, seed, count, progress)
        for found in Random(seed).sample(some, times):  # noqa: S311 -- has to be the same each time
            put(found, folder / "again")
            sweep(record(folder / "again", seed), folder / "found", again, seed, count, progress)
        count.tell_canary("synchronous=NORMAL", canary(folder / "canary", seed))
        count.tell_canary("a folder that is not synced in its parent", forgotten_parent_is_caught(folder / "parent", seed))
    return count


def canary(folder: Path, seed: int = 0) -> bool:
    """Whether a store that syncs only at merges, as SQLite does by default in many set-ups, is caught losing acknowledged saves."""
    return _is_caught(folder, seed, "synchronous=NORMAL")


def forgotten_parent_is_caught(folder: Path, seed: int = 0) -> bool:
    """Whether a store is caught that creates its folder and never syncs the folder above."""
    return _is_caught(folder, seed, "forgotten parent")


def _is_caught(folder: Path, seed: int, broken: str) -> bool:
    ops = record(folder / "recorded", seed, broken)
    caught = 0
    lost = {index: ["lost"] for index, op in enumerate(ops) if op.what == "note"}
    for found in _played(ops, lost, Random(seed)):  # noqa: S311 -- has to be the same each time
        caught += bool(judged(found, folder / "found", seed, resume=False).lost)
        if caught > 3:
            return True
    return False


@contextmanager
def _synchronous_normal() -> Iterator[None]:
    """Let every connection made inside the block sync less than requested."""

    def weaken(connection: apsw.Connection) -> None:
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.authorizer = lambda what, name, *_: (
            apsw.SQLITE_IGNORE if what == apsw.SQLITE_PRAGMA and name == "synchronous" else apsw.SQLITE_OK
        )

    apsw.connection_hooks.append(weaken)
    try:
        yield
    finally:
        apsw.connection_hooks.remove(weaken)


@contextmanager
def _forgotten_parent() -> Iterator[None]:
    """Do not sync folders that are created inside the block in the folder above."""
    with patch.object(store_file, "sync_parents", lambda folder: None):
        yield


_BROKEN: dict[str, Callable[[], AbstractContextManager[None]]] = {
    "": nullcontext,
    "synchronous=NORMAL": _synchronous_normal,
    "forgotten parent": _forgotten_parent,
}
"""The defects of stores that are broken on purpose, by name."""

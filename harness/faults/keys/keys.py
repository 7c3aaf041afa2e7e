"""kill -9 and power loss at every file call while a key is replaced, and while a plain store becomes an encrypted one.

A process is killed at a call (before it, with half of the buffer written, or after it), or the power is lost behind one, with everything that
was not synced lost, kept or torn. Then the store is opened with the keys that its owner has, compared with what was in it, and the call is
repeated. It must finish: the new key alone opens everything, the former one is refused; the store is the plain or the encrypted one, never
something between, and the plain one is kept, or shredded if that was asked for.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random

from harness.faults.actor import Actor
from harness.faults.count import Count, Progress
from harness.faults.disk.power import Found, crashes
from harness.faults.disk.power_disk import Disk
from harness.faults.disk.power_vfs import Op, Recorder
from harness.faults.keys import scenarios
from harness.faults.keys.scenarios import DONE, OLD, broken, fill
from harness.faults.kills.crashes import Scenario
from harness.faults.kills.kills import attempt, points
from harness.faults.kills.sweep import Sweep, added, settle
from harness.faults.verdict import Verdict

SHORT_KILLS, SHORT_POWER, DEEP_POWER = 60, 60, 500


@dataclass(frozen=True, slots=True)
class Action:
    """A thing that is done to a store, and how the result is judged. `key` is that of the store before."""

    name: str
    act: Callable[..., None]
    judge: Callable[[Path], Verdict]
    key: bytes | None


ACTIONS = (
    Action("rekey", scenarios.rekey, scenarios.judge_rekey, OLD),
    Action("encrypt", scenarios.encrypt, scenarios.judge_encrypt, None),
    Action("encrypt and shred", scenarios.encrypt_and_shred, scenarios.judge_shred, None),
)
_KILLED = {"a key that is replaced in two steps": ACTIONS[0], "stores that are exchanged in two steps": ACTIONS[1]}
_UNSYNCED = "an old store that is overwritten before the folder is synced"


def _scenario(action: Action, name: str = "", aim: str = "") -> Scenario:
    act = broken(name, action.act) if name else action.act
    return Scenario(name or action.name, act, action.judge, partial(fill, key=action.key), aim)


def _all(seed: int) -> list[Scenario]:
    return [_scenario(action) for action in ACTIONS]


def _broken(seed: int) -> list[Scenario]:
    return [_scenario(_KILLED[name], name, aim) for name, aim in zip(_KILLED, ("-wal", "rename /store.db"), strict=True)]


SWEEP = Sweep(HARNESS := "keys change under kill -9 and power loss", __name__, _all, _broken, points, attempt)
served = SWEEP.served


def run(folder: Path, *, deep: bool, seed: int = 0, progress: Progress = None, minutes: float | None = None) -> Count:
    """Every call in the deep form, some of all in the short one."""
    killed = SWEEP.run(folder / "kills", None if deep else SHORT_KILLS, seed, progress, minutes=minutes)
    lost = power(folder / "power", DEEP_POWER if deep else SHORT_POWER, seed, progress)
    count = replace(added(HARNESS, [killed, lost]), seconds=killed.seconds + lost.seconds, canary=killed.canary)
    count.tell_canary(_UNSYNCED, unsynced_is_caught(folder / "unsynced", seed))
    return count


def canary(folder: Path, seed: int = 0) -> bool:
    return all(SWEEP.canaries(folder, seed).values()) and unsynced_is_caught(folder / "unsynced", seed)


def power(folder: Path, goal: int, seed: int = 0, progress: Progress = None) -> Count:
    """Judge this many states after a loss of power, of each action."""
    count = Count(HARNESS)
    with count.timed():
        for index, action in enumerate(ACTIONS):
            place = folder / f"action {index}"
            for number, found in enumerate(islice(crashes(recorded(place, action), goal, seed), goal)):
                count.tried += 1
                settle(count, _judged(found, place, action), f"{action.name}, power lost after operation {found.after}, {found.fate}")
                if progress is not None and number % 20 == 0:
                    progress(count)
    return count


def recorded(place: Path, action: Action, name: str = "") -> list[Op]:
    """Record the file operations of an action. In a separate process: no process from before the crash survives it."""
    with Actor(_record, str(place), ACTIONS.index(action), name) as actor:
        ops: list[Op] = actor.hear()
    return ops


def _record(pipe: Connection, folder: str, index: int, name: str) -> None:
    place, action = Path(folder), ACTIONS[index]
    place.mkdir(parents=True, exist_ok=True)
    fill(place, action.key)
    recorder = Recorder(place / "store")
    recorder.note(b"")
    with recorder.recording():
        (broken(name, action.act) if name else action.act)(place, partial(recorder.note, DONE))
    pipe.send(recorder.ops)


def _judged(found: Found, place: Path, action: Action) -> Verdict:
    after = place / "after"
    shutil.rmtree(after, ignore_errors=True)
    (after / "store").mkdir(parents=True)
    found.state.write(after / "store")
    shutil.copyfile(place / "expected", after / "expected")
    (after / "log").write_bytes(found.log)
    try:
        return action.judge(after)
    except Exception as error:  # noqa: BLE001 -- a judge that fails is a finding
        return Verdict(wrong=[f"the judge fails: {type(error).__name__}: {error}"])


def unsynced_is_caught(folder: Path, seed: int = 0) -> bool:
    """Whether a change is caught that overwrites the old store before the new one's name is certain."""
    action = ACTIONS[2]
    ops = recorded(folder, action, _UNSYNCED)
    return any(_judged(found, folder, action).lost for found in _worst(ops, seed))


def _worst(ops: list[Op], seed: int) -> Iterator[Found]:
    """Yield the states in which everything that was not synced is lost, the last ones first."""
    disk, states, random = Disk(), [], Random(seed)  # noqa: S311 -- has to be the same each time
    for index, op in enumerate(ops):
        disk.play(op)
        if op.what in ("sync", "write", "rename", "unlink") and index > len(ops) - 80:
            states.append(Found(index, "lost", disk.after("lost", random), b""))
    yield from reversed(states)

"""Bytes and files from an attacker: nothing is executed, memory stays under a cap, and there is a clear error within a second.

Each case of `hostile_frames`, `_values`, `_rows` and `_files` is created in its own folder. Then a process opens the store and calls everything in the public
API: it reads, lists, compares, verifies, repairs, resumes, prunes, deletes. Each call must work or raise an error of
Everstep, within 256 MB of memory; an error comes within a second of processor time. An audit hook, and a mark that the pickles would leave,
show whether anything was executed, and the file beside the store must not change. The canaries: a reader that unpickles, one that decompresses
without a limit.
"""

from __future__ import annotations

import pickle
import random
import resource
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from everstep.backends.contract.core import Query
from everstep.backends.registry import open_backend
from everstep.errors import EverstepError, Suspended
from harness.faults.actor import Actor, ActorDied
from harness.faults.count import Count, Progress
from harness.faults.hostile import files, frames
from harness.faults.hostile import rows as hostile_rows
from harness.faults.hostile import values as hostile_values
from harness.faults.hostile.files import PRECIOUS, victim_of
from harness.faults.hostile.forge import Case
from harness.faults.hostile.frames import MODULE, mark_of
from harness.faults.machine.api_calls import uses

SHORT = 4
SECONDS = 1.0
BYTES = 256 << 20
PATIENCE = 20.0
_MOST = 4 << 30
_FORBIDDEN = ("pickle.find_class", "os.system", "os.exec", "os.posix_spawn", "subprocess.Popen", "socket.connect")


def run(folder: Path, *, deep: bool, seed: int = 0, progress: Progress = None) -> Count:
    """Four cases of each group, by chance; deep: all."""
    count = Count("hostile bytes and files")
    with count.timed():
        for name, case, forged in cases(None if deep else SHORT, seed):
            judge(folder / "case", name, case, forged, count, use)
            if progress is not None:
                progress(count)
        for what, caught in canaries(folder).items():
            count.tell_canary(what, caught)
    return count


def cases(most: int | None = None, seed: int = 0) -> Iterator[tuple[str, Case, bool]]:
    """Yield name and case, and whether the store can be opened safely to list its content."""
    rng = random.Random(seed)  # noqa: S311
    for module in (frames, hostile_values, hostile_rows, files):
        for group in module.groups():
            names = list(group) if most is None else rng.sample(list(group), min(most, len(group)))
            yield from ((name, group[name], module is not files) for name in names)


def canary(folder: Path) -> bool:
    return all(canaries(folder).values())


def canaries(folder: Path, only: str | None = None) -> dict[str, bool]:
    """Return, for each reader that is broken on purpose, whether it was caught."""
    found = {}
    for what, name, play, sign in (
        ("a reader that unpickles", "pickle 4 for a frame", unpickle, "something was executed"),
        ("one that decompresses without a limit", "zstd: 1 GiB in few bytes", inflate, " MB "),
    ):
        if only not in (None, what):
            continue
        broken = Count("canary")
        case = next(case for known, case, _ in cases() if known == name)
        judge(folder / "canary", what, case, True, broken, play)
        found[what] = any(sign in note for note in broken.notes)
    return found


def judge(folder: Path, name: str, case: Case, forged: bool, count: Count, play: Callable[..., None]) -> None:
    """Make one case, use it in a separate process, and check the results."""
    path = folder / "store" / "s.db"
    path.parent.mkdir(parents=True)
    victim_of(path).write_bytes(PRECIOUS)
    (path.parent / "folder").mkdir()
    case(path)
    faults, errors = _watched(path, _names(path) if forged else ["r"], play)
    if mark_of(path).exists():
        faults.append("something was executed")
    if not victim_of(path).is_file() or victim_of(path).read_bytes() != PRECIOUS or not (path.parent / "folder").is_dir():
        faults.append("another user's file was changed")
    count.tried += 1
    count.detected += not faults and errors > 0
    count.held += not faults and not errors
    count.wrong += bool(faults)
    for fault in faults[-3:]:
        count.note(f"{name}: {fault}")
    shutil.rmtree(folder)


def _watched(path: Path, names: list[str], play: Callable[..., None]) -> tuple[list[str], int]:
    """Return the broken promises, and the number of clear errors."""
    faults: list[str] = []
    errors, last = 0, "nothing"
    with Actor(play, path, names) as actor:
        try:
            while (said := actor.hear(PATIENCE)) is not None:
                last, outcome, seconds, grown, seen = said
                errors += outcome.startswith("E")
                if outcome.startswith("!"):
                    faults.append(f"{last} raised {outcome[1:]}")
                if seconds > SECONDS and outcome:  # a call that works may take as long as its work
                    faults.append(f"{last} took {seconds:.1f} s ({outcome})")
                if grown > BYTES:
                    faults.append(f"{last} took {grown >> 20} MB ({outcome or 'it worked'})")
                faults += [f"{last} did {what}" for what in seen]
        except TimeoutError:
            faults.append(f"the call after {last} did not end within {PATIENCE:.0f} s")
        except ActorDied as error:
            faults.append(f"{error} after {last}")
    return faults, errors


def _names(path: Path) -> list[str]:
    """Return the ids of the forged runs."""
    backend = open_backend(path)
    try:
        return [row.id for _, row in backend.runs(Query(limit=12))]
    finally:
        backend.close()


# In the process that uses the store.


class Watch:
    """Measures calls, and listens to the audit events of the interpreter."""

    def __init__(self, pipe: Connection, folder: Path):
        self._pipe = pipe
        self._folder = str(folder)
        self._seen: list[str] = []
        sys.addaudithook(self._heard)
        resource.setrlimit(resource.RLIMIT_AS, (_MOST, _MOST))  # a machine that swaps measures nothing

    def _heard(self, event: str, args: tuple[Any, ...]) -> None:
        if event in _FORBIDDEN or (event == "import" and args[0] == MODULE):
            self._seen.append(f"{event} {args!r:.100}")

    def call(self, name: str, act: Callable[[], object]) -> None:
        self._seen.clear()
        before = _reset_peak()
        began = time.process_time()
        outcome = ""
        try:
            act()
        except (EverstepError, Suspended) as error:
            outcome = f"{error.code} {error.message:.200}"
        except BaseException as error:  # noqa: BLE001 -- any error that is not ours is a fault, and is reported
            outcome = f"!{type(error).__name__}: {error!s:.200}"
        seconds = time.process_time() - began
        self._pipe.send((name, outcome, seconds, _peak() - before, list(self._seen)))


def _reset_peak() -> int:
    Path("/proc/self/clear_refs").write_text("5")
    return _peak()


def _peak() -> int:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) << 10


def use(pipe: Connection, path: Path, names: list[str]) -> None:
    """Call everything in the public API."""
    watch = Watch(pipe, path.parent)
    for name, act in uses(path, names):
        watch.call(name, act)
    pipe.send(None)


def unpickle(pipe: Connection, path: Path, names: list[str]) -> None:
    """Read like a reader that treats unknown content as a pickle."""
    watch = Watch(pipe, path.parent)
    for frame in _frames(path, names):
        watch.call("unpickle", lambda frame=frame: pickle.loads(frame))  # type: ignore[misc]  # noqa: S301
    pipe.send(None)


def inflate(pipe: Connection, path: Path, names: list[str]) -> None:
    """Read like a reader that trusts its frames."""
    watch = Watch(pipe, path.parent)
    for frame in _frames(path, names):
        watch.call("inflate", lambda frame=frame: frames.inflate(frame))  # type: ignore[misc]
    pipe.send(None)


def _frames(path: Path, names: list[str]) -> list[bytes]:
    backend = open_backend(path)
    records = [record for name in names for record in backend.records(name, 1, 1000)]
    backend.close()
    return [record.body for record in records if record.body is not None][-2:]

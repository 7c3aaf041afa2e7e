"""A wall clock that is set back and forward, between commits and inside them: order never depends on it.

In one process, `testing.clock` moves the time: by a day or more between any two calls, and at every single reading of the clock. In real
processes, `faketime` shifts the wall clock of each, or a preloaded library that is built from wall.c if there is a compiler.
After each jump of the clock, everything that has an order is compared with the sequence of calls: the newest state of every run, its
checkpoints, the list of runs, @last, the newest of a tag, the events. The canary takes the checkpoint with the latest time for the newest.
"""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import everstep
from everstep.api import Store
from everstep.errors import LeaseHeld
from everstep.testing.clock import FakeClock
from harness.children import environment
from harness.faults.count import Count, Progress
from harness.faults.kills.shim import build, why_not

DAY = 86_400
STEPS = (-DAY, DAY, -30 * DAY, 400 * DAY, -1, 1, -3600)
Newest = Callable[[Store, str], Any]


def run(folder: Path, *, deep: bool, seed: int = 0, progress: Progress = None) -> Count:
    """200 steps of the clock in one process and 8 in processes; deep: 10,000 and 100."""
    count = Count("the clock is set back and forward")
    with count.timed():
        for kind in ("between", "inside"):
            for part in range(10 if deep else 1):
                _steps(folder / f"{kind}{part}.db", count, 500 if deep else 100, seed + part, kind == "inside")
                if progress is not None:
                    progress(count)
        if not _processes(folder / "processes.db", count, 100 if deep else 8, seed):
            count.harness += " (in one process only: there is neither faketime nor a compiler)"
        count.tell_canary("the checkpoint with the latest time is the newest", canary(folder))
    return count


def canary(folder: Path) -> bool:
    """Whether an order by time is detected."""
    broken = Count("canary")
    _steps(folder / "canary.db", broken, 40, 0, False, _latest)
    return broken.wrong > 0


def _head(store: Store, run: str) -> Any:
    return store.load(run)


def _latest(store: Store, run: str) -> Any:
    return store.load(max(store.checkpoints(run), key=lambda c: c.at).ref)


class Jumpy(FakeClock):
    """A clock that changes at every reading, while `wild`."""

    def __init__(self, rng: random.Random):
        super().__init__()
        self._rng = rng
        self.wild = False
        self.jumps = 0

    def jump(self) -> None:
        self.jumps += 1
        self.step(self._rng.choice(STEPS))

    def now_us(self) -> int:
        if self.wild:
            self.jump()
        return super().now_us()


@dataclass
class Done:
    """The calls that were made, in their order."""

    states: dict[str, list[int]] = field(default_factory=dict)
    tags: dict[str, int] = field(default_factory=dict)
    last: str = ""
    events: list[tuple[Any, ...]] = field(default_factory=list)


class Scene:
    """A store, the calls made on it, and the next call."""

    def __init__(self, store: Store, rng: random.Random):
        self._store = store
        self._rng = rng
        self._n = 0
        self.done = Done()

    def act(self) -> None:
        if not self.done.states:
            self.begin()
        else:
            self._rng.choice((self.begin, self.resume, self.resume, self.resume, self.tag, self.fork, self.held))()

    def _pick(self) -> str:
        return self._rng.choice(list(self.done.states))

    def _save(self, name: str) -> None:
        with self._store.run(name, state={"n": 0}) as run:
            for _ in range(self._rng.randint(1, 3)):
                self._n += 1
                run.state["n"] = self._n
                number = run.checkpoint().number
                states = self.done.states.setdefault(name, [])
                states += (
                    [states[-1]] * (number - 1 - len(states)) if states else []
                )  # a checkpoint that a closing block made of the same state
                states.append(self._n)
        made = self._store.get(name).checkpoints
        states += [states[-1]] * (made - len(states))
        self.done.last = name

    def begin(self) -> None:
        if len(self.done.states) < 12:
            self._save(f"run{len(self.done.states)}")

    def resume(self) -> None:
        self._save(self._pick())

    def tag(self) -> None:
        name = self._pick()
        number = self._rng.randint(1, len(self.done.states[name]))
        self._store.tag(f"{name}@{number}", "mark")
        self.done.tags[name] = max(number, self.done.tags.get(name, 0))

    def fork(self) -> None:
        if len(self.done.states) < 12:
            name, child = self._pick(), f"run{len(self.done.states)}"
            self._store.fork(name, child)
            self.done.states[child] = [self.done.states[name][-1]]
            self.done.last = child

    def held(self) -> None:
        """Check that changing the clock ends no lease."""
        name = self._pick()
        with self._store.run(name):
            try:
                with everstep.open(self._store.url) as other, other.run(name):
                    raise AssertionError(f"run {name!r} was taken over although its owner is alive")
            except LeaseHeld:
                pass
        made = self._store.get(name).checkpoints
        states = self.done.states[name]
        states += [states[-1]] * (made - len(states))
        self.done.last = name


def _steps(path: Path, count: Count, times: int, seed: int, inside: bool, newest: Newest = _head) -> None:
    rng = random.Random(seed)  # noqa: S311
    time = Jumpy(rng)
    with time, everstep.open(path) as store:
        scene = Scene(store, rng)
        before, made = 0, 0
        while time.jumps < times:
            time.wild = inside
            scene.act()
            time.wild = False
            if not inside:
                time.jump()
            made, before = time.jumps - before, time.jumps
            _tell(count, _faults(store, scene.done, newest), made, f"seed {seed}, {'inside' if inside else 'between'}, step {time.jumps}")
        if not store.verify("full").ok:
            count.wrong += 1
            count.note(f"seed {seed}: {store.verify('full')}")


def _tell(count: Count, faults: list[str], steps: int, where: str) -> None:
    count.tried += steps
    if faults:
        count.wrong += 1
        count.note(f"{where}: {faults[0]}")
    else:
        count.held += steps


def _faults(store: Store, done: Done, newest: Newest) -> list[str]:
    """List everything whose order differs from the order of the calls."""
    found = []
    for name, states in done.states.items():
        if newest(store, name) != {"n": states[-1]}:
            found.append(f"the newest state of {name} is {newest(store, name)} and not {states[-1]}")
        if [c.number for c in store.checkpoints(name)] != list(range(len(states), 0, -1)):
            found.append(f"the checkpoints of {name} are listed as {[c.number for c in store.checkpoints(name)]}")
        if any(store.load(name, at=n) != {"n": state} for n, state in list(enumerate(states, 1))[-3:]):
            found.append(f"a checkpoint of {name} has another state")
    for name, number in done.tags.items():
        if store.checkpoint(f"{name}@mark").number != number:
            found.append(f"the newest checkpoint of {name} with a tag is not {number}")
    if [info.id for info in store.runs()] != list(done.states)[::-1]:
        found.append(f"the runs are listed as {[info.id for info in store.runs()]}")
    last = store.backend.manifest().last
    if done.last and last != done.last:
        found.append(f"the run written last is {last} and not {done.last}")
    events = [(event.position, event.run, event.seq, event.name) for event in store.events(limit=100_000)]
    if events[: len(done.events)] != done.events:
        found.append("events that were there have another order now")
    done.events = events
    return found


# Real processes, each with its own clock.


def _processes(path: Path, count: Count, times: int, seed: int) -> bool:
    """Continue one run in several processes, each with another time; False if clocks cannot be shifted here."""
    rng = random.Random(seed)  # noqa: S311
    for turn in range(1, times + 1):
        offset = rng.choice(STEPS)
        found = shifted(offset)
        if found is None:
            return False
        prefix, variables = found
        command = [*prefix, sys.executable, "-m", "harness.faults.machine.clocks", str(path), str(turn)]
        subprocess.run(command, env=environment(**variables), check=True, timeout=60)  # noqa: S603
        with everstep.open(path) as store:
            states = [store.load(c.ref)["n"] for c in store.checkpoints("r")]
            good = list(dict.fromkeys(states)) == list(range(turn, 0, -1)) and store.load("r") == {"n": turn}
        _tell(count, [] if good else [f"the checkpoints hold {states}"], 1, f"seed {seed}, process {turn}, clock {offset:+} s")
    return True


def shifted(offset: int) -> tuple[list[str], dict[str, str]] | None:
    """Return the command prefix and the environment that start a process with another wall clock."""
    if faketime := shutil.which("faketime"):
        return [faketime, "-f", f"{offset:+}s"], {"DONT_FAKE_MONOTONIC": "1"}
    if why_not() is not None:
        return None
    return [], {"LD_PRELOAD": str(build(Path(__file__).with_name("wall.c"))), "WALL_OFFSET": str(offset)}


def main(path: str, turn: str) -> None:
    """Run one process."""
    with everstep.open(path) as store, store.run("r", state={"n": 0}) as run:
        if run.state["n"] != int(turn) - 1:
            raise SystemExit(f"the run resumes from {run.state} in process {turn}")
        run.state["n"] += 1
        run.checkpoint()


if __name__ == "__main__":
    main(*sys.argv[1:])

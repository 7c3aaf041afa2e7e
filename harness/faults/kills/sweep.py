"""Tries every point of every scenario, or some of them, in processes that have the shim, and adds up the results.

A harness defines its points and one attempt; the rest is the same for all. The same seed chooses the same points. The parts of a sweep run
in parallel, each with its own stages.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

from harness.faults.count import Count, Progress
from harness.faults.kills.crashes import Scenario, Stage, warm
from harness.faults.kills.shim import Fault, under_shim
from harness.faults.verdict import Verdict

Points = Callable[[Stage], Iterator[tuple[Fault, str]]]
Place = tuple[Stage, Fault, str]
CANARY_POINTS = 80


@dataclass(frozen=True, slots=True)
class Sweep:
    """One harness. `points` are the faults of a stage, each with its call; `attempt` tries one and counts it."""

    harness: str
    module: str
    scenarios: Callable[[int], list[Scenario]]
    broken: Callable[[int], list[Scenario]]
    points: Points
    attempt: Callable[[Count, Stage, Fault, str], None]

    def run(
        self,
        folder: Path,
        most: int | None,
        seed: int = 0,
        progress: Progress = None,
        workers: int | None = None,
        minutes: float | None = None,
    ) -> Count:
        """Try at most this many points, or all of them if None, and the canaries. With `minutes`, as many as possible, in random order."""
        count = self.part(folder, most, seed, progress, workers, minutes=minutes)
        for name, caught in self.canaries(folder, seed).items():
            count.tell_canary(name, caught)
        return count

    def part(
        self,
        folder: Path,
        most: int | None,
        seed: int = 0,
        progress: Progress = None,
        workers: int | None = None,
        only: str = "",
        minutes: float | None = None,
    ) -> Count:
        """Try without the canaries; only scenarios whose names contain `only`."""
        workers = workers or os.cpu_count() or 1
        count = Count(self.harness)
        same = {"most": most, "seed": seed, "only": only, "minutes": minutes}
        asked = [{**same, "folder": str(folder / f"part {i}"), "part": [i, workers]} for i in range(workers)]
        newest: dict[int, Count] = {}

        def tell(said: Any) -> None:
            newest[said[0]] = Count(**said[1])
            if progress is not None:
                progress(added(self.harness, list(newest.values())))

        with count.timed(), ThreadPoolExecutor(workers) as pool:
            parts = [Count(**part) for part in pool.map(lambda one: under_shim(self.module, one, tell), asked)]
        return replace(added(_name(self.harness, parts), parts), seconds=count.seconds)

    def canaries(self, folder: Path, seed: int = 0) -> dict[str, bool]:
        """Return, for each store that is broken on purpose, whether its fault was caught."""
        found: dict[str, bool] = under_shim(self.module, {"canary": True, "folder": str(folder), "seed": seed})
        return found

    def served(self, asked: dict[str, Any], tell: Callable[[Any], None]) -> Any:
        """Run in the process that has the shim."""
        folder, seed = Path(asked["folder"]), asked["seed"]
        warm(seed)
        if asked.get("canary"):
            return {s.name: self._caught(s, folder / f"canary {i}", seed) for i, s in enumerate(self.broken(seed))}
        count = Count(self.harness)
        index, parts = asked["part"]
        places = self._places(folder, seed, asked["only"])
        # By the number of the call: another process may make a few more or fewer calls, and none may fall between two parts.
        mine = [place for place in places if place[1].call % parts == index]
        chosen = mine if asked["most"] is None else some(mine, asked["most"] // parts, Random(seed))  # noqa: S311 -- the same each time
        if asked.get("minutes") is not None:
            Random(seed).shuffle(chosen)  # noqa: S311 -- has to be the same each time
        ends = time.monotonic() + 60 * (asked.get("minutes") or 1e6)
        for number, place in enumerate(chosen):
            if time.monotonic() > ends:
                count.harness = f"{self.harness}: {number:,} of {len(chosen):,}"
                break
            if number % 20 == 0:
                tell([index, asdict(count)])
            self.attempt(count, *place)
        return asdict(count)

    def _places(self, folder: Path, seed: int, only: str) -> list[Place]:
        scenarios = [scenario for scenario in self.scenarios(seed) if only in scenario.name]
        stages = [Stage(scenario, folder / f"scenario {i}") for i, scenario in enumerate(scenarios)]
        return [(stage, fault, call) for stage in stages for fault, call in self.points(stage)]

    def _caught(self, scenario: Scenario, folder: Path, seed: int) -> bool:
        """Whether some fault reveals the defect of a scenario."""
        stage, count = Stage(scenario, folder), Count(self.harness)
        points = [(fault, call) for fault, call in self.points(stage) if scenario.aim in call]
        for fault, call in Random(seed).sample(points, min(len(points), CANARY_POINTS)):  # noqa: S311 -- has to be the same each time
            self.attempt(count, stage, fault, call)
            if count.bad:
                return True
        return False


def _name(harness: str, parts: Sequence[Count]) -> str:
    """Return the name of the harness, with a note if the time was over before everything was tried."""
    return harness if all(part.harness == harness for part in parts) else f"{harness} (some, chosen by chance: the time was limited)"


def some(places: Sequence[Place], most: int, chance: Random) -> list[Place]:
    """Draw a sample in which each scenario has its share, small ones a larger one."""
    by: dict[str, list[Place]] = {}
    for place in places:
        by.setdefault(place[0].scenario.name, []).append(place)
    least = most // (2 * len(by))
    rest = most - least * len(by)
    chosen: list[Place] = []
    for group in by.values():
        chosen.extend(chance.sample(group, min(len(group), least + round(rest * len(group) / len(places)))))
    return chosen


def settle(count: Count, verdict: Verdict, where: str) -> None:
    """Count a verdict on a store in which no bit was flipped: detected damage is a loss here."""
    count.held += verdict.ok
    count.lost += bool(verdict.lost or verdict.detected)
    count.wrong += bool(verdict.wrong)
    count.missing += bool(verdict.missing)
    count.leftovers += bool(verdict.leftovers)
    if not verdict.ok:
        count.note(f"{where}: {verdict}")


def added(harness: str, parts: Sequence[Count]) -> Count:
    count = Count(harness)
    for name in ("tried", "held", "detected", "lost", "wrong", "missing", "leftovers"):
        setattr(count, name, sum(getattr(part, name) for part in parts))
    for note in (note for part in parts for note in part.notes):
        count.note(note)
    return count

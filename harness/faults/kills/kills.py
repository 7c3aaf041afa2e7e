"""kill -9 at every file call: during work, recovery after an earlier kill, compacting, a migration, and a repair.

Each point is a call and a moment: before the call, with half of the buffer written, or after it. A child process is killed there. Another
one reopens the store, compares it with the acknowledged saves, verifies it, and runs the program to its end. The page cache survives a
kill, so this harness cannot detect a missing fsync; `power` does.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from harness.faults.count import Count, Progress
from harness.faults.kills.crashes import Stage
from harness.faults.kills.shim import CHANGES, Fault, Moment
from harness.faults.kills.sweep import Sweep, settle
from harness.faults.scenarios import all_scenarios, broken_by_kills

SHORT = 300


def run(folder: Path, *, deep: bool, seed: int = 0, progress: Progress = None, minutes: float | None = None) -> Count:
    """Every point in the deep form, some of all in the short one."""
    return SWEEP.run(folder, None if deep else SHORT, seed, progress, minutes=minutes)


def canary(folder: Path, seed: int = 0) -> bool:
    return all(SWEEP.canaries(folder, seed).values())


def points(stage: Stage) -> Iterator[tuple[Fault, str]]:
    for number, call in enumerate(stage.count(CHANGES), 1):
        moments: tuple[Moment, ...] = ("before", "half", "after") if "write" in call.partition(" ")[0] else ("before", "after")
        for moment in moments:
            yield Fault(number, "kill", moment), call


def attempt(count: Count, stage: Stage, fault: Fault, call: str) -> None:
    ended = stage.act(fault)
    where = f"{stage.scenario.name}, {fault} ({call})"
    if ended.killed:
        count.tried += 1
        settle(count, stage.judged(), where)
    elif ended.hung or ended.code:
        count.wrong += 1
        count.note(f"{where}: {'it hung' if ended.hung else ended.said}")
    # else it came to its end: threads share the count of calls, so there may be fewer of them than in the first pass


SWEEP = Sweep(HARNESS := "kill -9 at every file call", __name__, all_scenarios, broken_by_kills, points, attempt)
served = SWEEP.served

"""EIO and ENOSPC at every file call, once and permanently, also after half of a write; EIO at every read.

A child process works under the fault as long as it can. Each call works, or raises an error of Everstep whose `written` is correct. When the disk works
again, the same process continues, through the same handle or, if that reports that it is closed, a new one. Then a second
child checks the store as after a kill. At the other half of the points the child ends at its first error.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from harness.faults.count import Count, Progress
from harness.faults.kills.crashes import Ended, Stage
from harness.faults.kills.shim import CHANGES, NEEDS_SPACE, READ, Fault
from harness.faults.kills.sweep import Sweep, settle
from harness.faults.scenarios import all_scenarios, broken_by_errors

SHORT = 180
_FAULTS = (
    Fault(0, "fail", error=errno.EIO, kinds=CHANGES),
    Fault(0, "fail", error=errno.EIO, kinds=CHANGES, lasting=True),
    Fault(0, "fail", error=errno.ENOSPC, kinds=NEEDS_SPACE),
    Fault(0, "fail", error=errno.ENOSPC, kinds=NEEDS_SPACE, lasting=True),
    Fault(0, "fail", "half", errno.EIO, kinds=CHANGES),
    Fault(0, "fail", "half", errno.ENOSPC, kinds=NEEDS_SPACE, lasting=True),
    Fault(0, "fail", error=errno.EIO, kinds=READ),
    Fault(0, "fail", error=errno.EIO, kinds=READ, lasting=True),
)


def run(folder: Path, *, deep: bool, seed: int = 0, progress: Progress = None, minutes: float | None = None) -> Count:
    """Every point in the deep form, some of all in the short one."""
    return SWEEP.run(folder, None if deep else SHORT, seed, progress, minutes=minutes)


def canary(folder: Path, seed: int = 0) -> bool:
    return all(SWEEP.canaries(folder, seed).values())


def _points(stage: Stage) -> Iterator[tuple[Fault, str]]:
    """Yield every call, with every fault that it can have."""
    traces = {kinds: stage.count(kinds) for kinds in (CHANGES, NEEDS_SPACE, READ)}
    for fault in _FAULTS:
        for number, call in enumerate(traces[fault.kinds], 1):
            if fault.moment != "half" or "write" in call.partition(" ")[0]:
                yield replace(fault, call=number), call


def _attempt(count: Count, stage: Stage, fault: Fault, call: str) -> None:
    tell(count, stage, stage.act(fault), f"{stage.scenario.name}, {fault} ({call})")


def tell(count: Count, stage: Stage, ended: Ended, where: str) -> None:
    """Count the result of a child that met errors."""
    if ended.hung or ended.code:
        count.tried += 1
        count.wrong += 1
        count.note(f"{where}: {'it hung' if ended.hung else ended.said and ended.said['raised']}")
    elif ended.said is None or ended.said["fired"]:  # threads share the count of calls: there may be fewer than in the first pass
        count.tried += 1
        count.detected += ended.said is None or bool(ended.said["said"])
        settle(count, stage.judged(), where)


SWEEP = Sweep(
    HARNESS := "EIO and ENOSPC at every file call", __name__, partial(all_scenarios, patient=True), broken_by_errors, _points, _attempt
)
served = SWEEP.served

"""Stopwatches and the few statistics that the table quotes. Times are nanoseconds until they are shown."""

from __future__ import annotations

import gc
import resource
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from time import perf_counter_ns

Operation = Callable[[int], object]


def timed(operation: Operation, i: int) -> int:
    start = perf_counter_ns()
    operation(i)
    return perf_counter_ns() - start


def interleave(operations: dict[str, Operation], count: int) -> dict[str, list[int]]:
    """Run every operation once a turn, `count` turns, in an order that rotates so that no operation always follows the same one."""
    settle()
    names = list(operations)
    times: dict[str, list[int]] = {name: [] for name in names}
    for i in range(count):
        shift = i % len(names)
        for name in names[shift:] + names[:shift]:
            times[name].append(timed(operations[name], i))
    return times


def settle() -> None:
    """Exclude the harness's own objects from garbage collection: they are not part of the measurement."""
    gc.collect()
    gc.freeze()


def ms(times: Sequence[float]) -> float:
    """Return the median in milliseconds."""
    return median(times) / 1e6


def percentile(times: Sequence[int], percent: float) -> float:
    ordered = sorted(times)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def first_tenth(times: Sequence[int]) -> Sequence[int]:
    return times[: max(1, len(times) // 10)]


def last_tenth(times: Sequence[int]) -> Sequence[int]:
    return times[-max(1, len(times) // 10) :]


def size(folder: Path) -> int:
    """Return the bytes in all files under a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def memory() -> int:
    """Return the maximum bytes of memory of this process so far."""
    status = Path("/proc/self/status")
    if status.exists():  # on Linux, ru_maxrss begins with the value of the parent
        return int(status.read_text().partition("VmHWM:")[2].split()[0]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


class Laps:
    """Times the turns of one subject and, in between, the same turns on a floor."""

    def __init__(self, floor: Operation | None = None) -> None:
        self.turns: list[int] = []
        self.floors: list[int] = []
        self._floor = floor
        self._start: int | None = None

    def start(self) -> None:
        self._start = perf_counter_ns()

    def end(self) -> None:
        """End the running lap, if there is one."""
        if self._start is None:
            return
        self.turns.append(perf_counter_ns() - self._start)
        self._start = None
        if self._floor is not None:
            self.floors.append(timed(self._floor, len(self.floors)))

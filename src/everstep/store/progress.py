"""Progress of a long job: reports it now and then, and stops the job when its time is over. No I/O except the clock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from everstep import clock as clocks
from everstep.durations import to_seconds
from everstep.errors import InvalidArgument

Progress = Callable[[int, int, str], object]
_TELL_US = 100_000


class TimeOver(Exception):
    """Raised when the time of a job is over; its results so far are valid."""


class Pace:
    """Counts finished work against a total, in any unit."""

    def __init__(self, progress: Progress | None, given: Any):
        seconds = to_seconds(given, "seconds")
        if seconds is not None and (isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not seconds > 0):
            raise InvalidArgument(f"seconds must be a number greater than 0, or None for no limit, got {seconds!r:.60}")
        if progress is not None and not callable(progress):
            raise InvalidArgument(f"progress must be a function, got {progress!r:.60}", remedy="Use a function of (done, total, what).")
        self.done = 0
        self.total = 0
        self._progress = progress
        self._started = clocks.clock.boot_us()
        self._deadline = None if seconds is None else self._started + int(seconds * 1_000_000)
        self._told = self._started - _TELL_US

    @property
    def watched(self) -> bool:
        """Whether the total is of use: there is a progress function or a deadline."""
        return self._progress is not None or self._deadline is not None

    @property
    def seconds(self) -> float:
        """The seconds taken so far."""
        return (clocks.clock.boot_us() - self._started) / 1e6

    @property
    def over(self) -> bool:
        return self._deadline is not None and clocks.clock.boot_us() >= self._deadline

    def on(self, amount: int, what: str) -> None:
        """Count finished work. Raises `TimeOver` when the time is over."""
        self.done += amount
        now = clocks.clock.boot_us()
        if self._progress is not None and now - self._told >= _TELL_US:
            self._told = now
            self._progress(self.done, max(self.done, self.total), what)
        if self._deadline is not None and now >= self._deadline:
            raise TimeOver

    def end(self, what: str) -> None:
        """Report the end, however recent the last report is."""
        if self._progress is not None:
            self.done = self.total = max(self.done, self.total)
            self._progress(self.done, self.total, what)

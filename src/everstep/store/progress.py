"""How far a long job has come: tells who wants to know, now and then, and ends it when its time is over. No I/O but the clock's."""

from __future__ import annotations

from collections.abc import Callable

from everstep import clock as clocks
from everstep.errors import InvalidArgument

Progress = Callable[[int, int, str], object]
_TELL_US = 100_000


class TimeOver(Exception):
    """The time that a job may take is over; what it found so far stands."""


class Pace:
    """Counts what is done of a total, in whatever unit the job chooses."""

    def __init__(self, progress: Progress | None, seconds: float | None):
        if seconds is not None and (isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not seconds > 0):
            raise InvalidArgument(f"seconds={seconds!r:.60} is no time", remedy="Give a number above 0, or None for as long as it takes.")
        if progress is not None and not callable(progress):
            raise InvalidArgument(f"progress={progress!r:.60} cannot be called", remedy="Give a function of (done, total, what).")
        self.done = 0
        self.total = 0
        self._progress = progress
        self._started = clocks.clock.boot_us()
        self._deadline = None if seconds is None else self._started + int(seconds * 1_000_000)
        self._told = self._started - _TELL_US

    @property
    def watched(self) -> bool:
        """Whether anybody is told how much there is in all."""
        return self._progress is not None or self._deadline is not None

    @property
    def seconds(self) -> float:
        """How long it has taken so far."""
        return (clocks.clock.boot_us() - self._started) / 1e6

    @property
    def over(self) -> bool:
        return self._deadline is not None and clocks.clock.boot_us() >= self._deadline

    def on(self, amount: int, what: str) -> None:
        """So much more is done. Raises `TimeOver` when there is no time for the rest."""
        self.done += amount
        now = clocks.clock.boot_us()
        if self._progress is not None and now - self._told >= _TELL_US:
            self._told = now
            self._progress(self.done, max(self.done, self.total), what)
        if self._deadline is not None and now >= self._deadline:
            raise TimeOver

    def end(self, what: str) -> None:
        """All is done: said in any case."""
        if self._progress is not None:
            self.done = self.total = max(self.done, self.total)
            self._progress(self.done, self.total, what)

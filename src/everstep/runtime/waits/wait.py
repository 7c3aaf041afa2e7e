"""A wait inside this process. Relies on `everstep.clock`, so that tests can fast-forward it."""

from __future__ import annotations

import time

from everstep.clock import clock


class Wait:
    """A wait of so many seconds, by the clock or in real time, whichever ends first: a stopped test clock does not make it longer."""

    __slots__ = ("_due", "_until")

    def __init__(self, seconds: float):
        self._until = time.monotonic() + seconds
        self._due = clock.boot_us() + int(seconds * 1e6)

    def left(self) -> float:
        return min(self._until - time.monotonic(), (self._due - clock.boot_us()) / 1e6)

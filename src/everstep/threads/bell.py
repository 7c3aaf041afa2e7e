"""Wakes a thread that waits. May be rung by any thread and by a signal handler: those run in the midst of other code, which may hold the lock
of an event."""

from __future__ import annotations

from contextlib import suppress
from queue import Empty, SimpleQueue


class Bell:
    """Rung once or many times, it wakes whoever waits, or waits next."""

    def __init__(self) -> None:
        self._rung: SimpleQueue[None] = SimpleQueue()  # its put may interrupt itself

    def ring(self) -> None:
        if self._rung.empty():
            self._rung.put(None)

    def wait(self, seconds: float) -> None:
        with suppress(Empty):
            self._rung.get(timeout=max(0.0, seconds))

    def clear(self) -> None:
        with suppress(Empty):
            while True:
                self._rung.get_nowait()

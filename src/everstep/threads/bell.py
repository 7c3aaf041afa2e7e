"""Wakes up a waiting thread. Any thread and any signal handler may ring it: a handler interrupts other code, which may hold the lock of an
event.
"""

from __future__ import annotations

from contextlib import suppress
from queue import Empty, SimpleQueue


class Bell:
    """Wakes up the current or the next waiter, however often it was rung."""

    def __init__(self) -> None:
        self._rung: SimpleQueue[None] = SimpleQueue()  # its put is reentrant

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

"""A flag on which one thread sleeps until another one wakes it up.

Uses a single lock, and only its release: waking up allocates no memory, and an interrupted call leaves nothing locked. A `threading.Event`
locks itself briefly at each call, and stays locked forever if memory runs out at that moment.
"""

from __future__ import annotations

from threading import Lock


class Wakeup:
    """A wake-up for one waiter. If given before the wait, the wait returns immediately; given twice, it counts once."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = Lock()
        self._lock.acquire()

    def give(self) -> None:
        try:
            if self._lock.locked():
                self._lock.release()
        except RuntimeError:
            return  # another thread gave it in between

    def wait(self, seconds: float = -1) -> bool:
        """Sleep until it is given, and consume it; False if it was not given in time."""
        return self._lock.acquire(True, seconds)

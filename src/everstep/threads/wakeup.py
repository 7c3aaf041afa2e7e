"""What one thread sleeps on until another one wakes it.

Made of one lock, of which nothing but a release is asked: whoever wakes needs no memory, and one that is interrupted leaves nothing locked. An
Event of `threading` locks itself for a moment at each call, and stays locked for ever if there is no memory in that moment.
"""

from __future__ import annotations

from threading import Lock


class Nudge:
    """For one sleeper. Given before it sleeps, it doesn't sleep; given twice, it counts once."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = Lock()
        self._lock.acquire()

    def give(self) -> None:
        try:
            if self._lock.locked():
                self._lock.release()
        except RuntimeError:
            return  # another thread gave one in between

    def wait(self, seconds: float = -1) -> bool:
        """Sleep until there is one, and use it up; False if none came in time."""
        return self._lock.acquire(True, seconds)

"""How many commits of a run are on their way, and who waits until there are fewer. Needs no memory where one arrives: nobody waits for ever."""

from __future__ import annotations

from collections import deque
from threading import Lock

from everstep.nudge import Nudge

_MOMENT = 0.5  # seconds: a signal that comes just before a wait is heard after it


class Underway:
    """Counted by whoever sends one and by whoever settles it, from any thread."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._sleepers: deque[Nudge] = deque()
        self.count = 0

    def sent(self) -> None:
        with self._lock:
            self.count += 1

    def settled(self) -> None:
        with self._lock:
            self.count -= 1
            for sleeper in self._sleepers:
                sleeper.give()

    def wait(self, most: int) -> None:
        """Until there are so many at most."""
        if self.count <= most:
            return
        nudge = Nudge()
        with self._lock:
            self._sleepers.append(nudge)
        try:
            while self.count > most:
                nudge.wait(_MOMENT)
        finally:
            with self._lock:
                self._sleepers.remove(nudge)

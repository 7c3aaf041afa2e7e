"""Which commits of a run are on their way, and who waits until there are fewer. Needs no memory where one arrives: nobody waits for ever."""

from __future__ import annotations

from everstep.threads.wakeup import Nudge

_MOMENT = 0.5  # seconds: a signal that comes just before a wait is heard after it


class Underway:
    """Told by whoever sends one and by whoever settles it, from any thread. Settled twice, it counts once."""

    def __init__(self) -> None:
        self._sleepers: list[Nudge] = []
        self._way: set[object] = set()

    @property
    def count(self) -> int:
        return len(self._way)

    def sent(self, commit: object) -> None:
        self._way.add(commit)

    def settled(self, commit: object) -> None:
        self._way.discard(commit)  # before anything that needs memory: who sleeps looks for itself after a moment
        for sleeper in self._sleepers.copy():
            sleeper.give()

    def wait(self, most: int) -> None:
        """Until there are so many at most."""
        if len(self._way) <= most:
            return
        nudge = Nudge()
        self._sleepers.append(nudge)
        try:
            while len(self._way) > most:
                nudge.wait(_MOMENT)
        finally:
            self._sleepers.remove(nudge)


class Waiter:
    """Waits for a commit that another thread leads."""

    def __init__(self) -> None:
        self._done = Nudge()
        self._error: BaseException | None = None

    def done(self, error: BaseException | None) -> None:
        self._error = error
        self._done.give()

    def wait(self) -> None:
        while not self._done.wait(_MOMENT):
            pass
        if self._error is not None:
            raise self._error

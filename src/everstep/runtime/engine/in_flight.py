"""The commits of a run in flight, and the threads that wait until there are fewer. A set, not a number: Ctrl-C can settle a commit twice."""

from __future__ import annotations

from collections.abc import Callable

from everstep.backends.contract.core import Committed, Outcome
from everstep.threads.wakeup import Wakeup

_MOMENT = 0.5  # seconds: a signal that comes just before a wait is handled after it


class Underway:
    """Commits in flight. Any thread may add or settle one; settling it twice is harmless."""

    def __init__(self) -> None:
        self._sleepers: list[Wakeup] = []
        self._way: set[object] = set()

    @property
    def count(self) -> int:
        return len(self._way)

    def sent(self, commit: object) -> None:
        self._way.add(commit)

    def settled(self, commit: object) -> None:
        self._way.discard(commit)  # first: a waiter that is not woken checks by itself after a moment
        for sleeper in self._sleepers.copy():
            sleeper.give()

    def wait(self, most: int) -> None:
        """Wait until there are at most so many."""
        if len(self._way) <= most:
            return
        wakeup = Wakeup()
        self._sleepers.append(wakeup)
        try:
            while len(self._way) > most:
                wakeup.wait(_MOMENT)
        finally:
            self._sleepers.remove(wakeup)


class Waiter:
    """Waits for a commit that another thread makes."""

    def __init__(self, on_commit: Callable[[Committed], None]) -> None:
        self._on_commit = on_commit
        self._done = Wakeup()
        self._error: BaseException | None = None

    def done(self, outcome: Outcome) -> None:
        if isinstance(outcome, BaseException):
            self._error = outcome
        else:
            self._on_commit(outcome)
        self._done.give()

    def wait(self) -> None:
        while not self._done.wait(_MOMENT):
            pass
        if self._error is not None:
            raise self._error

"""Several workers, each in its own process, that are killed at random and replaced. Relies on `Actor` for processes."""

from __future__ import annotations

import random
from collections.abc import Callable
from types import TracebackType
from typing import Any

from harness.faults.actor import Actor
from harness.workers import hand


class Crew:
    """A constant number of workers."""

    def __init__(self, size: int, *args: Any, play: Callable[..., None] = hand.work):
        self._play = play
        self._args = args
        self.killed: set[int] = set()
        self._hands = [self._new() for _ in range(size)]
        for one in self._hands:
            one.hear()

    def _new(self) -> Actor:
        return Actor(self._play, *self._args)

    def kill_one(self, rng: random.Random) -> None:
        """Kill one with kill -9, and start another one without waiting for it."""
        place = rng.randrange(len(self._hands))
        gone, self._hands[place] = self._hands[place], self._new()
        self.killed.add(gone.pid)
        with gone:
            pass

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for one in self._hands:
            with one:
                pass

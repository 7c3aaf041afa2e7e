"""Several workers, each in a process of its own, that are killed by chance and replaced. Relies on `Actor` for processes."""

from __future__ import annotations

import random
from collections.abc import Callable
from types import TracebackType
from typing import Any

from harness.faults.actor import Actor
from harness.workers import hand


class Crew:
    """So many workers as there are to be, at any time."""

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
        """kill -9 of one, and another in its place, which is not waited for."""
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

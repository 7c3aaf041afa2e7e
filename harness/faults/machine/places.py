"""Where the machine's calls run: in this process, or in a separate one that is killed. Both can crash between any two calls.

Relies on `actions` for the calls. Does not know the expected content of the store.
"""

from __future__ import annotations

import copy
import random
import time
from pathlib import Path
from typing import Any

from everstep.testing.clock import FakeClock
from harness.faults.actor import Actor
from harness.faults.machine.actions import Hands, serve


class Near:
    """Calls in this process. A crash leaves them as they are; an hour later their leases have expired."""

    def __init__(self, path: Path, forgetful: bool):
        self._path = path
        self._forgetful = forgetful
        self.time = FakeClock()
        self.time.__enter__()
        try:
            self.hands = Hands(path, forgetful)
        except BaseException:
            self.time.__exit__(None, None, None)
            raise
        self.ghosts: list[Hands] = []

    def do(self, what: str, *args: Any) -> Any:
        return self.hands.do(what, *copy.deepcopy(args))  # the store keeps the objects that it is given

    def crash(self) -> None:
        if self._forgetful:
            self.hands.backend.crash()
        self.hands.store.keeper.close()
        self.ghosts.append(self.hands)
        self.time.advance(3600)
        self.hands = Hands(self._path, self._forgetful)

    def crash_inside(self, what: str, *args: Any) -> None:
        self.crash()

    def reopen(self) -> None:
        self.hands.close()
        self.hands = Hands(self._path, self._forgetful)

    def end(self) -> None:
        try:
            self.hands.do("close")
            for ghost in self.ghosts:
                ghost.store.close()
        finally:
            self.time.__exit__(None, None, None)


class Far:
    """Calls in a separate process, which is killed."""

    def __init__(self, path: Path, forgetful: bool):
        self._path = path
        self._actor = Actor(serve, path)
        self.ghosts: list[Hands] = []
        self._rng = random.Random(str(path.parent.name))  # noqa: S311

    def do(self, what: str, *args: Any) -> Any:
        said = self._actor.ask(what, args)
        if isinstance(said, AssertionError):
            raise said
        return said

    def crash(self) -> None:
        self._actor.__exit__(None, None, None)
        self._actor = Actor(serve, self._path)

    def crash_inside(self, what: str, *args: Any) -> None:
        self._actor.tell(what, args)
        time.sleep(self._rng.random() * 0.004)
        self.crash()

    def reopen(self) -> None:
        self.do("close")
        self.crash()

    def end(self) -> None:
        self.do("close")
        self._actor.__exit__(None, None, None)

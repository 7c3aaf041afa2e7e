"""A program that meets disk errors and continues: tries again, reopens a store that reports it is closed, and checks the errors.

After each error it checks, as soon as the disk works again, whether `written` was right. No other process uses the store, so "busy" is not
accepted as an excuse. Relies on the parts of a workload being safe to repeat.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from errno import ENOSPC
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import everstep
from everstep.errors import EverstepError, StoreBusy, StoreClosed, StoreFailed
from harness.faults.kills.shim import Shim
from harness.faults.log import Entry
from harness.faults.verdict import look
from harness.faults.workload import SESSIONS, Workload, eager

WORSE = 2
"""After this many errors the disk works again."""
MOST = 12


class Disk(Protocol):
    """The fault of a disk. `lasts`: it does not go away by itself."""

    @property
    def lasts(self) -> bool: ...
    @property
    def error(self) -> int: ...
    def disarm(self) -> None:
        """Make the disk work again."""


class Patient(Workload):
    """Plays the workload on a disk with a fault. `stops`: the process ends at the first error, as if killed there."""

    def __init__(self, folder: Path, seed: int = 0, *, stops: bool = False, disk: Disk | None = None, **options: Any):
        super().__init__(folder, seed, **options)
        self.disk: Disk = disk or Shim()
        self.stops = stops
        self.errors: list[str] = []

    def play(self) -> None:
        with eager():
            for number, parts in enumerate(SESSIONS):
                store = self._opened()
                for name in parts:
                    store = self._done(getattr(self, name), store, number)
                self._tried(store.close)
        self.log.say(Entry("done", "all"))

    def _opened(self) -> everstep.Store:
        while True:
            opened = self._tried(self.open)
            if isinstance(opened, everstep.Store):
                return opened

    def _done(self, part: Callable[[everstep.Store, int], None], store: everstep.Store, session: int) -> everstep.Store:
        """Do a part, however many attempts it takes; return the store that it was done with."""
        closed = 0
        while True:
            error = self._tried(partial(part, store, session))
            if not isinstance(error, EverstepError):
                return store
            closed += isinstance(error, (StoreFailed, StoreClosed)) or self.disk.error != ENOSPC
            if closed > 1:  # reported twice: this handle is unusable. One that was only short of space must continue
                self._tried(store.close)
                store, closed = self._opened(), 0

    def _tried(self, call: Callable[[], Any]) -> Any:
        """Return the result of a call, or its error if it is one of ours."""
        try:
            return call()
        except EverstepError as error:
            self._met(error)
            return error

    def _met(self, error: EverstepError) -> None:
        self.errors.append(f"{error.code} {error.message}")
        if self.stops:
            os._exit(0)
        if isinstance(error, StoreBusy):
            self.log.say(Entry("wrong", "busy", error=error.message))
        if len(self.errors) >= WORSE:
            self.disk.disarm()
        if len(self.errors) > MOST:
            raise RuntimeError(f"it neither continues nor reports that it is closed: {self.errors}")
        if len(self.errors) >= WORSE or not self.disk.lasts:
            self._look()

    def _look(self) -> None:
        """Check the reported outcome through another handle."""
        if not self.path.exists():
            return
        with everstep.open(self.path, create=False) as store:
            verdict = look(store, self.log.entries, self.seed)
        if not verdict.ok:
            self.log.say(Entry("wrong", "look", error=f"after {self.errors[-1]}: {verdict}"))


def patiently(act: Callable[[Path], Any], folder: Path, *, stops: bool = False) -> list[str]:
    """Repeat an action until it works; return the errors on the way."""
    shim = Shim()
    errors: list[str] = []
    while True:
        try:
            act(folder)
        except EverstepError as error:
            errors.append(f"{error.code} {error.message}")
            if stops:
                os._exit(0)
            if len(errors) >= WORSE:
                shim.disarm()
            if len(errors) > MOST or isinstance(error, StoreBusy):
                raise RuntimeError(f"it does not continue: {errors}") from error
        else:
            return errors

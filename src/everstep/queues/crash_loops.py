"""Runs whose workers died one after another. A process executes several runs, and which of them killed it is unknown. So that the others are
not blamed, a run close to its crash limit is executed alone until it makes progress.

Only decides; `Worker` claims and releases runs. On a worker that is always busy, such a run waits at most a minute to be executed alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Container

from everstep.backends.contract.core import Backend
from everstep.backends.contract.queues import Claimed
from everstep.records import RunRow
from everstep.runtime.limits.deaths import position

_LAST_CHANCES = 2
_PATIENCE_SECONDS = 60.0


class Suspects:
    """The suspects that one worker knows of."""

    def __init__(self, max_deaths: int):
        self._from = max(1, max_deaths - _LAST_CHANCES)
        self._max_deaths = max_deaths
        self._alone: tuple[str, tuple[int, str]] | None = None  # the run that is executed alone, and its position at the start
        self._declined: dict[str, float] = {}  # runs that were released because this worker was busy, and since when

    def choose(self, backend: Backend, taken: list[Claimed], busy: bool, decline: Callable[[Claimed], None]) -> list[Claimed]:
        """Choose which claimed runs to execute now. The others are declined before any of these starts."""
        now = time.monotonic()
        self._declined = {run: since for run, since in self._declined.items() if now - since < 2 * _PATIENCE_SECONDS}
        plain = [one for one in taken if not self._is_suspect(one)]
        suspects = [one for one in taken if self._is_suspect(one)]
        if not busy and not plain and suspects:
            plain, suspects = suspects[:1], suspects[1:]
            self._drive_alone(backend, plain[0].row)
        for one in suspects:
            if one.row is not None and not self._waited_enough(one.run):
                decline(one)
            else:
                plain.append(one)
        for one in plain:
            self._declined.pop(one.run, None)
        return plain

    def may_begin(self, backend: Backend, row: RunRow, deaths: int, busy: bool) -> bool:
        """Whether to execute a run outside of queues, which no worker has claimed yet, now."""
        if not self._from <= deaths < self._max_deaths:
            return True
        if busy:
            return self._waited_enough(row.id)
        self._drive_alone(backend, row)
        return True

    def _drive_alone(self, backend: Backend, row: RunRow | None) -> None:
        self._alone = None if row is None else (row.id, position(backend, row))

    def _is_suspect(self, claimed: Claimed) -> bool:
        return claimed.row is not None and self._from <= claimed.deaths < self._max_deaths

    def _waited_enough(self, run: str) -> bool:
        now = time.monotonic()
        return now - self._declined.setdefault(run, now) >= _PATIENCE_SECONDS

    def one_is_alone(self, backend: Backend, jobs: Container[str]) -> bool:
        """Whether a suspect is running and has made no progress yet: no other run may start meanwhile."""
        if self._alone is None:
            return False
        run, before = self._alone
        row = backend.run(run) if run in jobs else None
        if row is None or position(backend, row) != before:
            self._alone = None
        return self._alone is not None

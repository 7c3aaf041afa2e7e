"""Keeps long work beside writers short: many small transactions, with a rest after each.

A writer waits for the transaction that is under way, so the size of the next one follows from how long the last one took. The rest lets a
writer of another process in, which only looks now and then whether the store is free.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
QUICK, SLOW = 0.005, 0.02  # seconds for one transaction, most of it the disk's
_REST, _LONGEST_REST = 0.002, 0.02


class Slices:
    """How much of one kind of work to do at once: never less than `least`, or a slow disk would never see the end of it."""

    def __init__(self, least: int, most: int):
        self.size = least
        self._least, self._most = least, most

    def do(self, work: Callable[[], T]) -> T:
        """One transaction, and a rest."""
        began = time.monotonic()
        result = work()
        took = time.monotonic() - began
        if took > SLOW:
            self.size = max(self._least, self.size // 2)
        elif took < QUICK:
            self.size = min(self._most, self.size * 2)
        time.sleep(min(max(_REST, took), _LONGEST_REST))
        return result

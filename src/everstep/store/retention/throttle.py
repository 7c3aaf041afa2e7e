"""Keep long background work from blocking writers: many small transactions, with a pause after each.

A writer waits for the current transaction, so the duration of the last one sets the size of the next. The pause lets in writers of other
processes, which only poll for the lock.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
QUICK, SLOW = 0.005, 0.02  # seconds per transaction, most of it disk time
_REST, _LONGEST_REST = 0.002, 0.02


class Slices:
    """The amount of work per transaction: never less than `least`, otherwise work on a slow disk would never end."""

    def __init__(self, least: int, most: int):
        self.size = least
        self._least, self._most = least, most

    def do(self, work: Callable[[], T]) -> T:
        """Run one transaction, then pause."""
        began = time.monotonic()
        result = work()
        took = time.monotonic() - began
        if took > SLOW:
            self.size = max(self._least, self.size // 2)
        elif took < QUICK:
            self.size = min(self._most, self.size * 2)
        time.sleep(min(max(_REST, took), _LONGEST_REST))
        return result

"""What programs print while a table is redrawn in place: kept in whole lines and handed on, so that it does not land in the table."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO


class Aside:
    """Stands in for stdout or stderr. Until somebody takes the lines, all goes where it would have gone."""

    def __init__(self, real: TextIO):
        self._real = real
        self._part = ""
        self._lock = threading.RLock()  # a signal handler may print in the midst of a print
        self.taker: Callable[[str], None] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def write(self, text: str) -> int:
        if self.taker is None:
            return self._real.write(text)
        with self._lock:
            *lines, self._part = (self._part + text).split("\n")
        for line in lines:
            self.taker(line)
        return len(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def give_back(self) -> None:
        """From now on all goes where it would have gone, beginning with what had no end yet."""
        self.taker = None
        with self._lock:
            rest, self._part = self._part, ""
        if rest:
            self._real.write(rest + "\n")


@contextmanager
def aside() -> Iterator[list[Aside]]:
    """Put both streams aside. To be entered before a program is imported: what logs keeps the stream that it finds then."""
    before = sys.stdout, sys.stderr
    pair = [Aside(before[0]), Aside(before[1])]
    sys.stdout, sys.stderr = pair
    try:
        yield pair
    finally:
        sys.stdout, sys.stderr = before
        for one in pair:
            one.give_back()

"""What programs print while stdout is for something else: a table that is redrawn in place gets it in whole lines, and with JSON it goes to stderr."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout, suppress
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


@contextmanager
def to_stderr() -> Iterator[TextIO]:
    """Have stderr get what a program prints, and what those print that it starts. Gives a stream to the real stdout."""
    real = sys.stdout
    real.flush()
    try:
        number, talk = real.fileno(), sys.stderr.fileno()
    except (OSError, AttributeError):  # there is no descriptor behind it, or no stderr at all
        with redirect_stdout(sys.stderr):
            yield real
        return
    kept = os.dup(number)
    os.dup2(talk, number)
    stream = open(kept, "w", encoding=real.encoding, errors=real.errors, closefd=False)  # noqa: SIM115 - a descriptor, closed below
    try:
        with redirect_stdout(sys.stderr):
            yield stream
    finally:
        os.dup2(kept, number)
        with suppress(OSError):  # whoever read us has gone: that was met before
            stream.close()
        os.close(kept)

"""Redirects the output of programs while stdout is used for something else: whole lines go above a live table, or to stderr with JSON."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from typing import Any, TextIO


class Aside:
    """A replacement for stdout or stderr. Without a `taker` for the lines, it writes to the real stream."""

    def __init__(self, real: TextIO):
        self._real = real
        self._part = ""
        self._lock = threading.RLock()  # reentrant: a signal handler may print in the middle of a print
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
        """Write to the real stream from now on, beginning with the unfinished line."""
        self.taker = None
        with self._lock:
            rest, self._part = self._part, ""
        if rest:
            self._real.write(rest + "\n")


@contextmanager
def aside() -> Iterator[list[Aside]]:
    """Replace both streams. Enter it before a program is imported: a logging handler keeps the stream that it finds then."""
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
    """Redirect stdout of this process and of those it starts to stderr. Yields a stream to the real stdout."""
    real = sys.stdout
    real.flush()
    try:
        number, talk = real.fileno(), sys.stderr.fileno()
    except (OSError, AttributeError):  # a stream without a descriptor, or no stderr at all
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
        with suppress(OSError):  # the reader has closed the pipe: reported before
            stream.close()
        os.close(kept)

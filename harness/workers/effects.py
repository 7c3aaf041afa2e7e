"""The effects log: one line for each time that a step ran, with its process and time, outside of the store. Never rewritten.

A line is one write to a file that is opened for appending, so that lines of many processes do not mix and none is lost with a process.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Line:
    """One execution of a step. `at` is in microseconds of the wall clock, as in records."""

    run: str
    step: str
    pid: int
    token: str

    @property
    def at(self) -> int:
        return int(self.token.partition(".")[2]) // 1000


class EffectsLog:
    """The file, open for adding lines."""

    def __init__(self, path: Path | str):
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def add(self, run: str, step: str) -> str:
        """Note that a step runs now; returns a token that no other line has."""
        pid = os.getpid()
        token = f"{pid}.{time.time_ns()}"
        os.write(self._file, f"{run} {step} {pid} {token}\n".encode())
        return token


def read(path: Path) -> dict[tuple[str, str], list[Line]]:
    """Read all lines, by run and step."""
    found: dict[tuple[str, str], list[Line]] = defaultdict(list)
    for text in path.read_text().splitlines():
        run, step, pid, token = text.split()
        found[run, step].append(Line(run, step, int(pid), token))
    return found

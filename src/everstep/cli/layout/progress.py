"""A progress bar with the rate and the time left, for work that takes more than a second. Only on a terminal, and only on stderr."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from typing import Any, TextIO

from everstep.cli.draw.text import cut, duration, size

_PATIENCE, _EACH = 0.9, 0.1
_BAR = 24


def _bytes(rate: float) -> str:
    return f"{size(rate)}/s"


def _count(rate: float) -> str:
    return f"{rate:,.0f}/s" if rate >= 10 else f"{rate:.1f}/s"


RATES: dict[str, Callable[[float], str]] = {"bytes": _bytes}


class Progress:
    """A bar. Call it with the amount done and the total, as often as you like; `unit` is "bytes" or a noun."""

    def __init__(self, what: str, stream: TextIO, shown: bool, unit: str = "", now: Callable[[], float] = time.monotonic):
        self._what, self._stream, self._shown, self._unit, self._now = what, stream, shown, unit, now
        self._begun = self._updated = now()
        self._drawn = False

    def __call__(self, done: float, total: float, *_: Any) -> None:
        now = self._now()
        if not self._shown or now - self._begun < _PATIENCE or now - self._updated < _EACH:
            return
        self._updated, self._drawn = now, True
        columns = shutil.get_terminal_size((80, 24)).columns
        self._stream.write(f"\r{cut(self.text(done, total, now - self._begun, columns), columns - 1)}\x1b[K")
        self._stream.flush()

    def text(self, done: float, total: float, seconds: float, columns: int = 80) -> str:
        """Return the line for an amount that was done in some time."""
        share = min(1.0, done / total) if total else 0.0
        rate = done / seconds if seconds > 0 else 0.0
        left = f"{duration(max(1.0, round((total - done) / rate)))} left" if rate and total > done else ""
        speed = RATES.get(self._unit, _count)(rate) if rate else ""
        numbers = "  ".join(part for part in (f"{share:4.0%}", speed, left) if part)
        room = min(_BAR, columns - len(self._what) - len(numbers) - 6)
        if room < 5:
            return f"{self._what} {numbers.strip()}"
        filled = int(room * share)
        return f"{self._what} [{'█' * filled}{'·' * (room - filled)}] {numbers}"

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: Any) -> None:
        if self._drawn:
            self._stream.write("\r\x1b[K")
            self._stream.flush()

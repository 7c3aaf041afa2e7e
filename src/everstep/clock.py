"""The source of every time that is stored. Times are labels; nothing is ordered by them.

`now_us` is wall time in microseconds since 1970 (UTC). `boot_us` counts microseconds since the machine booted, including sleep, and
measures leases; it has a meaning only together with `boot_id`. Tests replace the module's `clock`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime

from everstep import system


class Clock:
    """Reads the machine's clocks."""

    _boot_id: str | None = None

    def now_us(self) -> int:
        return time.time_ns() // 1000

    def boot_us(self) -> int:
        return system.boot_ns() // 1000

    def nap(self, seconds: float, longest: float) -> None:
        """Sleep until `seconds` have passed by this clock, but at most `longest` seconds. The caller checks the clock and naps again."""
        time.sleep(min(seconds, longest))

    async def anap(self, seconds: float, longest: float, is_busy: Callable[[], bool]) -> None:
        """Sleep in a task. `is_busy` says whether other work is in progress that takes no time by a test clock."""
        from asyncio import sleep

        await sleep(min(seconds, longest))

    def boot_id(self) -> str:
        """Return the name of this boot of the machine; see `system.boot_id`."""
        if self._boot_id is None:
            self._boot_id = system.boot_id()
        return self._boot_id


clock = Clock()


def iso(us: int) -> str:
    """Format microseconds since 1970 as ISO 8601 in UTC."""
    return datetime.fromtimestamp(us / 1_000_000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")

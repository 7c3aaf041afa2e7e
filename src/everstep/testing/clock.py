"""A clock that tests can set. Times are labels in Everstep and leases run by the boot clock; both come through `everstep.clock`."""

from __future__ import annotations

from types import TracebackType

from everstep.clock import clock


class FakeClock:
    """Inside its block, time stands still until it is moved: `with FakeClock() as time: time.advance(60)`."""

    def __init__(self, now: float = 1_700_000_000.0):
        self._now_us = int(now * 1_000_000)
        self._boot_us = 1_000_000_000

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self._now_us += int(seconds * 1_000_000)
        self._boot_us += int(seconds * 1_000_000)

    def step(self, seconds: float) -> None:
        """Set the wall clock forward or back, as a person or a time server would; no time passes."""
        self._now_us += int(seconds * 1_000_000)

    def now_us(self) -> int:
        return self._now_us

    def boot_us(self) -> int:
        return self._boot_us

    def __enter__(self) -> FakeClock:
        clock.now_us = self.now_us  # type: ignore[method-assign]
        clock.boot_us = self.boot_us  # type: ignore[method-assign]
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        del clock.now_us, clock.boot_us

"""A clock that tests can set. Times are labels in Everstep, and leases use the boot clock; both come through `everstep.clock`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from threading import Condition, get_ident
from types import TracebackType
from typing import Any

from everstep.clock import clock

_POLL = 0.01  # seconds between two checks of a sleeping task
_QUIET_POLLS = 3  # idle checks of the event loop before a sleeping task moves the clock
_PATIENCE = 5.0  # seconds without a move after which the task moves the clock anyway


class FakeClock:
    """Stop time inside a block until the test moves it: `with FakeClock() as time: time.advance(60)`.

    `advance` wakes up every sleeper: `everstep.sleep`, `run.sleep` and waits between attempts, in threads and in tasks. A sleep in the
    thread that opened the block moves the clock itself, because that thread can't call `advance` meanwhile: in a task, once the event loop
    is idle.
    """

    def __init__(self, now: float = 1_700_000_000.0):
        self._now_us = int(now * 1_000_000)
        self._boot_us = 1_000_000_000
        self._moved = Condition()
        self._moves = 0
        self._moved_at = time.monotonic()
        self._owner = get_ident()
        self._polls: set[Any] = set()

    def advance(self, seconds: float) -> None:
        """Let time pass, and wake up sleepers."""
        self._move(seconds, seconds)

    def step(self, seconds: float) -> None:
        """Set the wall clock forward or back, as a person or a time server would; no time passes."""
        self._move(seconds, 0)

    def _move(self, wall: float, boot: float) -> None:
        with self._moved:
            self._now_us += int(wall * 1_000_000)
            self._boot_us += int(boot * 1_000_000)
            self._moves += 1
            self._moved_at = time.monotonic()
            self._moved.notify_all()

    def now_us(self) -> int:
        return self._now_us

    def boot_us(self) -> int:
        return self._boot_us

    def nap(self, seconds: float, longest: float) -> None:
        """Sleep until the clock is moved. The thread that opened the block moves it itself."""
        if get_ident() == self._owner:
            self.advance(seconds)
            return
        with self._moved:
            moves = self._moves
            self._moved.wait_for(lambda: self._moves != moves, min(seconds, longest))

    async def anap(self, seconds: float, longest: float, is_busy: Callable[[], bool]) -> None:
        """Sleep in a task: other tasks may move the clock, so this one moves it only if nothing else is about to happen."""
        moves, until, quiet = self._moves, time.monotonic() + longest, 0
        while self._moves == moves and (time.monotonic() < until or quiet):
            await self._poll()
            quiet = quiet + 1 if self._is_quiet() and not is_busy() else 0
            late = time.monotonic() - self._moved_at > _PATIENCE and not is_busy()
            if self._moves == moves and get_ident() == self._owner and (quiet >= _QUIET_POLLS or late):
                self.advance(seconds)
                return

    async def _poll(self) -> None:
        loop = asyncio.get_running_loop()
        over = asyncio.Event()
        timer = loop.call_later(_POLL, over.set)
        self._polls.add(timer)
        try:
            await over.wait()
        finally:
            timer.cancel()
            self._polls.discard(timer)

    def _is_quiet(self) -> bool:
        """Whether the event loop waits only for sleeps like this one. Event loops other than asyncio's don't tell."""
        timers = getattr(asyncio.get_running_loop(), "_scheduled", ())
        return all(timer.cancelled() or timer in self._polls for timer in timers)

    def __enter__(self) -> FakeClock:
        self._owner, self._moved_at = get_ident(), time.monotonic()
        for name in _REPLACED:
            setattr(clock, name, getattr(self, name))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for name in _REPLACED:
            delattr(clock, name)


_REPLACED = ("now_us", "boot_us", "nap", "anap")

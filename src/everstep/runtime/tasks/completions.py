"""The order in which an async program sees its steps, gates and timers end: live, the order of time; on replay, the order of the journal.

A program that waits for the first of several tasks (`as_completed`, `wait`, a race against a timer) decides by that order, so a replay must
repeat it:

- A recorded end is delivered only after all ends recorded before it, and after the program had some turns of the event loop to react.
- A new event (a step that runs, an answer that has come, a timer that has fired) ends only after all recorded ends were delivered.
- A wait that the program cancelled stays pending until the program cancels it again. An end that came after such a wait began is delivered only
  after the program began it again.
- A gate or a long timer suspends the run only when no other task of the program can proceed.

The journal may contain ends that changed code no longer waits for. The program gets a little time to ask for one, then it is skipped. All of
this happens in the event loop of the run; there is no lock.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from heapq import heappop, heappush
from itertools import count
from math import inf
from typing import TYPE_CHECKING, Any

from everstep.store.journal.entries import FAILED, RUNNING, AnswerEntry, Recorded, StepEntry

if TYPE_CHECKING:
    from everstep.runtime.engine.attempt import Attempt

TURNS = 8  # turns of the event loop in which a program reacts to an end: tasks that wait for tasks need one each
PATIENT_TURNS = 25  # turns in which it may ask for the next recorded end
PATIENCE = 0.05  # seconds after that, for one recorded end
PATIENCE_IN_ALL = 1.0
_LOOK_SECONDS = 0.002
GRACE = 5.0  # seconds after the recorded duration in which a wait that was cancelled before must be cancelled again


class Completions:
    """Delivers the ends of one attempt at an async run."""

    def __init__(self, run: Attempt):
        self._run = run
        self._loop = asyncio.get_running_loop()
        self._ready: Any = getattr(
            self._loop, "_ready", (None,)
        )  # the callbacks of the loop's next turn; loops other than asyncio's do not show them
        self._order: list[tuple[int, str, Recorded[Any]]] | None = None
        self._cancelled: list[tuple[int, str]] = []  # when each step that the program cancelled began; the earliest is last
        self._next = 0
        self._given = 0
        self._waiting: list[tuple[float, int, asyncio.Future[None]]] = []
        self._numbers = count()
        self._pumping = False
        self._missing = 0  # turns in which the program did not ask for the next recorded end
        self._since = 0.0
        self._patience = PATIENCE_IN_ALL
        self._doomed = 0  # waits that the program must cancel
        self._parked: list[str] = []
        self._pending = 0  # commits and short sleeps that tasks of the program wait for
        self._over = False

    @property
    def replaying(self) -> bool:
        """Whether recorded ends are left to deliver."""
        return self._next < len(self._recorded_ends())

    @property
    def holding(self) -> bool:
        """Whether a new event has to wait."""
        return self._over or self.replaying

    def is_next(self, seq: int) -> bool:
        """Whether a recorded end can be delivered at once: no other task could see it too early, and none is about to run.

        Live, the step took time in which newly created tasks began. Without that turn, a program that cancels such a task after the step
        would find that it had never begun, and take another path than it had recorded.
        """
        order = self._recorded_ends()
        if self._next >= len(order) or seq < order[self._next][0]:
            return True
        if order[self._next][0] != seq or self._run.branches.several or self._ready or self._cancelled:
            return False
        self._next += 1
        return True

    async def recorded(self, seq: int) -> None:
        """Return when it is the turn of the end with this sequence number."""
        if not self.is_next(seq):
            await self._turn(seq)

    async def new(self) -> None:
        """Return when all recorded ends were delivered and pending tasks have run: a new event begins that may end at once.

        Never returns if the program has ended.
        """
        if self._over or self._ready or self.replaying:
            await self._turn(inf)

    async def ended(self, seq: int) -> None:
        """Return when it is the turn of a new event with this sequence number: one at a time, so that a replay can repeat the order."""
        if self._run.branches.several:
            await self._turn(seq)

    async def saved(self, seq: int) -> None:
        """Return when it is the turn of a checkpoint: the program waited for it, so other tasks ran and ended before it."""
        if self._run.branches.several or self._ready:
            await self._turn(seq)

    def program_ended(self) -> None:
        """Let no new event begin: a task that the program left behind must not pay for a step whose result is never used."""
        self._over = True

    def end(self) -> None:
        """Cancel the tasks that still wait for their turn. The run is closed now, and refuses later calls."""
        self._over = False
        for _, _, future in self._waiting:
            future.cancel()
        self._waiting.clear()

    async def cancelled(self, address: str, seconds: float) -> None:
        """Wait to be cancelled, as when this wait was recorded."""
        self._doomed += 1
        try:
            await asyncio.sleep(seconds * 1.5 + GRACE)
        finally:
            self._doomed -= 1
        raise self._run.diverge(address, "a wait that the program cancelled", "a wait that it does not cancel")

    @contextmanager
    def parked(self, address: str) -> Iterator[None]:
        """Mark a gate or a timer that waits to suspend the run. The steps around it cannot end before it does."""
        self._parked.append(address)
        try:
            yield
        finally:
            self._parked.remove(address)

    @contextmanager
    def busy(self) -> Iterator[None]:
        """Mark a task of the program that waits for a commit or a short sleep, which end by themselves."""
        self._pending += 1
        try:
            yield
        finally:
            self._pending -= 1

    async def idle(self) -> bool:
        """Whether only waits that suspend the run are left. Gives the program some turns to show otherwise."""
        before = self._activity()
        for _ in range(TURNS):
            await asyncio.sleep(0)
            if self._is_busy() or self._activity() != before:
                return False
        return True

    def _activity(self) -> tuple[int, int]:
        return self._run.branches.asks, self._given

    def _is_busy(self) -> bool:
        if self._waiting or self._pending or self._doomed:
            return True
        return any(not any(parked.startswith(f"{step}/") for parked in self._parked) for step in self._run.steps.flight)

    def _recorded_ends(self) -> list[tuple[int, str, Recorded[Any]]]:
        order = self._order
        if order is None:
            played = self._run.replay
            found: list[tuple[str, Recorded[Any]]] = [*played.entries.items(), *played.answers.items(), *played.fired.items()]
            order = self._order = sorted((one.record.seq, address, one) for address, one in found)
            self._cancelled = sorted(
                ((one.entry.started, address) for _, address, one in order if self._was_cancelled(address, one)), reverse=True
            )
        while self._next < len(order) and not self._is_end(order[self._next][1], order[self._next][2]):
            self._next += 1
        return order

    def _is_end(self, address: str, found: Recorded[Any]) -> bool:
        """Whether the program will wait for this record: not for drawn values, attempts without an end, or steps inside a finished step."""
        entry = found.entry
        if isinstance(entry, StepEntry):
            status, flags = entry.status, entry.flags
            if status == RUNNING or (flags and (flags.get("value") or flags.get("cancelled") or (status == FAILED and flags.get("next")))):
                return False
        elif isinstance(entry, AnswerEntry) and entry.flags.get("cancelled"):
            return False
        return "/" not in address or not self._inside_finished(address)

    def _was_cancelled(self, address: str, found: Recorded[Any]) -> bool:
        entry = found.entry
        if not isinstance(entry, StepEntry) or not entry.flags.get("cancelled"):
            return False
        return "/" not in address or not self._inside_finished(address)

    def _still_to_begin(self, end: Recorded[Any]) -> str | None:
        """Return a step that began before this end and was cancelled after it: the program has to call it first, or it would cancel another."""
        while self._cancelled and self._cancelled[-1][0] < end.record.at:
            if self._cancelled[-1][1] not in self._run.replay.requested:
                return self._cancelled[-1][1]
            self._cancelled.pop()
        return None

    def _inside_finished(self, address: str) -> bool:
        parts = address.split("/")
        around = (self._run.replay.entries.get("/".join(parts[:n])) for n in range(1, len(parts)))
        return any(one is not None and one.entry.status != RUNNING and not one.entry.flags.get("next") for one in around)

    async def _turn(self, seq: float) -> None:
        future: asyncio.Future[None] = self._loop.create_future()
        heappush(self._waiting, (seq, next(self._numbers), future))
        if not self._pumping:
            self._pumping = True
            self._loop.call_soon(self._after_turns, TURNS)
        await future

    def _after_turns(self, turns: int) -> None:
        """Call `_pump` when the event loop is idle, or after so many turns."""
        if turns <= 0 or not self._ready:
            self._pump()
        else:
            self._loop.call_soon(self._after_turns, turns - 1)

    def _pump(self) -> None:
        """Deliver the next end, if the program waits for it."""
        waiting = self._waiting
        while waiting and waiting[0][2].done():  # the program cancelled it
            heappop(waiting)
        if not waiting or (self._over and waiting[0][0] == inf):
            self._pumping = False
            return
        order = self._recorded_ends()
        expected = order[self._next][0] if self._next < len(order) else inf
        early = self._still_to_begin(order[self._next][2]) if self._cancelled and waiting[0][0] == expected != inf else None
        if early is not None:
            if not self._still_patient(early):
                self._cancelled.pop()
                self._missing = 0
        elif waiting[0][0] <= expected:
            self._hand_out(expected)
        elif not self._still_patient(order[self._next][1]):
            self._next += 1
            self._missing = 0
        if self._missing < PATIENT_TURNS:
            self._loop.call_soon(self._after_turns, TURNS if not self._missing else 0)
        else:
            self._loop.call_later(_LOOK_SECONDS, self._pump)

    def _hand_out(self, expected: float) -> None:
        seq, _, future = heappop(self._waiting)
        if seq == expected:
            self._next += 1
        self._missing = 0
        self._given += 1
        future.set_result(None)

    def _still_patient(self, address: str) -> bool:
        """Whether to wait longer for the program to ask for the next recorded end."""
        self._missing += 1
        if self._missing < PATIENT_TURNS:
            return True
        now = time.monotonic()
        if self._missing == PATIENT_TURNS or address in self._run.steps.flight:  # a replay that validates runs it now
            self._since = now
        waited = now - self._since
        if waited < PATIENCE and waited < self._patience:
            return True
        self._patience -= waited
        return False


def seconds_of(step: StepEntry) -> float:
    """Return how long a recorded step took."""
    return max(0.0, step.seconds)

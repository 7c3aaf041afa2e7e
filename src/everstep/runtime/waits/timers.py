"""Timers: waits with a recorded deadline, so that a run that dies or releases its process continues when the time has come.

A timer is a message of the run to itself. A workflow keeps its process for short waits and otherwise releases it. `tasks.parking` waits in
tasks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from everstep.backends.contract.capability import need
from everstep.backends.contract.mailbox import Mailbox
from everstep.clock import clock
from everstep.durations import to_seconds
from everstep.errors import InvalidArgument, Waiting
from everstep.fields import Shape
from everstep.runtime.waits.gates import MOST_SECONDS, address_of
from everstep.store.journal.entries import TimerEntry, pack
from everstep.store.query import to_us

if TYPE_CHECKING:
    from everstep.runtime.engine.attempt import Attempt

HOLD_SECONDS = 1.0


class Timer(Shape):
    """One wait of an attempt. `asked_at`: when its deadline was recorded; None if it was not."""

    run: Any
    address: str
    due: int
    asked_at: int | None

    def left(self) -> float:
        """Return the seconds until the deadline; negative when it has passed."""
        return (self.due - clock.now_us()) / 1e6

    def is_long(self) -> bool:
        """Whether a workflow releases its process for this wait."""
        return bool(self.run.options.workflow) and self.left() > HOLD_SECONDS

    def put(self) -> None:
        """Record the deadline with the next commit, once."""
        if self.asked_at is None:
            self.run.writer.put("timer", pack(TimerEntry(self.due)), self.address)

    def wake_then(self) -> None:
        """Wake the run at the deadline. An existing message stays."""
        with self.run.writer.lock:
            self.run.messages.send(f"timer:{self.address}", self.due)

    def drop_message(self) -> None:
        self.run.messages.take(f"timer:{self.address}")

    def waiting(self) -> Waiting:
        """Return the error that unwinds the program until the time has come."""
        waiting: Waiting = self.run.waiting(self.address, f"the time of {self.address!r}", self.due)
        return waiting

    def note_new(self) -> None:
        """Note a timer that is not recorded, in a validation, which does not wait."""
        if self.asked_at is None:
            from everstep.runtime.steps import validate

            validate.note_new(self.run, self.address)


def timer_of(run: Attempt, seconds: Any, until: Any) -> Timer:
    """Return the wait that the program asks for, with its recorded deadline if there is one."""
    due = _deadline_of(seconds, until)
    need(run.store.backend, Mailbox)
    address = address_of(run, "sleep")
    run.replay.requested.add(address)
    found = run.replay.asked.get(address)
    if found is None:
        return Timer(run, address, due, None)
    return Timer(run, address, due if found.entry.deadline is None else found.entry.deadline, found.record.at)


def sleep(run: Attempt, seconds: Any, until: Any) -> None:
    """Wait until a time, in this thread."""
    timer = timer_of(run, seconds, until)
    if run.dry:
        timer.note_new()
        return
    if timer.left() <= 0:
        timer.put()
        timer.drop_message()
        return
    run.boundary()
    timer.put()
    if timer.is_long():
        timer.wake_then()
        raise timer.waiting()
    if timer.asked_at is None:
        run.writer.write_entries()
    while (left := timer.left()) > 0:
        clock.nap(left, 0.2)
        run.listen()


def _deadline_of(seconds: Any, until: Any) -> int:
    if (seconds is None) == (until is None):
        raise InvalidArgument("sleep needs either seconds or until", remedy='Use sleep(60), sleep("2h") or sleep(until=datetime(...)).')
    if until is not None:
        return to_us(until) or 0
    number = to_seconds(seconds, "seconds")
    if not isinstance(number, (int, float)) or isinstance(number, bool) or not 0 <= number < MOST_SECONDS:
        raise InvalidArgument(f"seconds must be a number from 0 to {MOST_SECONDS:,.0f}, got {seconds!r:.60}")
    return clock.now_us() + int(number * 1e6)

"""What group commits have in common: work in line, those who lead it and wait for it, and the thread that leads what nobody waits for.

A caller puts its work into the line and tries to take the lock. Who gets it leads: it does everything that is in line, in order, and wakes those
whose work that was. Who does not get it sleeps until its work is settled, or until it is its turn to lead. A single caller pays for one
lock and no switch of threads. Relies on a writer for what it is to lead.

A leader may be interrupted, or find no memory, between any two operations: what is in line stays in line until it is settled and told, and the
next leader goes on from there. The thread starts with the first work that needs it and ends with its store.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from threading import get_ident
from typing import Any, Generic, Protocol, TypeVar

from everstep.backends.contract.core import Done
from everstep.threads.background import Service
from everstep.threads.guard import WRITER, enter
from everstep.threads.wakeup import Nudge

PATIENCE = 0.2  # seconds
MOMENT = 1.0  # after which the thread looks for work that nobody had the memory to tell it of


class Work:
    """Something in line. `wake` exists only if somebody sleeps for it; `gone`: who asked for it has left, it is not to be begun."""

    __slots__ = ("begun", "done", "error", "gone", "result", "settled", "thread", "wake")

    def __init__(self, done: Done | None) -> None:
        self.thread = get_ident()
        self.done = done
        self.result: Any = None
        self.error: BaseException | None = None
        self.begun = self.gone = self.settled = False
        self.wake: Nudge | None = None

    def nap(self) -> None:
        """Until it is settled, or for a moment. The first one is none: it may have been settled before anybody knew of a sleeper."""
        if self.wake is None:
            self.wake = Nudge()
        else:
            self.wake.wait(PATIENCE)

    def leave(self) -> bool:
        """Have it not done; False if a leader has it in hand. Said before it is asked, as a leader begins before it looks: one of both sees the other."""
        self.gone = True
        return not self.begun

    def tell(self) -> None:
        """Call back. An error of a callback is reported; it belongs to no caller of ours. Interrupted, or without memory, the call is made again later."""
        if self.done is None:
            return
        try:
            self.done(self.result if self.error is None else self.error)
        except MemoryError:
            raise
        except Exception:  # noqa: BLE001 - reported, see above
            sys.excepthook(*sys.exc_info())
        self.done = None


class Holder(Protocol):
    """Who can have the lock: it belongs to a thread."""

    @property
    def thread(self) -> int | None: ...


class Guest(Nudge):
    """One that waits for the lock in turn."""

    __slots__ = ("thread",)

    def __init__(self) -> None:
        super().__init__()
        self.thread = get_ident()


class Hold:
    """A lock that knows who has it. Taken in one operation that Ctrl-C can't divide: who is interrupted can ask whether to let it go."""

    __slots__ = ("_by",)
    rank = WRITER

    def __init__(self) -> None:
        self._by: dict[int, Holder] = {}

    def take(self, who: Holder) -> bool:
        return self._by.setdefault(0, who) is who

    def held_by(self, who: object) -> bool:
        return self._by.get(0) is who

    def owned(self) -> bool:
        """Whether the calling thread has it."""
        holder = self._by.get(0)
        return holder is not None and holder.thread == get_ident()

    def pass_to(self, who: Holder) -> None:
        self._by[0] = who

    def let_go(self) -> None:
        self._by.pop(0, None)


W = TypeVar("W", bound=Work)


class Line(Generic[W]):
    """Work in the order in which it came: `waiting`, then in the `batch` of the leader. Anybody adds at the end; all else needs the writer's lock."""

    __slots__ = ("batch", "waiting")

    def __init__(self) -> None:
        self.waiting: deque[W] = deque()
        self.batch: list[W] = []

    def __bool__(self) -> bool:
        return bool(self.waiting or self.batch)

    def take(self, most: int) -> None:
        """Fill the batch. In between, a work stands in both, never in none."""
        waiting, batch = self.waiting, self.batch
        while waiting and len(batch) < most:
            work = waiting[0]
            batch.append(work)
            waiting.popleft()
            work.begun = True

    def put_back(self) -> None:
        """Leave what is not settled to the next leader. Begun again after it was broken off, it does the rest."""
        waiting, batch = self.waiting, self.batch
        for place in reversed(range(len(batch))):
            work = batch[place]
            if work.settled:
                continue
            if not work.gone and not (waiting and waiting[0] is work):
                waiting.appendleft(work)
            work.error = None
            work.begun = False
            del batch[place]

    def tell(self) -> list[Nudge]:
        """Call back for all of the batch, which is over then. Who sleeps is given: woken while the writer's lock is held, it would only wait for that."""
        batch = self.batch
        sleepers = [work.wake for work in batch if work.wake is not None]
        for work in batch:
            work.tell()
        batch.clear()
        return sleepers

    def clear(self) -> None:
        self.waiting.clear()
        self.batch.clear()


class Leading:
    """The thread. `lead` leads once if there is anything, and gives whether there was."""

    def __init__(self, lead: Callable[[], bool]) -> None:
        self._lead = lead
        self._service = Service(self._serve, every=MOMENT)

    @property
    def thread(self) -> int | None:
        return self._service.thread

    def start(self) -> None:
        """See that it is there, before anything is in line for it: where no thread is to be had, nothing was."""
        self._service.start()

    def nudge(self) -> None:
        """Have it look. Without memory even for that, it looks by itself after a moment."""
        try:
            self._service.nudge()
        except MemoryError:
            return

    def _serve(self) -> None:
        while self._lead():
            continue

    def end(self) -> None:
        """When everything is written."""
        self._service.end()


class Leaders(ABC, Generic[W]):
    """Whoever has work to be done leads, or waits for one who does. A backend says what it is to lead, and to go over what a leader left."""

    def __init__(self) -> None:
        self._line: Line[W] = Line()
        self._hold = Hold()
        self._leading = Leading(self._lead_queued)

    def _do(self, work: W) -> Any:
        """Have work done, here or by another; return its result. Interrupted, it leaves the work done or never to be done."""
        enter(self._hold)
        try:
            self._line.waiting.append(work)
            while not work.settled:  # to be woken unsettled means that nobody leads
                if self._hold.take(work):
                    self._lead_and_unlock(work)
                else:
                    work.nap()  # not for long: Ctrl-C in a leader may have cost us the call
        except BaseException:
            self._leave(work)
            raise
        if work.error is not None:
            raise work.error
        return work.result

    def _hand_in(self, work: W) -> None:
        """Have work done soon, by the thread if nobody else leads."""
        self._leading.start()
        self._line.waiting.append(work)
        self._leading.nudge()

    def _leave(self, work: W) -> None:
        """Ctrl-C in a caller: its turn to lead must not be lost with it, nor the lock, and what a leader has is settled before anybody asks."""
        work.gone = True
        if self._hold.held_by(work):
            try:
                self._go_over()
            finally:
                self._unlock(work)
        if not work.leave():
            self._see_settled(work)
        self._nudge()

    def _see_settled(self, work: W) -> None:
        """Wait for a leader that has the work in hand; it needs no longer than one transaction."""
        while not work.settled:
            if self._hold.take(work):
                self._unlock(work)
                return
            work.nap()

    def _lead_queued(self) -> bool:
        """By the thread. Where somebody leads already, that one sees to what has come meanwhile. A lock that it could not let go is let go now."""
        if not (self._line or self._hold.held_by(self._leading)) or not self._hold.take(self._leading):
            return False
        self._lead_and_unlock(self._leading)
        return True

    def _lead_and_unlock(self, who: W | Leading) -> None:
        sleepers: Sequence[Nudge] = ()
        try:
            sleepers = self._lead()
        except BaseException:
            if isinstance(who, Work):
                who.gone = True
            sleepers = self._go_over()
            raise
        finally:
            self._unlock(who)
            for sleeper in sleepers:
                sleeper.give()

    @abstractmethod
    def _lead(self) -> Sequence[Nudge]:
        """Do what is in line, a batch of it at most; return who sleeps for it."""

    @abstractmethod
    def _go_over(self) -> Sequence[Nudge]:
        """After a leader that was interrupted: settle what it did, leave the rest to the next one."""

    def _unlock(self, _who: Holder) -> None:
        """Let the lock go, and see that somebody leads what has come meanwhile."""
        self._hold.let_go()
        if self._line.waiting:
            self._nudge()

    def _nudge(self) -> None:
        try:
            first = self._line.waiting[0]
        except IndexError:
            return  # another leader was faster
        if first.done is not None or first.gone:
            self._leading.nudge()
        elif first.wake is not None:
            first.wake.give()

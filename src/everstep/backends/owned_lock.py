"""The lock of a store's writer: it knows its owner, and passes to guests in turn. Relies on `threads` for waiting and ranks; no I/O."""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from threading import get_ident
from typing import Protocol

from everstep.threads.guard import WRITER, enter
from everstep.threads.wakeup import Wakeup

PATIENCE = 0.2
"""Seconds after which a waiter checks by itself: Ctrl-C in another thread may have lost its wake-up."""


class Owner(Protocol):
    """An object that can own the lock: a request, a guest, the leader thread."""

    @property
    def thread(self) -> int | None: ...


class Guest(Wakeup):
    """A thread that needs the lock for something other than a request: to merge the WAL, to close the store."""

    __slots__ = ("thread",)

    def __init__(self) -> None:
        super().__init__()
        self.thread = get_ident()


class OwnedLock:
    """A lock that knows its owner.

    Ctrl-C can arrive after a thread has taken a lock and before it has noted that. With a lock of `threading`, the
    interrupted thread cannot know whether it has to release the lock. Here `take` is one operation of the interpreter, `dict.setdefault`,
    which Ctrl-C cannot divide: it stores the owner, or returns the stored owner. An interrupted thread calls `held_by` and releases the
    lock if it is the owner. Without this, one Ctrl-C in some hundreds blocked every writer permanently (decision 23).
    """

    __slots__ = ("_guests", "_next", "_owner")
    rank = WRITER

    def __init__(self) -> None:
        self._owner: dict[int, Owner] = {}
        self._guests: deque[Guest] = deque()
        self._next: list[Guest] = []  # the guest that gets the lock next

    def take(self, owner: Owner) -> bool:
        """Take the lock if it is free; return whether this owner has it now."""
        return self._owner.setdefault(0, owner) is owner

    def held_by(self, owner: object) -> bool:
        return self._owner.get(0) is owner

    def owned(self) -> bool:
        """Return whether the calling thread owns it."""
        owner = self._owner.get(0)
        return owner is not None and owner.thread == get_ident()

    def release(self, owner: Owner) -> bool:
        """Hand the lock to the first guest, or free it; return whether it is free."""
        while True:
            if (self._guests or self._next) and (guest := self._next_guest(owner)) is not None:
                self._owner[0] = guest
                self._next.clear()
                guest.give()
                return False
            self._owner.pop(0, None)
            if not self._guests or not self.take(owner):
                return True
            # A guest came between the check and the release, found the lock taken and waits: hand it over after all.

    def _next_guest(self, owner: Owner) -> Guest | None:
        """Take a guest out of the queue and note it in one operation: after an interruption, the owner hands over to the same guest."""
        if self._next and self._next[0] is owner:
            self._next.clear()  # this guest has the lock already; only the list was not updated
        if not self._next:
            with suppress(IndexError):  # the guest was interrupted and has left the queue
                self._next.extend(map(deque.popleft, (self._guests,)))
        return self._next[0] if self._next else None

    def wait_turn(self) -> Guest:
        """Take the lock as a guest; return the guest, to release it with. The owner hands the lock over: without that, a loop of commits
        would take it again before a waiter wakes up."""
        enter(self)
        guest = Guest()
        try:
            self._guests.append(guest)
            if self.take(guest):
                self._guests.remove(guest)
            else:
                self._await_turn(guest)
        except BaseException:
            self._leave_queue(guest)
            raise
        return guest

    def _await_turn(self, guest: Guest) -> None:
        while not self.held_by(guest):
            guest.wait(PATIENCE)

    def _leave_queue(self, guest: Guest) -> None:
        """Leave the queue after Ctrl-C in a guest. If the lock is being handed to it, it takes and releases it."""
        try:
            self._guests.remove(guest)
        except ValueError:
            self._await_turn(guest)
        if self.held_by(guest):
            self.release(guest)

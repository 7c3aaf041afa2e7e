"""Group commit: many threads ask for writes, and one of them writes for all, with one fsync.

A thread appends its request to the queue and tries to take the lock. If it gets the lock, it is the leader: it writes all waiting
requests as one batch, releases the lock and wakes up the threads that made them. If not, it waits until its request is settled or the
lock is free. A single thread pays for one lock and no thread switch. A submitted request has a callback instead of a waiting
thread; if no caller leads, the leader thread does. That thread starts with the first such request and ends with its store.

Ctrl-C can interrupt a leader between any two operations. Until a request is settled and its callback was made, it is in the queue or in
the batch, and the next leader continues from there. A MemoryError in the leader poisons the handle: it refuses all further writes.

Relies on a backend to write a batch; see `GroupCommit`. Never changes the order of requests.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from threading import get_ident
from typing import Any

from everstep.backends.contract.core import Done
from everstep.backends.owned_lock import PATIENCE, OwnedLock, Owner
from everstep.errors import StoreClosed, StoreFailed, Written
from everstep.threads.background import BackgroundThread
from everstep.threads.guard import enter
from everstep.threads.wakeup import Wakeup

_LOOK_SECONDS = 1.0  # how often the leader thread looks for requests whose wake-up was lost to Ctrl-C
_NO_MEMORY = "memory ran out inside the writer"


class Request:
    """One requested write: an operation of the backend with its argument. `done` is called when it is settled; without it, a thread waits."""

    __slots__ = ("abandoned", "again", "argument", "begun", "done", "error", "operation", "result", "settled", "thread", "wakeup")

    def __init__(self, operation: Any, argument: Any = None, done: Done | None = None) -> None:
        self.operation = operation
        self.argument = argument
        self.done = done
        self.thread = get_ident()
        self.result: Any = None
        self.error: BaseException | None = None
        self.begun = self.abandoned = self.settled = False
        self.again = False  # it was sent to a server before, and the answer was lost
        self.wakeup: Wakeup | None = None

    def wait(self) -> None:
        """Wait until it is settled, or for a moment. The first call returns at once: it may have settled before the waiter was registered."""
        if self.wakeup is None:
            self.wakeup = Wakeup()
        else:
            self.wakeup.wait(PATIENCE)

    def abandon(self) -> bool:
        """Prevent the write; return False if a leader has begun it. Sets `abandoned` before it reads `begun`; the leader sets `begun`
        before it reads `abandoned`. At least one of them sees the other."""
        self.abandoned = True
        return not self.begun

    def notify(self) -> None:
        """Make the callback. If Ctrl-C or a MemoryError interrupts it, the next leader makes it again. Any other error goes to
        `sys.excepthook`: the leader may not be the thread that made the request."""
        if self.done is None:
            return
        try:
            self.done(self.result if self.error is None else self.error)
        except MemoryError:
            raise
        except Exception:  # noqa: BLE001 - reported, see above
            sys.excepthook(*sys.exc_info())
        self.done = None


class Batch:
    """Requests in the order of arrival: first `waiting`, then among the leader's `requests`. Any thread appends; the rest needs the lock."""

    __slots__ = ("_most", "requests", "waiting")

    def __init__(self, most: int) -> None:
        self._most = most
        self.waiting: deque[Request] = deque()
        self.requests: list[Request] = []

    def __bool__(self) -> bool:
        return bool(self.waiting or self.requests)

    def fill(self) -> list[Request]:
        """Move waiting requests to the leader's requests. In between, a request is in both lists, never in neither."""
        waiting, requests = self.waiting, self.requests
        while waiting and len(requests) < self._most:
            request = waiting[0]
            requests.append(request)
            waiting.popleft()
            request.begun = True
        return requests

    def put_back(self) -> None:
        """Leave unsettled requests to the next leader; drop abandoned ones."""
        waiting, requests = self.waiting, self.requests
        for index in reversed(range(len(requests))):
            request = requests[index]
            if request.settled:
                continue
            if not request.abandoned and not (waiting and waiting[0] is request):
                waiting.appendleft(request)
            request.error = None
            request.begun = False
            del requests[index]

    def notify(self) -> list[Wakeup]:
        """Make all callbacks and end the batch. Returns the waiters instead of waking them: woken now, they would only block on the lock."""
        requests = self.requests
        waiters = [request.wakeup for request in requests if request.wakeup is not None]
        for request in requests:
            request.notify()
        requests.clear()
        return waiters

    def clear(self) -> None:
        self.waiting.clear()
        self.requests.clear()


class LeaderThread:
    """The thread that leads requests for which no thread waits."""

    def __init__(self, lead: Callable[[], None]) -> None:
        self._thread = BackgroundThread(lead, every=_LOOK_SECONDS)

    @property
    def thread(self) -> int | None:
        return self._thread.thread

    def start(self) -> None:
        """Return when it runs. Called before a request is queued for it: if the system cannot start a thread, nothing was queued."""
        self._thread.start()

    def wake(self) -> None:
        self._thread.wake()

    def end(self) -> None:
        """End it, after everything is written."""
        self._thread.end()


class GroupCommit(ABC):
    """Writes the requests of all threads, in order. A backend defines how to write a batch, and how to find out whether an interrupted
    batch was written."""

    def __init__(self, address: str, most: int) -> None:
        self._shown_address = address
        self._batch = Batch(most)
        self._lock = OwnedLock()
        self._thread = LeaderThread(self._lead_submitted)
        self._failure: str | None = None
        self._closed = False

    def perform(self, request: Request) -> Any:
        """Write a request, or wait for the leader that does; return its result. An interrupted one is either written or never will be."""
        batch, lock = self._batch, self._lock
        enter(lock)
        try:
            batch.waiting.append(request)
            while not request.settled:
                if lock.take(request):  # this thread leads; these are the lines of `_lead`, to save a call in every commit
                    if batch.requests:
                        self._recover()
                    self._write(batch.fill())
                    self._release(request, batch.notify())
                else:
                    request.wait()
        except BaseException as error:
            try:
                poisoned = self._leave(request, error)
            finally:
                if lock.held_by(request):  # a second Ctrl-C came while the first one was handled
                    self._release(request)
            if poisoned:
                raise self._poisoned(_NO_MEMORY, "unknown") from error
            raise
        if request.error is not None:
            raise request.error
        return request.result

    def enqueue(self, request: Request) -> None:
        """Queue a request with a callback; the leader thread writes it soon if no caller leads."""
        self._thread.start()
        self._batch.waiting.append(request)
        self._thread.wake()

    def _lead_submitted(self) -> None:
        """Run in the leader thread. If another thread leads, that one wakes this thread for the remaining requests."""
        while self._batch and self._lock.take(self._thread):
            try:
                self._release(self._thread, self._lead())
            except BaseException as error:
                if self._lock.held_by(self._thread):
                    self._break_off(self._thread, error)
                raise

    def _lead(self) -> list[Wakeup]:
        """Write one batch; return the waiters. The calling thread owns the lock."""
        if self._batch.requests:
            self._recover()  # an interrupted leader left them
        self._write(self._batch.fill())
        return self._batch.notify()

    @abstractmethod
    def _write(self, requests: list[Request]) -> None:
        """Write the requests and settle each one, by a result or by an error. An empty batch is fine."""

    @abstractmethod
    def _recover(self) -> list[Wakeup]:
        """Settle what an interrupted leader wrote, put the rest back; return the waiters."""

    def _release(self, owner: Owner, waiters: Sequence[Wakeup] = ()) -> None:
        """Release the lock, wake up the waiters, and make sure that a thread leads the requests that have arrived meanwhile."""
        free = self._lock.release(owner)
        for waiter in waiters:
            waiter.give()
        if free and self._batch.waiting:
            self._wake_next()

    def _wake_next(self) -> None:
        try:
            first = self._batch.waiting[0]
        except IndexError:
            return  # another leader was faster
        if first.done is not None or first.abandoned:
            self._thread.wake()
        elif first.wakeup is not None:
            first.wakeup.give()

    def _leave(self, request: Request, error: BaseException) -> bool:
        """Handle an error in a caller, mostly Ctrl-C: release the lock, and return when the request is settled or dropped.

        True if the handle is poisoned.
        """
        request.abandoned = True
        leading = self._lock.held_by(request)
        if leading:
            self._break_off(request, error)
        if not request.abandon():
            while not request.settled and not self._lock.take(request):
                request.wait()  # for the leader that has begun it; that takes no longer than one transaction
            if self._lock.held_by(request):
                self._release(request)
        self._wake_next()
        return leading and isinstance(error, MemoryError)

    def _break_off(self, owner: Owner, error: BaseException) -> None:
        """Handle the interruption of a leader: settle what it wrote, leave the rest to the next leader, release the lock."""
        if isinstance(error, MemoryError):
            self.poison(_NO_MEMORY)
        waiters: list[Wakeup] = []
        try:
            waiters = self._recover()
        finally:
            self._release(owner, waiters)

    def poison(self, reason: str) -> None:
        """Refuse all further writes through this handle."""
        if self._failure is None:
            self._failure = reason

    def _poisoned(self, reason: str, written: Written) -> StoreFailed:
        said = f" accepts no more writes: {reason}" if written == "no" else f": {reason}; it is unknown whether the save was written"
        failure = StoreFailed(f"{self._shown_address}{said}", written=written)
        failure.lasting, failure.address = True, self._shown_address
        return failure

    def _check_usable(self) -> None:
        if self._closed:
            raise StoreClosed(f"the store {self._shown_address} is closed")
        if self._failure is not None:
            raise self._poisoned(self._failure, "no")

    def close(self, last: Callable[[], None] | None = None) -> None:
        """Write all queued requests, call `last`, then refuse everything."""
        owner = self._lock.wait_turn()
        waiters: list[Wakeup] = []
        try:
            while self._batch:
                waiters += self._lead()
            if last is not None:
                last()
        finally:
            self._closed = True
            try:
                while self._batch:  # closing was interrupted: refuse the rest
                    waiters += self._lead()
            finally:
                self._disconnect()
                self._release(owner, waiters)
                self._thread.end()

    @abstractmethod
    def _disconnect(self) -> None:
        """Close the connection."""

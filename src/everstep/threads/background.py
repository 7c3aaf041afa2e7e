"""A background thread of a store: started on first use, ended with the store.

Works when memory is exhausted: `start` either gets a running thread or raises, and a turn that runs out of memory does not end the thread.
A `threading.Thread` reports its start through an Event, and its creator waits forever if that report is lost.
"""

from __future__ import annotations

import os
from _thread import start_new_thread
from collections.abc import Callable
from threading import Lock, get_ident

from everstep.errors import StoreBusy
from everstep.threads.guard import WRITER, Guard
from everstep.threads.wakeup import Wakeup

_TRIES = 10
_PATIENCE = 0.5  # seconds for a thread to begin; one that begins later finds another thread in its place, and ends
_REMEDY = "Try again with fewer threads or more memory; `ulimit -u` and the limits of the container show how many threads are allowed."


class BackgroundThread:
    """Calls `turn` at each wake-up, and `every` so many seconds."""

    def __init__(self, turn: Callable[[], None], every: float = -1) -> None:
        self._turn = turn
        self._every = every
        self._wakeup = Wakeup()
        self._starting = Guard(WRITER)
        self._claimed = Lock()
        self._begun = Wakeup()
        self._over = Lock()
        self._thread: int | None = None
        self._process = os.getpid()
        self._ended = False

    @property
    def thread(self) -> int | None:
        """The ident of the thread, once it runs."""
        return self._thread

    @property
    def started(self) -> bool:
        return self._thread is not None

    def start(self) -> None:
        """Return when the thread runs; raises StoreBusy if no thread can be started."""
        if self._thread is not None:
            return
        if self._starting.owned():
            self._starting.check()  # interrupted during its own start: waiting for the thread would not help
        self._starting.acquire()
        try:
            for _ in range(_TRIES):
                if self._thread is not None or self._ended:
                    return
                start_new_thread(self._serve, ())
                self._begun.wait(_PATIENCE)
            if self._thread is None:
                raise StoreBusy("the store could not start a thread: none began", remedy=_REMEDY)
        except RuntimeError as error:
            raise StoreBusy(f"the store could not start a thread: {error}", remedy=_REMEDY) from error
        finally:
            self._starting.release()

    def wake(self) -> None:
        self._wakeup.give()

    def _serve(self) -> None:
        if not self._claimed.acquire(False):
            return
        self._over.acquire()
        try:
            self._thread = get_ident()
            self._begun.give()
            while not self._ended:
                try:
                    self._wakeup.wait(self._every)
                    if not self._ended:
                        self._turn()
                except MemoryError:
                    continue
        finally:
            self._over.release()

    def end(self) -> None:
        """Return when the thread has ended; it is not started again. A forked child has no such thread."""
        self._ended = True
        self._wakeup.give()
        if self._thread is not None and self._thread != get_ident() and os.getpid() == self._process:
            self._over.acquire()
            self._over.release()

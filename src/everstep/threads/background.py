"""A thread of a store: started when it is first needed, ended with the store.

Made for moments without memory: starting one either gives a thread that serves or raises, and what it does may run out of memory without ending
it. A Thread of `threading` tells through an Event that it has begun, and whoever starts it waits for ever if that was never told.
"""

from __future__ import annotations

import os
from _thread import start_new_thread
from collections.abc import Callable
from threading import Lock, get_ident

from everstep.errors import StoreBusy
from everstep.threads.guard import WRITER, Guard
from everstep.threads.wakeup import Nudge

_TRIES = 10
_PATIENCE = 0.5  # seconds that a thread has to begin; one that comes later finds its place taken, and goes
_REMEDY = "Try again when there are fewer threads or more memory; `ulimit -u` and the limit of the container say how many there may be."


class Service:
    """Does `turn` whenever it is nudged, and `every` so many seconds."""

    def __init__(self, turn: Callable[[], None], every: float = -1) -> None:
        self._turn = turn
        self._every = every
        self._nudge = Nudge()
        self._starting = Guard(WRITER)
        self._place = Lock()
        self._begun = Nudge()
        self._over = Lock()
        self._thread: int | None = None
        self._process = os.getpid()
        self._ended = False

    @property
    def thread(self) -> int | None:
        """The ident of the thread, once it serves."""
        return self._thread

    @property
    def started(self) -> bool:
        return self._thread is not None

    def start(self) -> None:
        """Return when it serves; where no thread is to be had, the store is busy."""
        if self._thread is not None:
            return
        if self._starting.owned():
            self._starting.check()  # interrupted while it starts it: waiting for the thread would not help
        self._starting.acquire()
        try:
            for _ in range(_TRIES):
                if self._thread is not None or self._ended:
                    return
                start_new_thread(self._serve, ())
                self._begun.wait(_PATIENCE)
            if self._thread is None:
                raise StoreBusy("the store got no thread: none began", remedy=_REMEDY)
        except RuntimeError as error:
            raise StoreBusy(f"the store got no thread: {error}", remedy=_REMEDY) from error
        finally:
            self._starting.release()

    def nudge(self) -> None:
        self._nudge.give()

    def _serve(self) -> None:
        if not self._place.acquire(False):
            return
        self._over.acquire()
        try:
            self._thread = get_ident()
            self._begun.give()
            while not self._ended:
                try:
                    self._nudge.wait(self._every)
                    if not self._ended:
                        self._turn()
                except MemoryError:
                    continue
        finally:
            self._over.release()

    def end(self) -> None:
        """Return when it has ended, and start it no more. In a forked child there is no such thread."""
        self._ended = True
        self._nudge.give()
        if self._thread is not None and self._thread != get_ident() and os.getpid() == self._process:
            self._over.acquire()
            self._over.release()

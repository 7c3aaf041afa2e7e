"""What group commits have in common: work in a queue, how those who wait for it learn of its end, and the thread that leads what nobody waits for.

Relies on a writer to lead. The thread starts with the first work that needs it and ends with its store; a moment without memory does not end it.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from everstep.backends.base import Done
from everstep.nudge import Nudge

PATIENCE = 0.2  # seconds


class Work:
    """Something in the queue. `wake` exists only if somebody sleeps for it."""

    __slots__ = ("done", "error", "result", "settled", "wake")

    def __init__(self, done: Done | None) -> None:
        self.done = done
        self.result: Any = None
        self.error: BaseException | None = None
        self.settled = False
        self.wake: Nudge | None = None

    def nap(self) -> None:
        """Until it is settled, or for a moment. The first one is none: it may have been settled before anybody knew of a sleeper."""
        if self.wake is None:
            self.wake = Nudge()
        else:
            self.wake.wait(PATIENCE)

    def tell(self) -> None:
        """Wake the sleeper, or call back. An error of a callback is reported, but belongs to no caller of ours."""
        if self.wake is not None:
            self.wake.give()
        if self.done is not None:
            try:
                self.done(self.error)
            except Exception:  # noqa: BLE001 - reported, see above
                sys.excepthook(*sys.exc_info())


class Leading:
    """The thread. `lead` leads once if there is anything, and gives whether there was."""

    def __init__(self, lead: Callable[[], bool]) -> None:
        self._lead = lead
        self._nudge = Nudge()
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        self._ended = False

    def start(self) -> None:
        """See that it is there, before anything is queued for it: where no thread is to be had, nothing was."""
        if self._thread is None:
            with self._starting:
                if self._thread is None:
                    thread = threading.Thread(target=self._serve, name="everstep-writer", daemon=True)
                    thread.start()
                    self._thread = thread

    def nudge(self) -> None:
        self._nudge.give()

    def _serve(self) -> None:
        while not self._ended:
            self._nudge.wait()
            while self._leads():
                continue

    def _leads(self) -> bool:
        try:
            return self._lead()
        except MemoryError:
            time.sleep(PATIENCE)  # what it had is in the queue again
            return True

    def end(self) -> None:
        """When everything is written."""
        self._ended = True
        self._nudge.give()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def forget(self) -> None:
        """In a forked child, where there is no such thread."""
        self._ended = True
        self._thread = None

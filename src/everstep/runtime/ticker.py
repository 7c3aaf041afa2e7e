"""Makes the checkpoints that a policy wants in the middle of a long step. One thread for a run that has such a policy.

The program may be changing the state at that moment, in its own thread. So the state is copied as it stands, and the copy is saved as a
whole; the live state's own account of its changes is not touched, and the next regular checkpoint says everything anew.
"""

from __future__ import annotations

import threading
import time
from math import inf
from typing import TYPE_CHECKING

from everstep.backends.base import Commit
from everstep.codec.values import decode, encode
from everstep.errors import EverstepError
from everstep.snapshot.saver import Saver
from everstep.store.model import with_header
from everstep.store.writing import Chain

if TYPE_CHECKING:
    from everstep.runtime.driver import Driver

LOOK_SECONDS = 1.0  # a new rhythm is noticed after this


class Ticker:
    """Watches the clock while steps are running."""

    def __init__(self, run: Driver, seconds: float):
        self._run = run
        self._seconds = seconds
        self._stop = threading.Event()
        self.failure: Exception | None = None
        self._thread = threading.Thread(target=self._watch, name="everstep-ticker", daemon=True)
        self._thread.start()

    def change(self, seconds: float | None) -> None:
        """Go on in another rhythm, or with none."""
        self._seconds = inf if seconds is None else seconds

    def stop(self) -> None:
        self._stop.set()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def _watch(self) -> None:
        run = self._run
        while not self._stop.wait(min(LOOK_SECONDS, max(0.005, self._seconds - (time.monotonic() - run._saved_at)))):
            if run._flight and time.monotonic() - run._saved_at >= self._seconds:
                self._save()

    def _save(self) -> None:
        """A copy that could not be made because the program was just changing the state is made at the next look."""
        run = self._run
        try:
            copy = decode(encode(run._open()[1].state))
        except (RuntimeError, MemoryError, EverstepError) as error:
            self.failure = error  # best effort: the step's end makes the next checkpoint, and reports what is wrong with the state
            self._stop.wait(min(0.05, self._seconds))
            return
        if self._stop.is_set():
            return
        run._fire("before_checkpoint", kind="automatic")
        with run._lock:
            try:
                commit = self._commit(copy)
            except (MemoryError, EverstepError) as error:
                self.failure = error  # best effort: the next commit of the run meets the same trouble and reports it
                run._saved_at = time.monotonic()
                return
        run._made(commit)

    def _commit(self, copy: object) -> Commit:
        run = self._run
        row, _ = run._open()
        saver = Saver(run._store.framer.wrap)
        mask = run._mask
        saver.begin(copy if mask is None else mask(copy))
        chain = Chain(run._store.framer, row, row)
        chain.entries(run._entries)
        trigger = run._mode.policy.due("", None, 0, self._seconds)
        chain.checkpoint(saver.build(whole=True), None, (), with_header(None, run._header("automatic", trigger, False)))
        commit = chain.commit()
        run._durable(commit)  # where saves are deferred, this one has to come after them
        run._entries = []
        run._row = commit.run
        run._stale = True
        return commit

"""Makes the checkpoints that a policy wants in the middle of a long step. One thread serves all open runs of the process.

The program may be changing the state at that moment, in its own thread. So the state is copied and the copy is saved as a whole. The live
state's own list of changes is not touched, and the next regular checkpoint contains all of them again.
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING

from everstep.backends.contract.core import Commit
from everstep.codec.values import decode, encode
from everstep.errors import EverstepError
from everstep.snapshot.saver import Saver
from everstep.store.chain import Chain
from everstep.store.views import own_text

if TYPE_CHECKING:
    from everstep.runtime.engine.attempt import Attempt

LOOK_SECONDS = 1.0  # a changed interval takes effect after at most this


class Ticker:
    """Watches the clock for one run while its steps are running."""

    def __init__(self, run: Attempt, seconds: float):
        self._run = run
        self._seconds = seconds
        self._stopped = False
        self._saving = threading.RLock()  # a hook of the save may close the run
        self._not_before = 0.0
        self.failure: Exception | None = None
        _Clock.add(self)

    def change(self, seconds: float | None) -> None:
        """Continue with another interval, or with none."""
        self._seconds = inf if seconds is None else seconds

    def stop(self) -> None:
        """Stop saving, and return when no save of this ticker is in progress."""
        self._stopped = True
        _Clock.remove(self)
        with self._saving:
            pass

    def due_in(self) -> float:
        """Return in how many seconds to check this ticker next."""
        if not self._run.steps.flight:
            return min(LOOK_SECONDS, max(0.005, self._seconds))
        due = max(self._run.saves.saved_at + self._seconds, self._not_before)
        return min(LOOK_SECONDS, max(0.005, due - time.monotonic()))

    def look(self) -> None:
        """Save, if a step is running and the newest checkpoint is too old."""
        run, now = self._run, time.monotonic()
        with self._saving:
            if not self._stopped and run.steps.flight and now - run.saves.saved_at >= self._seconds and now >= self._not_before:
                try:
                    self._save()
                except Exception as error:  # noqa: BLE001 - best effort, and the thread serves other runs, too
                    self.failure = error
                    self._not_before = now + LOOK_SECONDS

    def _save(self) -> None:
        """Save a copy of the state. If the program is changing the state just now, the next check tries again."""
        run = self._run
        try:
            copy = decode(encode(run.live()[1].state))
        except (RuntimeError, EverstepError) as error:
            self.failure = error  # best effort: the step's end makes the next checkpoint, and reports the error of the state
            self._not_before = time.monotonic() + min(0.05, self._seconds)
            return
        if self._stopped:
            return
        span = run.saves.announce("automatic")
        with run.writer.lock:
            try:
                commit = self._commit(copy)
            except EverstepError as error:
                self.failure = error  # best effort: the next commit of the run gets the same error and reports it
                run.saves.saved_at = time.monotonic()
                run.saves.not_made(span, error)
                return
        run.saves.made(commit, span)

    def _commit(self, copy: object) -> Commit:
        run = self._run
        row, _ = run.live()
        saver = Saver(run.store.framer.inner.wrap)
        mask = run.mask
        saver.begin(copy if mask is None else mask(copy))
        chain = Chain(run.store.framer, row, row, run.store.backend.seal)
        chain.entries(run.writer.entries)
        trigger = run.options.policy.due("", None, 0, self._seconds)
        chain.checkpoint(saver.build(whole=True), own=own_text(run.saves.header("automatic", trigger, False)))
        commit = chain.commit()
        run.writer.make_durable(commit)  # deferred saves come first
        run.writer.entries = []
        run.row = commit.run
        run.writer.stale = True
        return commit


class _Clock:
    """The thread that checks all tickers in turn. It ends when there are none left."""

    _lock = threading.Lock()
    _tickers: set[Ticker] = set()  # noqa: RUF012 - one for the process
    _changed = threading.Event()
    _thread: threading.Thread | None = None
    _process = 0

    @classmethod
    def add(cls, ticker: Ticker) -> None:
        with cls._lock:
            if cls._process != os.getpid():  # a forked child has neither the thread nor the runs of its parent
                cls._process, cls._thread, cls._tickers = os.getpid(), None, set()
            cls._tickers.add(ticker)
            if cls._thread is None:
                cls._thread = threading.Thread(target=cls._serve, name="everstep-ticker", daemon=True)
                cls._thread.start()
        cls._changed.set()

    @classmethod
    def remove(cls, ticker: Ticker) -> None:
        with cls._lock:
            cls._tickers.discard(ticker)
        cls._changed.set()

    @classmethod
    def _serve(cls) -> None:
        while True:
            with cls._lock:
                if not cls._tickers:
                    cls._thread = None
                    return
            with suppress(MemoryError):  # the thread saves for all runs of the process
                cls._look()

    @classmethod
    def _look(cls) -> None:
        tickers = list(cls._tickers)
        cls._changed.wait(min((ticker.due_in() for ticker in tickers), default=0.0))
        cls._changed.clear()
        for ticker in tickers:
            ticker.look()

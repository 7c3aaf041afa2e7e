"""Closes runs in their own thread, when they are abandoned where no save is possible.

The garbage collector closes an unreferenced generator in the middle of any code of the thread: perhaps of a save, whose locks it would wait
for. A handle that is collected without being closed would keep its lease for as long as the process lives. Both are released here as after a
crash: the run stays resumable. Closing a store waits for them.
"""

from __future__ import annotations

import os
import sys
from _thread import start_new_thread
from collections.abc import Callable
from contextlib import suppress
from time import monotonic, sleep
from typing import TYPE_CHECKING

from everstep.errors import StoreClosed

if TYPE_CHECKING:
    from everstep.runtime.engine.attempt import Attempt

_PATIENCE = 10.0  # seconds that a store waits, when it is closed, for runs that are being closed
_leaving: dict[int, Attempt] = {}


def leave(run: Attempt, error: BaseException | None, end: Callable[[Attempt, BaseException | None], None]) -> None:
    """Call `end` to close a run in another thread. Takes no lock: it may be called in the middle of any code."""
    if run.pid != os.getpid() or sys.is_finalizing():
        return  # the leases of a dead process are freed
    _leaving[id(run)] = run
    try:
        start_new_thread(_leave, (run, error, end))
    except BaseException:
        _leaving.pop(id(run), None)
        raise


def _leave(run: Attempt, error: BaseException | None, end: Callable[[Attempt, BaseException | None], None]) -> None:
    try:
        with suppress(StoreClosed):  # the store has released all leases
            end(run, error)
    except BaseException:  # noqa: BLE001 - no caller is left to raise it to
        sys.excepthook(*sys.exc_info())
    finally:
        _leaving.pop(id(run), None)


def wait(store: object) -> None:
    """Wait until no run of this store is being closed, at most some seconds."""
    until = monotonic() + _PATIENCE
    while any(run.store is store for run in list(_leaving.values())) and monotonic() < until:
        sleep(0.002)

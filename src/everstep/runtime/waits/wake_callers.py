"""Wakes the runs that wait for another one to end: the caller of a child run, and runs that wait for an enqueued one.

Called after the end is recorded. A message wakes a waiting run; an early or repeated one is harmless, because the run checks again. If the
process dies before it sends the message, the waiting run still checks by itself from time to time (see `awaiting`).
"""

from __future__ import annotations

from contextlib import suppress

from everstep.backends.contract.core import Backend
from everstep.clock import clock
from everstep.errors import EverstepError
from everstep.records import CHILD, RunRow, Status
from everstep.store.encryption.frames import new_message

WAITER = "waiter:"
_AWAKE = (Status.WAITING, Status.RUNNING)  # a running one may be about to wait


def wake_waiters(backend: Backend, row: RunRow, caller: bool = True) -> None:
    """Wake all runs that wait for a run which has ended."""
    with suppress(EverstepError):  # best effort: the end of the run itself is recorded
        names = [message.name.removeprefix(WAITER) for message in backend.messages(row.id) if message.name.startswith(WAITER)]
        if caller and row.parent is not None and row.parent_number == CHILD:
            names.append(row.parent)
        for name in names:
            _wake(backend, row.id, name)


def _wake(backend: Backend, ended: str, waiter: str) -> None:
    found = backend.run(waiter)
    if found is not None and found.status in _AWAKE:
        now = clock.now_us()
        backend.post(new_message(backend, found, f"child:{ended}", now, now), found.id)


def request_wakeup(backend: Backend, waiter: RunRow, row: RunRow) -> None:
    """Wake `waiter` when the run of `row` ends. Asking twice is harmless."""
    now = clock.now_us()
    backend.post(new_message(backend, row, f"{WAITER}{waiter.id}", None, now), row.id)

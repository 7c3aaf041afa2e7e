"""Wakes the runs that wait for the end of another one: the caller of a child run, and runs that wait for one that was enqueued.

Called after the end is recorded. A letter wakes a run that waits; one that comes too early or twice does no harm, because the run looks
again. A crash before the letter is made up for by the caller: it looks by itself from time to time (see `awaiting`).
"""

from __future__ import annotations

from contextlib import suppress

from everstep.backends.contract.core import Backend
from everstep.clock import clock
from everstep.codec.frame import Framer
from everstep.codec.values import encode
from everstep.errors import EverstepError
from everstep.records import CHILD, Letter, RunRow, Status

WAITER = "waiter:"
_AWAKE = (Status.WAITING, Status.RUNNING)  # one that runs may be about to wait


def tell(backend: Backend, framer: Framer, row: RunRow, caller: bool = True) -> None:
    """Wake all that wait for a run which has ended."""
    with suppress(EverstepError):  # best effort: the run itself has ended, and that is what counts
        names = [letter.name.removeprefix(WAITER) for letter in backend.letters(row.id) if letter.name.startswith(WAITER)]
        if caller and row.parent is not None and row.parent_number == CHILD:
            names.append(row.parent)
        for name in names:
            _wake(backend, framer, row.id, name)


def _wake(backend: Backend, framer: Framer, ended: str, waiter: str) -> None:
    found = backend.run(waiter)
    if found is not None and found.status in _AWAKE:
        now = clock.now_us()
        backend.post(Letter.make(found.key, f"child:{ended}", now, now, framer.wrap(encode(None)), backend.seal), found.id)


def ask_to_be_told(backend: Backend, framer: Framer, waiter: RunRow, row: RunRow) -> None:
    """Have `waiter` woken when the run of `row` ends. Asked twice, it counts once."""
    now = clock.now_us()
    backend.post(Letter.make(row.key, f"{WAITER}{waiter.id}", None, now, framer.wrap(encode(None)), backend.seal), row.id)

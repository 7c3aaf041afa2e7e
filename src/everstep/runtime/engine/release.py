"""Releases a run after the store failed under its attempt: the run keeps its status, and the next process continues from its journal.

Writes no status. As soon as the store can be written again, it writes the end of the lease, and which steps may have run without a record, so
that the next attempt knows. If that is not possible at once, the keeper of the leases does it later. If another process took the run over
meanwhile, nothing is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from everstep.clock import clock
from everstep.errors import Conflict, Damaged, EverstepError, LostLease, StoreUnreachable
from everstep.records import CHILD, RunRow, Status
from everstep.runtime.engine.replay import taken_over
from everstep.store.chain import Chain, Entry
from everstep.store.encryption.frames import new_message
from everstep.store.journal.entries import EventEntry, pack
from everstep.store.refs import verified
from everstep.store.store import BaseStore

if TYPE_CHECKING:
    from everstep.runtime.engine.attempt import Attempt

_TRIES = 5


def release_run(run: Attempt, cause: BaseException | None = None) -> None:
    """Release the run of a broken attempt, now or when the store is back."""
    row, failure = run.live()[0], run.failure or cause
    steps = sorted({*run.steps.flight, *run.unwritten})
    reason = failure.message if isinstance(failure, EverstepError) else type(failure).__name__
    entries = [Entry("event", pack(EventEntry.of("interrupted", {"reason": f"the store failed: {reason}", "steps": steps})), None)]
    _hand_over(run, row, [*entries, *([taken_over()] if run.unsure else [])], failure)


def release_unopened(run: Attempt, row: RunRow, cause: BaseException) -> None:
    """Release a run that could not be opened. Records that the last process died, which would be lost otherwise."""
    if run.buried:
        return  # it has ended, and no process holds it
    _hand_over(run, row, [taken_over()] if run.unsure else [], cause)


def _hand_over(run: Attempt, row: RunRow, entries: Sequence[Entry], cause: BaseException | None) -> None:
    """Write the release. An unreachable server is not tried again now: the caller has waited for it already."""
    if isinstance(cause, LostLease):
        return
    store, wakes = run.store, _is_left_to_workers(run, row)
    run.keeper.owe(row.id, lambda: _write(store, row, entries, wakes))
    if not isinstance(cause, StoreUnreachable):
        with suppress(EverstepError):  # best effort: the keeper does it later
            run.keeper.settle(row.id)


def _is_left_to_workers(run: Attempt, row: RunRow) -> bool:
    """Whether a message must wake the run: a worker executes it outside of queues, so it has neither a queue entry nor a dead owner."""
    return run.stop_flag is not None and run.options.held is None and not run.options.driven and row.status == Status.RUNNING


def _write(store: BaseStore, row: RunRow, entries: Sequence[Entry], wakes: bool) -> None:
    for _ in range(_TRIES):
        stored = store.backend.run(row.id)
        if stored is None or stored.epoch != row.epoch or stored.worker is None:
            return  # another process has it, or it was released
        try:
            _commit(store, verified(stored, store.backend.seal), entries, wakes)
        except Conflict:  # a commit of the broken attempt arrived late
            continue
        except LostLease:
            return
        except Damaged:
            store.backend.release(row)
        _wake_caller(store, row)
        return


def _wake_caller(store: BaseStore, row: RunRow) -> None:
    """Wake the caller of a child run: it may have found the child held, and wait for its end. It checks again, and executes the child."""
    caller = store.backend.run(row.parent) if row.parent is not None and row.parent_number == CHILD else None
    if caller is not None and caller.status in (Status.WAITING, Status.RUNNING):
        now = clock.now_us()
        store.backend.post(new_message(store.backend, caller, f"child:{row.id}", now, now), caller.id)


def _commit(store: BaseStore, stored: RunRow, entries: Sequence[Entry], wakes: bool) -> None:
    if not entries and not wakes:
        store.backend.release(stored)
        return
    chain = Chain(store.framer, stored, stored, store.backend.seal)
    chain.entries(entries)
    commit = chain.commit(worker=None, since=0)
    if wakes:
        now = clock.now_us()
        commit.messages = [new_message(store.backend, stored, "retry", now, now)]
    store.backend.commit(commit)

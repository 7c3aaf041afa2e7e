"""Counts how many processes in a row died while executing a run, from its journal; and ends runs that kill their processes.

A process that takes a run over from a dead one first writes an event `taken_over` with the count. So every process counts: workers, programs
that start or resume a run, and the caller of a child run. A step, gate, timer or checkpoint ends the count, also one of a child run that is
executed inline. A status other than running ends it, too: a run that was given up and is resumed by hand starts from 0.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any, NamedTuple

from everstep.backends.contract.core import Backend, Query
from everstep.backends.contract.queues import START, Claimed
from everstep.errors import EverstepError, WorkerDied
from everstep.records import CHILD, Kind, Record, RunRow, Status
from everstep.runtime.engine.replay import taken_over
from everstep.runtime.engine_store import EngineStore
from everstep.runtime.waits.wake_callers import wake_waiters
from everstep.store.chain import Chain
from everstep.store.journal.entries import EventEntry, open_as, said_in
from everstep.store.journal.failures import error_body
from everstep.store.load import unproved

DEAD = "dead-letter"
MAX_DEATHS = 5
_PROGRESS = tuple(kind.value for kind in (Kind.STEP, Kind.GATE, Kind.ANSWER, Kind.TIMER, Kind.CHECKPOINT))
_LOOKED_AT = (*_PROGRESS, Kind.EVENT.value, Kind.STATUS.value)
_PAGE = 64


class Deaths(NamedTuple):
    """How many processes died since the run last made progress, and the position of its child runs then."""

    number: int
    children: str


def recorded_deaths(backend: Backend, row: RunRow) -> Deaths:
    """Return the count in the journal. Reads a few records, newest first."""
    last = row.head_seq
    while last > 0:
        found = unproved(backend, row, 1, last, _LOOKED_AT, _PAGE)
        for record in reversed(found):
            said = _said(record)
            if said is not None:
                return said
        if len(found) < _PAGE:
            break
        last = found[0].seq - 1
    return Deaths(0, "")


def _said(record: Record) -> Deaths | None:
    """Return the count that one record gives; None if an earlier record decides."""
    if record.kind in _PROGRESS or record.body is None:
        return Deaths(0, "")
    if record.kind == Kind.STATUS:
        return None if said_in(record).get("status") == Status.RUNNING else Deaths(0, "")
    event = open_as(record, EventEntry)
    about = event.said() if event.name == "taken_over" else {}
    if type(about.get("deaths")) is int:
        return Deaths(about["deaths"], str(about.get("children", "")))
    return None


def position(backend: Backend, row: RunRow) -> tuple[int, str]:
    """Return how far a run is: the newest record that counts as progress, and the same for its child runs."""
    found = backend.records(row.id, 1, row.head_seq, _PROGRESS, 1)
    return (found[0].seq if found else 0), children_at(backend, row.id)


def children_at(backend: Backend, run: str) -> str:
    """Return how far the unfinished child runs are; empty if there are none. Changes whenever one of them makes progress."""
    active = [
        child
        for status in (Status.RUNNING, Status.WAITING)
        for _, child in backend.runs(Query(parent=run, status=status.value))
        if child.parent_number == CHILD
    ]
    if not active:
        return ""
    said = sorted(f"{child.id} {position(backend, child)}" for child in active)
    return sha256("\n".join(said).encode()).hexdigest()[:16]


def with_one_more(backend: Backend, row: RunRow, died: int = 1) -> Deaths:
    """Return the count after `died` more deaths. Progress of a child run is progress of the whole tree."""
    before, children = recorded_deaths(backend, row), children_at(backend, row.id)
    return Deaths((before.number if before.children == children else 0) + died, children)


def counted(store: EngineStore, claimed: Claimed) -> Claimed:
    """Return a claimed run with the deaths of all its processes. The queue entry counts only those at which nothing was recorded."""
    row, backend = claimed.row, store.backend
    if row is None:
        return claimed
    if claimed.before is not None:
        return claimed._replace(deaths=with_one_more(backend, row, max(1, claimed.deaths)).number)
    return claimed._replace(deaths=recorded_deaths(backend, row).number if row.status == Status.RUNNING else 0)


def note_death(store: EngineStore, row: RunRow, deaths: Deaths, **changes: Any) -> RunRow:
    """Record that a process died while executing this run; return the new row. The caller holds the lease."""
    chain = Chain(store.framer, row, row, store.backend.seal)
    chain.entries([taken_over(*deaths)])
    commit = chain.commit(**changes)
    store.backend.commit(commit)
    return commit.run


def release_claimed(store: EngineStore, claimed: Claimed) -> None:
    """Release a claimed run that was not executed. Records the death of the process before, which would be lost otherwise."""
    row = claimed.row
    assert row is not None
    if claimed.before is not None:
        try:
            note_death(store, row, Deaths(claimed.deaths, children_at(store.backend, row.id)), worker=None, since=0)
            return
        except EverstepError:
            pass  # then it is only released: the count is one too low, and no run is lost
    store.keeper.release(row)


def bury(store: EngineStore, row: RunRow, deaths: Deaths) -> RunRow:
    """End a run that kills its processes: it fails, and is not retried automatically. The caller holds the lease, and loses it."""
    chain = Chain(store.framer, row, row, store.backend.seal)
    chain.entries([taken_over(*deaths)])
    if row.status != Status.RUNNING:
        chain.status(Status.RUNNING)
    error = WorkerDied(
        f"{deaths.number} processes in a row died while executing run {row.id!r}, and no step or checkpoint was recorded in between"
    )
    chain.status(Status.FAILED, error=error_body(error), deaths=deaths.number)
    commit = chain.commit(worker=None, since=0, tags=tuple(dict.fromkeys((*row.tags, DEAD))))
    commit.read = [START, "retry"]
    store.backend.commit(commit)
    wake_waiters(store.backend, commit.run)
    return commit.run


def is_buried(said: dict[str, Any]) -> bool:
    """Whether a status record says that the run was given up because its processes died."""
    return said.get("status") == Status.FAILED and "deaths" in said

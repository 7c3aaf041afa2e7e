"""How many processes in a row died while they drove a run, as its journal tells; and what becomes of a run that kills its drivers.

Whoever takes a run over from a dead process writes an event `taken_over` with the count before it does anything else, so that every driver
counts: workers, programs that start or resume a run, and the caller of a child run. A step, gate, timer or checkpoint ends the count, and
so does one of a child run that is being driven inline. A status other than running ends it, too: a run that was given up and is resumed
by hand gets a fresh allowance.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any, NamedTuple

from everstep.backends.contract.core import Backend, Query
from everstep.backends.contract.queues import START, Claimed
from everstep.errors import EverstepError, WorkerDied
from everstep.records import CHILD, Kind, Record, RunRow, Status
from everstep.runtime.driving_store import Host
from everstep.runtime.engine.replay import taken_over
from everstep.runtime.waits.wake_callers import tell
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
    """How many drivers died since the run last got on, and how far its child runs were then."""

    number: int
    children: str


def recorded_deaths(backend: Backend, row: RunRow) -> Deaths:
    """What the journal says. Reads a few records from the newest on."""
    last = row.head_seq
    while last > 0:
        found = unproved(backend, row.id, 1, last, _LOOKED_AT, _PAGE)
        for record in reversed(found):
            said = _said(record)
            if said is not None:
                return said
        if len(found) < _PAGE:
            break
        last = found[0].seq - 1
    return Deaths(0, "")


def _said(record: Record) -> Deaths | None:
    """What one record says about it; None if the one before it has to be asked."""
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
    """How far a run is: the newest record that counts as progress, and the same of its child runs."""
    found = backend.records(row.id, 1, row.head_seq, _PROGRESS, 1)
    return (found[0].seq if found else 0), children_at(backend, row.id)


def children_at(backend: Backend, run: str) -> str:
    """How far the child runs are that have not ended; empty if there are none. Changes whenever one of them gets on."""
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
    """The count after `died` more deaths. What a child run got on meanwhile is progress of the whole tree."""
    before, children = recorded_deaths(backend, row), children_at(backend, row.id)
    return Deaths((before.number if before.children == children else 0) + died, children)


def counted(store: Host, claimed: Claimed) -> Claimed:
    """A claimed run with the deaths of all its drivers. The place in the queue knows only those at which nothing was recorded."""
    row, backend = claimed.row, store.backend
    if row is None:
        return claimed
    if claimed.before is not None:
        return claimed._replace(deaths=with_one_more(backend, row, max(1, claimed.deaths)).number)
    return claimed._replace(deaths=recorded_deaths(backend, row).number if row.status == Status.RUNNING else 0)


def note_death(store: Host, row: RunRow, deaths: Deaths, **changes: Any) -> RunRow:
    """Record that a driver of this run died; gives the row as it is then. The caller holds the lease."""
    chain = Chain(store.framer, row, row, store.backend.seal)
    chain.entries([taken_over(*deaths)])
    commit = chain.commit(**changes)
    store.backend.commit(commit)
    return commit.run


def give_back(store: Host, claimed: Claimed) -> None:
    """Give a run back that was claimed and not driven. The death of the driver before must not be forgotten with that."""
    row = claimed.row
    assert row is not None
    if claimed.before is not None:
        try:
            note_death(store, row, Deaths(claimed.deaths, children_at(store.backend, row.id)), worker=None, since=0)
            return
        except EverstepError:
            pass  # then it is only given back: the count is one too low, and no run is lost
    store.keeper.release(row)


def bury(store: Host, row: RunRow, deaths: Deaths) -> RunRow:
    """End a run that kills its drivers: it failed, and is not tried again by itself. The caller holds the lease, and has it no more."""
    chain = Chain(store.framer, row, row, store.backend.seal)
    chain.entries([taken_over(*deaths)])
    if row.status != Status.RUNNING:
        chain.status(Status.RUNNING)
    error = WorkerDied(
        f"{deaths.number} processes died one after the other while they drove run {row.id!r}, and no step or checkpoint was recorded in between"
    )
    chain.status(Status.FAILED, error=error_body(error), deaths=deaths.number)
    commit = chain.commit(worker=None, since=0, tags=tuple(dict.fromkeys((*row.tags, DEAD))))
    commit.read = [START, "retry"]
    store.backend.commit(commit)
    tell(store.backend, store.framer, commit.run)
    return commit.run


def is_buried(said: dict[str, Any]) -> bool:
    """Whether a status says that the run was given up because its drivers died."""
    return said.get("status") == Status.FAILED and "deaths" in said

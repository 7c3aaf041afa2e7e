"""Small look-ups about runs for views and commands: ids with a prefix, the run written last, the length of a journal. Reads only.

These are functions over a store, so that the layers above do not need its backend.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from everstep.backends.contract.core import Query
from everstep.records import Kind, Record
from everstep.store.encryption.frames import shown_row
from everstep.store.load import checked, unproved
from everstep.store.refs import find_run
from everstep.store.store import fork_before as before
from everstep.store.views import RunInfo

if TYPE_CHECKING:
    from everstep.store.gates import Gate
    from everstep.store.store import BaseStore

_ATTEMPTED = tuple(kind.value for kind in (Kind.START, Kind.STATUS, Kind.GATE, Kind.ANSWER, Kind.TIMER))


def last_written(store: BaseStore) -> str | None:
    """Return the id of the run that was written last; None if there is no run."""
    return store.backend.manifest().last


def ids_like(store: BaseStore, text: str, limit: int) -> list[str]:
    """Return the ids that a person may mean: only the exact one if it exists, otherwise those that begin with the text."""
    if store.backend.run(text) is not None:
        return [text]
    return [row.id for _, row in store.backend.runs(Query(prefix=text, limit=limit))]


def known(store: BaseStore, run: str) -> RunInfo | None:
    """Return the run with exactly this id, without its error; None if there is none."""
    row = store.backend.run(run)
    return None if row is None else RunInfo.of(shown_row(store.backend, row))


def journal_length(store: BaseStore, run: str) -> int:
    """Return the number of records of a run."""
    return find_run(store.backend, run).head_seq


def started_with(store: BaseStore, run: str) -> dict[str, Any]:
    """Return the content of a run's first record: workflow, input, and the options of enqueue."""
    from everstep.store.journal.entries import said_in

    return said_in(checked(store.backend, find_run(store.backend, run), 1, 1)[0])


def fork_before(store: BaseStore, run: str, step: str) -> str:
    """Fork a workflow's run just before one of its steps; return the id of the fork."""
    return before(store, find_run(store.backend, run), step).id


def attempts(store: BaseStore, run: str) -> set[int]:
    """Return the attempts that recorded more than steps: a resume may only read an answer. Taking the lease to cancel or pause does not
    count, nor do the attempts of the run that this one was forked from.
    """
    row = store.backend.run(run)
    records = () if row is None else unproved(store.backend, row, 1, row.head_seq, _ATTEMPTED)
    own = (one for one in records if row is not None and one.at >= row.created_at)
    return {one.epoch for one in own if one.epoch and (one.kind != Kind.STATUS or _status(one) in ("running", "succeeded", "failed"))}


def _status(record: Record) -> str | None:
    from everstep.store.journal.entries import said_in  # a list of runs does without

    return None if record.body is None else said_in(record).get("status")


def full_copies(store: BaseStore, runs: list[str], stored: int) -> int | None:
    """Estimate the bytes of full copies of the state at every checkpoint, judged by these runs; None if there is no estimate."""
    from everstep.store.verify.full_copy_estimate import naive_size

    rows = [row for row in map(store.backend.run, runs) if row is not None]
    found = naive_size(store.backend, store.framer, rows, stored)
    return None if found is None else found.bytes


def driver(store: BaseStore, run: RunInfo) -> Literal["alive", "dead", "none"]:
    """Return whether the process that has a run open is alive; "none" if no process has it open."""
    if not run.open:
        return "none"
    row = store.backend.run(run.id)
    if row is None or row.worker is None:
        return "none"
    return "dead" if store.backend.holder(row) is None else "alive"


def unanswered(store: BaseStore, run: str) -> list[Gate]:
    """Return the gates that a run waits at, without those whose answer is recorded and only waits for the run to be resumed."""
    answered = {message.name for message in store.backend.messages(run)}
    return [gate for gate in store.gates(run) if gate.open and f"answer:{gate.address}" not in answered]


def feed_before(store: BaseStore, count: int) -> int:
    """Return a position in the feed of all runs with at most `count` events after it."""
    return max(0, int(store.backend.feed_end()) - count)

"""Runs that no live worker will take, and why. Reads only.

A worker takes runs of its own queues, of workflows that it knows, and of its version if other code could contradict the recorded steps (see
`store.journal.driven`). Outside of queues it takes runs that wait or whose process died, unless it was started without `recover`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from everstep.backends.contract.core import Backend, Query
from everstep.backends.contract.queues import QueueEntry
from everstep.errors import EverstepError
from everstep.fields import Shape
from everstep.queues.presence import WorkerRecord, worker_records
from everstep.records import RunRow, Status
from everstep.runtime.engine_store import EngineStore
from everstep.runtime.workflow import beginning
from everstep.store.journal.driven import driven, has_begun, may_drive
from everstep.store.refs import verified

_LAST = (1 << 62) - 1


class Stranded(Shape, frozen=True):
    """A run that no live worker will take. `version` is that of the code that last executed it; `queue` is None outside of queues."""

    run: str
    queue: str | None
    workflow: str | None
    version: str | None
    status: str
    reason: str

    def __str__(self) -> str:
        return f"{self.run}: {self.reason}"


class _Candidate(NamedTuple):
    row: RunRow
    queue: str | None


def stranded(store: EngineStore) -> list[Stranded]:
    backend = store.backend
    alive = {worker.id for worker in backend.living()}
    workers = [said for worker, said in worker_records(backend) if worker in alive]
    found: list[Stranded] = []
    for candidate in [*_queued(backend, alive), *_outside(backend)]:
        one = _look_at(store, candidate, workers)
        if one is not None:
            found.append(one)
    return found


def _queued(backend: Backend, alive: set[str]) -> Iterator[_Candidate]:
    """Yield the queued runs that no worker executes, except those that an operator paused."""
    for entry in backend.queue_entries():
        if entry.worker not in alive:
            row = backend.run(entry.run)
            if row is not None and not _is_paused(backend, entry):
                yield _Candidate(row, entry.task.queue)


def _is_paused(backend: Backend, entry: QueueEntry) -> bool:
    return entry.ready is None and any(message.name == "pause" for message in backend.messages(entry.run))


def _outside(backend: Backend) -> Iterator[_Candidate]:
    """Yield the runs of workflows outside of queues that need a worker: now, or when their wait ends."""
    failed = {run for run in backend.due(_LAST, outside=True) if any(message.name == "retry" for message in backend.messages(run))}
    rows = [row for status in (Status.RUNNING, Status.WAITING) for _, row in backend.runs(Query(status=status.value))]
    rows += [row for run in sorted(failed) if (row := backend.run(run)) is not None and row.status == Status.FAILED]
    for row in rows:
        if row.workflow is None or backend.queue_entry(row.id) is not None or backend.holder(row) is not None:
            continue
        if row.status != Status.WAITING or not any(message.name == "pause" for message in backend.messages(row.id)):
            yield _Candidate(row, None)


def _look_at(store: EngineStore, candidate: _Candidate, workers: list[WorkerRecord]) -> Stranded | None:
    row, queue = candidate
    version = None
    try:
        said = beginning(store, verified(row, store.backend.seal))
        if "workflow" not in said:
            return None  # opened with store.run(): no worker executes it
        before = driven(store.backend, row, said)
        version = before.version
        reason = _reason(candidate, workers, version, lambda mine: may_drive(before, has_begun(store.backend, row), mine))
    except EverstepError as error:
        reason = f"it is damaged: {error.message}"
    return None if reason is None else Stranded(row.id, queue, row.workflow, version, row.status, reason)


def _reason(candidate: _Candidate, workers: list[WorkerRecord], version: str | None, fits: Callable[[str | None], bool]) -> str | None:
    """Return why no worker takes a run; None if one does."""
    row, queue = candidate
    name = row.workflow or ""
    serving = [one for one in workers if (queue in one.queues if queue is not None else one.recover)]
    if not serving:
        return f"no live worker serves queue {queue!r}" if queue is not None else "no live worker takes runs outside of queues"
    knowing = [one for one in serving if name in one.workflows]
    where = f" of queue {queue!r}" if queue is not None else ""
    if not knowing:
        return f"no live worker{where} has the workflow {name!r}"
    if any(fits(one.workflows[name]) for one in knowing):
        return None
    has = ", ".join(sorted({str(one.workflows[name]) for one in knowing}))
    return f"version {version} of {name!r} executed it last; live workers{where} have version {has}"

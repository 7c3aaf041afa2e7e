"""Compares the queue entry of a run with the run itself, and restores entries that are lost or wrong.

An entry is derived from the first record of a run, its row and its messages; `backends.contract.queues` has the rules. A run is claimed
by its lease, so nothing here can lead to a second history.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from everstep.backends.contract.core import Backend, Commit, Query
from everstep.backends.contract.queues import QueueEntry, Task, settled, task_of
from everstep.errors import Conflict, Damaged, LostLease
from everstep.fields import Shape
from everstep.records import Kind, Message, Record, RunRow, Status
from everstep.store.journal.entries import said_in
from everstep.store.load import unproved

_LOOKS = 5
_AT_ONCE = 500
_OPEN = (Status.QUEUED, Status.RUNNING, Status.WAITING)
_OVER = (Status.SUCCEEDED, Status.CANCELLED, Status.FAILED)


class QueuedRun(Shape, frozen=True):
    """A run and its queue entry at one moment."""

    row: RunRow
    messages: list[Message]
    task: Task | None
    entry: QueueEntry | None
    reopened: bool
    """Whether the run had ended before, so that it may lack an entry."""

    @property
    def over(self) -> bool:
        """Whether the run has ended, so that it must not have an entry."""
        return settled(self.row, self._times(), 0)[0] is not None

    def fault(self) -> str | None:
        """Say what is wrong with the entry, or return None."""
        row, task, entry = self.row, self.task, self.entry
        if entry is None:
            missing = task is not None and not self.over and not self.reopened
            return f"it has no entry in queue {task.queue!r}, so no worker will take it" if missing and task is not None else None
        where = f"its entry in queue {entry.task.queue!r}"
        if task is None:
            return f"{where} is not requested by its first record"
        if self.over:
            return f"{where} still exists although the run has ended"
        if entry.task not in (task, task._replace(dedupe=None)):
            return f"{where} differs from what its first record requests"
        if row.worker is not None:
            freed = entry.worker is None and entry.ready is not None and entry.deaths > 0
            held = entry.worker == row.worker and entry.ready is None
            return None if held or freed else f"{where} does not name worker {row.worker}, which holds the run"
        if entry.worker is not None:
            return f"{where} names worker {entry.worker}, but no worker holds the run"
        return None if self._is_ready_in_time(entry.ready) else f"{where} has another time than the run waits for"

    def _is_ready_in_time(self, ready: int | None) -> bool:
        due = settled(self.row, self._times(), 0)[1]
        if due is None or ready is None:
            return due is ready
        if self.row.status == Status.RUNNING:
            return True
        # A message that was due when it was posted may be claimed at once, whatever its sender's clock said.
        return ready == due or (ready < due and any(message.due == due <= message.at for message in self.messages))

    def _times(self) -> list[tuple[str, int | None]]:
        return [(message.name, message.due) for message in self.messages]


def read_entry(backend: Backend, run: str) -> QueuedRun | None:
    """Read a run with its queue entry; None if it does not exist, is damaged, or keeps changing."""
    for _ in range(_LOOKS):
        row = backend.run(run)
        if row is None or row.digest(backend.seal) != row.check:
            return None
        task = task_in(unproved(backend, row, 1, 1))
        messages, entry = backend.messages(run), backend.queue_entry(run)
        reopened = task is not None and entry is None and has_ended(unproved(backend, row, 1, row.head_seq, [Kind.STATUS.value]))
        now = backend.run(run)
        if now is not None and now.check == row.check and backend.messages(run) == messages:
            return QueuedRun(row, messages, task, entry, reopened)
    return None


def task_in(records: Sequence[Record]) -> Task | None:
    """Return the queue data in the first record of a run; `records` begin with that record, if it exists."""
    return task_of(said_in(records[0])) if records and records[0].kind == Kind.START else None


def has_ended(records: Iterable[Record]) -> bool:
    """Whether a run has ended in these records. If it was reopened, the process that did so runs it, unless it was enqueued again."""
    for record in records:
        said = said_in(record) if record.kind == Kind.STATUS else {}
        if said.get("status") in _OVER and said.get("retry_at") is None:
            return True
    return False


def restore_entries(backend: Backend, thorough: bool = False) -> list[str]:
    """Give runs that wait in a queue but have no entry a new one; return their ids. `thorough` also corrects wrong entries.

    Others may write meanwhile. Without `thorough`, failed runs that are to be retried are not checked: there may be many.
    """
    queued = {entry.run for entry in backend.queue_entries()}
    restored: list[str] = []
    for run in _candidates(backend, queued, thorough):
        try:
            if _correct(backend, run):
                restored.append(run)
        except Damaged:  # `verify` reports it
            continue
    return restored


def _candidates(backend: Backend, queued: set[str], thorough: bool) -> Iterator[str]:
    for status in (*_OPEN, Status.FAILED) if thorough else _OPEN:
        for run in _runs(backend, status, thorough):
            if thorough or run not in queued:
                queued.discard(run)
                yield run
    yield from queued if thorough else ()


def _runs(backend: Backend, status: Status, thorough: bool) -> Iterator[str]:
    after = None
    while True:
        rows = backend.runs(Query(status=status.value, oldest_first=True, after=after, limit=_AT_ONCE))
        yield from (row.id for _, row in rows if thorough or '"queue"' in (row.meta or ""))  # `enqueue` sets this for each of its runs
        if len(rows) < _AT_ONCE:
            return
        after = rows[-1][0]


def _correct(backend: Backend, run: str) -> bool:
    found = read_entry(backend, run)
    task = None if found is None else found.task or (found.entry.task if found.entry is not None and found.over else None)
    if found is None or task is None or found.fault() is None:
        return False
    if task.dedupe is not None and backend.twin(task) not in (None, run):
        task = task._replace(dedupe=None)  # another run with this dedupe was accepted meanwhile
    try:
        # The run itself does not change, so its owner can continue; with the task, the backend recreates or removes the entry.
        backend.commit(Commit(found.row.copy(), found.row, task=task))
    except (Conflict, LostLease):
        return False  # the run changed, and its entry with it
    return True

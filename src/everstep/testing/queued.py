"""Queued runs for tests: enqueued, begun and ended by plain commits, as a program and a worker would write them.

Relies on `store.chain` for valid records. Runs no code: no function of a program is called here.
"""

from __future__ import annotations

from typing import Any

from everstep import clock as clocks
from everstep.backends.contract.core import Backend, Commit
from everstep.backends.contract.queues import START, Claim, Claimed, Task
from everstep.codec.frame import Framer
from everstep.codec.values import encode
from everstep.ids import new_id
from everstep.records import Message, RunRow, Status, Worker
from everstep.store.chain import Chain, new_row
from everstep.store.query import to_meta

WORKFLOW = "queued"
_framer = Framer()


def enqueue(backend: Backend, run: str | None = None, task: Task | None = None, delay: int = 0) -> RunRow:
    """Create a run that waits in a queue; `delay` is in microseconds."""
    commit = enqueuing(run or new_id(), task or Task("q"), delay)
    backend.commit(commit)
    return commit.run


def enqueuing(run: str, task: Task, delay: int = 0) -> Commit:
    """Return the commit that `enqueue` makes."""
    row = new_row(run, workflow=WORKFLOW, meta=to_meta({"queue": task.queue}))
    row.status = Status.QUEUED.value
    chain = Chain(_framer, row, None)
    chain.start(workflow=WORKFLOW, task=[task.queue, task.priority, task.key, task.dedupe])
    commit = chain.commit()
    commit.messages, commit.task = [message(row, START, delay)], task
    return commit


def message(row: RunRow, name: str, delay: int | None = 0) -> Message:
    """Return a message that is due after this many microseconds; None: never."""
    now = clocks.clock.now_us()
    return Message.make(row.key, name, None if delay is None else now + delay, now, _framer.wrap(encode(None)))


def take(backend: Backend, worker: Worker, most: int = 1, queues: tuple[str, ...] = ("q",)) -> list[Claimed]:
    """Claim runs for a worker."""
    return backend.claim(Claim(worker, queues, (WORKFLOW,), most))


def beginning(row: RunRow) -> Commit:
    """Return the first commit of a worker."""
    return _status(row, Status.RUNNING, read=(START, "retry"))


def ending(row: RunRow, status: Status = Status.SUCCEEDED, messages: tuple[Message, ...] = ()) -> Commit:
    """Return the commit with which a worker releases a run: it has ended, or it waits, possibly for one of these messages."""
    retry = next((one.due for one in messages if one.name == "retry"), None)
    about: dict[str, Any] = {} if retry is None else {"retry_at": retry}
    return _status(row, status, messages=messages, about=about, worker=None, since=0)


def _status(
    row: RunRow,
    status: Status,
    messages: tuple[Message, ...] = (),
    read: tuple[str, ...] = (),
    about: dict[str, Any] | None = None,
    **changes: Any,
) -> Commit:
    chain = Chain(_framer, row, row)
    chain.status(status, **(about or {}))
    commit = chain.commit(**changes)
    commit.messages, commit.read = messages, read
    return commit

"""Small valid rows for tests: a run, its next commit, a message to it, a worker. Relies on `everstep.records`; touches no store."""

from __future__ import annotations

import os
from typing import Any

from everstep import clock as clocks
from everstep.backends.contract.core import Commit
from everstep.ids import new_id
from everstep.records import ZERO, Kind, Message, RunRow, Worker, make_record


def new_run(name: str | None = None, **fields: Any) -> RunRow:
    """Return a sealed row of a run that has no record yet."""
    now = clocks.clock.now_us()
    key = os.urandom(16)
    row = RunRow(
        id=name or new_id(),
        key=key,
        family=key,
        workflow=None,
        session=None,
        tags=(),
        note=None,
        meta=None,
        parent=None,
        parent_number=0,
        created_at=now,
        status="running",
        updated_at=now,
        head_seq=0,
        head_digest=ZERO,
        checkpoints=0,
        stored=0,
        epoch=0,
        worker=None,
        since=0,
    )
    return row.sealed(**fields)


def next_commit(was: RunRow, body: bytes = b"state", **fields: Any) -> Commit:
    """Return a commit of one record after the head of `was`: a checkpoint unless `kind` says otherwise.

    `chunks`, `messages` and `read` go to the commit, other fields to the record.
    """
    chunks, messages, read = (fields.pop(name, ()) for name in ("chunks", "messages", "read"))
    kind = fields.pop("kind", Kind.CHECKPOINT)
    number = was.checkpoints + (kind == Kind.CHECKPOINT)
    at = fields.pop("at", clocks.clock.now_us())
    record = make_record(was.head_digest, was.id, was.key, was.head_seq + 1, str(kind), was.epoch, at, number, body, **fields)
    row = was.sealed(head_seq=record.seq, head_digest=record.digest, checkpoints=number, stored=was.stored + len(body), updated_at=at)
    return Commit(row, was, [record], chunks, messages, read)


def new_message(run: RunRow, name: str = "answer", due: int | None = None, body: bytes = b"message") -> Message:
    """Return a message to a run, posted now."""
    return Message.make(run.key, name, due, clocks.clock.now_us(), body)


def new_worker(seconds: float = 60, **fields: Any) -> Worker:
    """Return a worker of this process whose leases end after this many seconds."""
    clock = clocks.clock
    ends = int(seconds * 1_000_000)
    values: dict[str, Any] = {
        "id": new_id(),
        "host": os.uname().nodename,
        "pid": os.getpid(),
        "boot": clock.boot_id(),
        "started_at": clock.now_us(),
        "expires_boot": clock.boot_us() + ends,
        "expires_at": clock.now_us() + ends,
    }
    return Worker(**(values | fields))

"""Builds commits: the chain of records, and the run row that belongs to them. Pure except for the clock; the backend writes them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from ormsgpack import packb

from everstep.backends.contract.core import MAX_SEQ, Commit
from everstep.clock import clock
from everstep.errors import IllegalTransition, LimitExceeded
from everstep.fields import Shape
from everstep.records import SALT_BYTES, ZERO, Chunk, Framing, Kind, RunRow, Seal, Status, make_record, unkeyed
from everstep.snapshot.saver import Saved


def new_row(run: str, family: bytes | None = None, **fields: Any) -> RunRow:
    """Return the row of a run that does not exist yet."""
    key = os.urandom(16)
    now = clock.now_us()
    given = {"workflow": None, "session": None, "tags": (), "note": None, "meta": None, "parent": None, "parent_number": 0, **fields}
    return RunRow(
        id=run, key=key, family=family or key, created_at=now, status=Status.RUNNING.value, updated_at=now, head_seq=0,
        head_digest=ZERO, checkpoints=0, stored=0, epoch=0, worker=None, since=0, **given,
    )  # fmt: skip


# Reading the value of an enum member costs more than hashing a record.
_NEXT = {
    Status.QUEUED.value: ("running", "waiting", "cancelled"),
    Status.RUNNING.value: ("running", "waiting", "succeeded", "failed", "cancelled"),
    Status.WAITING.value: ("running", "waiting", "cancelled"),
    Status.FAILED.value: ("running", "cancelled"),
    Status.SUCCEEDED.value: ("running",),  # your own loop that continues, such as a chat on the next day
    Status.CANCELLED.value: (),
}
START, CHECKPOINT, BASE, STATUS = Kind.START.value, Kind.CHECKPOINT.value, Kind.BASE.value, Kind.STATUS.value


class Entry(Shape):
    """A journal entry that waits for the next commit."""

    kind: str
    content: bytes
    address: str | None
    chunks: Sequence[tuple[bytes, bytes]] = ()


SMALL_ENTRY = 2048  # compressing less than this costs more time at every step than the saved space is worth
_ENTRIES = frozenset({Kind.STEP.value, Kind.GATE.value, Kind.ANSWER.value, Kind.TIMER.value, Kind.EVENT.value, Kind.ATTACHED.value})


class Chain:
    """Adds records to a run, one after the other, and ends in a commit."""

    def __init__(self, framer: Framing, row: RunRow, was: RunRow | None, seal: Seal = unkeyed):
        self._family_key = framer.new_family(row.family) if was is None and row.family == row.key else None
        self._frames = framer.of(row.family, row.key)
        self._seal = seal
        self._was = was
        self._row = row.copy()
        self._at = clock.now_us()
        self._records: list[Any] = []
        self._chunks: list[tuple[bytes, bytes]] = []

    def add(
        self, kind: str, content: bytes, note: str | None = None, tags: tuple[str, ...] = (), meta: str | None = None, own: str | None = None,
        salt: bytes | None = None,
    ) -> None:  # fmt: skip
        row = self._row
        if row.head_seq >= MAX_SEQ:
            raise LimitExceeded(
                f"run {row.id!r} has {row.head_seq:,} records, which is the limit", remedy=f"Continue in a fork: store.fork({row.id!r})."
            )
        body = self._frames.wrap(content, ("record", row.head_seq + 1, kind), SMALL_ENTRY if kind in _ENTRIES else 0)
        row.head_seq += 1
        record = make_record(
            row.head_digest, row.id, row.key, row.head_seq, kind, row.epoch, self._at, row.checkpoints, body, note, tags, meta, own, salt,
            self._seal,
        )  # fmt: skip
        row.head_digest = record.digest
        row.stored += len(body)
        record.opener = self._frames
        self._records.append(record)

    def entries(self, entries: Sequence[Entry]) -> None:
        """Add journal entries, with the chunks of their results."""
        for entry in entries:
            self.add(entry.kind, entry.content, entry.address)
            if entry.chunks:
                self.chunks(entry.chunks)

    def chunks(self, chunks: Sequence[Chunk]) -> None:
        chunks = self._frames.stored(chunks)
        self._chunks.extend(chunks)
        self._row.stored += sum(len(frame) for _, frame in chunks)

    def checkpoint(
        self, saved: Saved, note: str | None = None, tags: tuple[str, ...] = (), meta: str | None = None, own: str | None = None
    ) -> None:
        """Add a checkpoint with its labels, and the runtime's header (`own`)."""
        self._row.checkpoints += 1
        salt = None
        if note is not None or meta is not None or tags:
            salt = os.urandom(SALT_BYTES)
            note, tags, meta = self._frames.seal_labels((note, tags, meta), ("labels", self._row.head_seq + 1))
        self.add(CHECKPOINT, saved.delta, note, tags, meta, own, salt)
        if saved.base is not None:
            self.add(BASE, saved.base)
            self.chunks(saved.chunks)

    def status(self, status: Status, revived: bool = False, /, **about: Any) -> None:
        """Add a change of status; an invalid one is refused, unless `revived`: the caller has cancelled this run and calls it again, or a line appends to it."""
        if status.value not in _NEXT[self._row.status] and not revived:
            raise IllegalTransition(self._row.id, self._row.status, status.value)
        self._row.status = status.value
        self.add(STATUS, packb({"status": status.value, **about}))

    def start(self, **about: Any) -> None:
        """Add the first record. It repeats the run's key and id, and a fork's family, so that its records can be proved if the row is lost."""
        row = self._row
        family = {"family": row.family} if row.family != row.key else {}
        self.add(START, packb({"key": row.key, "id": row.id, **family, **about}))

    def commit(self, **changes: Any) -> Commit:
        row = self._row
        row.updated_at = self._at
        for name, value in changes.items():
            setattr(row, name, value)
        row.check = row.digest(self._seal)
        return Commit(row, self._was, self._records, self._chunks, family_key=self._family_key)

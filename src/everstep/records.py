"""The rows that a store is made of, and the digests that hold them together. No I/O.

    digest(record) = H(digest of the record before, header, H(body))        H = SHA-256
    check(run row) = H(every field of the row)
    check(tag)     = H(every field of the tag)
    check(letter)  = H(every field of the letter); of prune marks, added bases, tombstones and facts alike
    manifest       = sum of all these checks, modulo 2**256

The chain proves a run's history even when bodies were pruned; the row's head digest keeps the tail from
being cut; the manifest makes a vanished run visible. `header` and "every field" are MessagePack arrays
in the order of the fields below (docs/format.md has them byte by byte).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from enum import StrEnum
from hashlib import sha256
from operator import attrgetter
from typing import Any

from ormsgpack import packb

from everstep.fields import Shape, replace

ZERO = bytes(32)
MODULUS = 1 << 256
CHILD = -1  # the parent_number of a run that another one called; forks have the number of the checkpoint that they begin at


class Kind(StrEnum):
    """What a record says."""

    START = "start"
    CHECKPOINT = "checkpoint"
    BASE = "base"
    STATUS = "status"
    STEP = "step"
    GATE = "gate"
    ANSWER = "answer"
    TIMER = "timer"
    EVENT = "event"


class Status(StrEnum):
    """Where a run stands."""

    QUEUED = "queued"
    RUNNING = "running"
    WAITING = "waiting"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Record(Shape):
    """One link of a run's chain. `number` is that of the newest checkpoint at or before this record."""

    run: str
    seq: int
    kind: str
    epoch: int
    at: int
    number: int
    note: str | None
    tags: tuple[str, ...]
    meta: str | None
    body: bytes | None
    body_digest: bytes
    digest: bytes

    def __getattr__(self, name: str) -> bytes:
        """Only called for what is not set: the digest of a body that was read, until somebody asks for it or proves the record."""
        if name != "body_digest" or self.body is None:
            raise AttributeError(name)
        self.body_digest = sha256(self.body).digest()
        return self.body_digest

    def without_body(self) -> Record:
        """The same record as a listing has it."""
        return replace(self, body=None)


def chain(
    before: bytes,
    run: str,
    seq: int,
    kind: str,
    epoch: int,
    at: int,
    number: int,
    note: str | None,
    tags: Sequence[str],
    meta: str | None,
    body_digest: bytes,
) -> bytes:
    """The digest of a record, given that of the record before it. `meta` is the JSON text as stored."""
    header = packb([run, seq, kind, epoch, at, number, note, tags, meta])
    return sha256(before + header + body_digest).digest()


def make_record(
    before: bytes,
    run: str,
    seq: int,
    kind: str,
    epoch: int,
    at: int,
    number: int,
    body: bytes,
    note: str | None = None,
    tags: tuple[str, ...] = (),
    meta: str | None = None,
) -> Record:
    body_digest = sha256(body).digest()
    digest = chain(before, run, seq, kind, epoch, at, number, note, tags, meta, body_digest)
    return Record(run, seq, kind, epoch, at, number, note, tags, meta, body, body_digest, digest)


def record_fault(before: bytes, record: Record) -> str | None:
    """Say what is wrong with a record that was read, or None. A pruned body (None) is no fault."""
    r = record
    body_digest = r.body_digest if r.body is None else sha256(r.body).digest()
    r.body_digest = body_digest
    if chain(before, r.run, r.seq, r.kind, r.epoch, r.at, r.number, r.note, r.tags, r.meta, body_digest) != r.digest:
        return "it does not match its digest"
    return None


class RunRow(Shape):
    """One run: its place in the family, its head, its lease. `check` is the digest of all the other fields."""

    id: str
    key: bytes
    family: bytes
    workflow: str | None
    session: str | None
    tags: tuple[str, ...]
    note: str | None
    meta: str | None
    parent: str | None
    parent_number: int
    created_at: int
    status: str
    updated_at: int
    head_seq: int
    head_digest: bytes
    checkpoints: int
    stored: int
    epoch: int
    worker: str | None
    since: int
    check: bytes = ZERO

    def digest(self) -> bytes:
        return sha256(
            packb(
                [self.id, self.key, self.family, self.workflow, self.session, list(self.tags), self.note, self.meta, self.parent,
                 self.parent_number, self.created_at, self.status, self.updated_at, self.head_seq, self.head_digest,
                 self.checkpoints, self.stored, self.epoch, self.worker, self.since]
            )
        ).digest()  # fmt: skip

    def copy(self) -> RunRow:
        return RunRow(*_fields(self))  # `replace` takes ten times as long, at every commit

    def sealed(self, **changes: Any) -> RunRow:
        """A copy with `changes` and a fresh check."""
        row = replace(self, **changes)
        row.check = row.digest()
        return row


_fields = attrgetter(*RunRow._fields)


class Tag(Shape, frozen=True):
    """A name on a checkpoint of a run. `key` is the run's key, so that a tag cannot move to another run."""

    key: bytes
    name: str
    number: int
    at: int
    check: bytes

    @classmethod
    def make(cls, key: bytes, name: str, number: int, at: int) -> Tag:
        return cls(key, name, number, at, tag_check(key, name, number, at))

    def digest(self) -> bytes:
        return tag_check(self.key, self.name, self.number, self.at)


def tag_check(key: bytes, name: str, number: int, at: int) -> bytes:
    return sha256(packb([key, name, number, at])).digest()


class Letter(Shape, frozen=True):
    """Something that a run is to be told, and when it is to be woken for it (`due`; None: it is not woken). `body` is a frame.

    Anybody may post one; the run takes it out when it has read it. `key` is the run's key, so that no letter reaches another run.
    """

    key: bytes
    name: str
    due: int | None
    at: int
    body: bytes
    check: bytes

    @classmethod
    def make(cls, key: bytes, name: str, due: int | None, at: int, body: bytes) -> Letter:
        return cls(key, name, due, at, body, letter_check(key, name, due, at, body))

    def digest(self) -> bytes:
        return letter_check(self.key, self.name, self.due, self.at, self.body)


def letter_check(key: bytes, name: str, due: int | None, at: int, body: bytes) -> bytes:
    return sha256(packb([key, name, due, at, body])).digest()


class Pruned(Shape, frozen=True):
    """What was pruned of a run. One for each run that was pruned.

    `ranges` (first, last) are the seqs whose bodies were dropped, `numbers` (first, last) the checkpoints that cannot be loaded any more;
    both in order and apart from each other. Without it a body that vanished could not be told from one that was dropped on purpose.
    """

    key: bytes
    ranges: Ranges
    freed: int
    at: int
    numbers: Ranges
    check: bytes

    @classmethod
    def make(cls, key: bytes, ranges: Sequence[tuple[int, int]], freed: int, at: int, numbers: Sequence[tuple[int, int]] = ()) -> Pruned:
        return cls(key, tuple(ranges), freed, at, tuple(numbers), pruned_check(key, ranges, freed, at, numbers))

    def digest(self) -> bytes:
        return pruned_check(self.key, self.ranges, self.freed, self.at, self.numbers)

    def has_body(self, seq: int) -> bool:
        """Whether the body of a record should be there."""
        return not _within(self.ranges, seq)

    def has_state(self, number: int) -> bool:
        """Whether a checkpoint can be loaded."""
        return not _within(self.numbers, number)


Ranges = tuple[tuple[int, int], ...]


def _within(ranges: Ranges, n: int) -> bool:
    """Whether one of the ranges has a number."""
    place = bisect_right(ranges, (n, MODULUS)) - 1
    return place >= 0 and n <= ranges[place][1]


def pruned_check(key: bytes, ranges: Sequence[tuple[int, int]], freed: int, at: int, numbers: Sequence[tuple[int, int]]) -> bytes:
    return sha256(packb([key, [list(r) for r in ranges], freed, at, [list(r) for r in numbers]])).digest()


class Base(Shape, frozen=True):
    """A base that prune added for a checkpoint that it keeps, so that the deltas before it can go. `body` is a frame."""

    key: bytes
    number: int
    at: int
    body: bytes
    check: bytes

    @classmethod
    def make(cls, key: bytes, number: int, at: int, body: bytes) -> Base:
        return cls(key, number, at, body, base_check(key, number, at, body))

    def digest(self) -> bytes:
        return base_check(self.key, self.number, self.at, self.body)


def base_check(key: bytes, number: int, at: int, body: bytes) -> bytes:
    return sha256(packb([key, number, at, body])).digest()


class Tombstone(Shape, frozen=True):
    """What is left of a deleted run, so that the manifest can tell a deleted run from one that vanished.

    `place` is the run's place in the order of creation. Of a run that was deleted before stores kept tombstones, only that is known.
    """

    place: int
    id: str
    key: bytes
    family: bytes
    created_at: int
    at: int
    head_seq: int
    head_digest: bytes
    checkpoints: int
    check: bytes = ZERO

    @classmethod
    def of(cls, place: int, row: RunRow, at: int) -> Tombstone:
        bare = cls(place, row.id, row.key, row.family, row.created_at, at, row.head_seq, row.head_digest, row.checkpoints)
        return replace(bare, check=bare.digest())

    @classmethod
    def unknown(cls, place: int, at: int) -> Tombstone:
        bare = cls(place, "", b"", b"", 0, at, 0, ZERO, 0)
        return replace(bare, check=bare.digest())

    def digest(self) -> bytes:
        return sha256(
            packb([self.place, self.id, self.key, self.family, self.created_at, self.at, self.head_seq, self.head_digest, self.checkpoints])
        ).digest()


def fact_check(name: str, value: str) -> bytes:
    """The digest of something that the store remembers about itself."""
    return sha256(packb([name, value])).digest()


class Worker(Shape):
    """One open store in one process: who holds leases, and until when (boot clock of `boot`, and wall time as a label)."""

    id: str
    host: str
    pid: int
    boot: str
    started_at: int
    expires_boot: int
    expires_at: int


def shift(manifest: bytes, minus: Sequence[bytes], plus: Sequence[bytes]) -> bytes:
    """The manifest after some checks left it and others came."""
    total = int.from_bytes(manifest)
    for check in minus:
        total -= int.from_bytes(check)
    for check in plus:
        total += int.from_bytes(check)
    return (total % MODULUS).to_bytes(32)

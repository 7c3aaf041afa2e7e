"""The rows that a store is made of, and the digests that hold them together. No I/O.

    digest(record) = S(digest of the record before, header, H(body), H(labels))        H = SHA-256
    check(run row) = S(every field of the row)
    check(tag)     = S(every field of the tag)
    check(letter)  = S(every field of the letter); of prune marks, added bases, tombstones and facts alike
    manifest       = sum of all these checks, modulo 2**256

The chain proves a run's history even when bodies were pruned; the row's head digest keeps the tail from
being cut; the manifest makes a vanished run visible. `header` and "every field" are MessagePack arrays
in the order of the fields below (docs/format.md has them byte by byte).

The header has the run's key, not its id, so that a run can get another id. Labels are what the program says about a checkpoint: note, tags and
metadata. They are hashed with a salt, as a part of their own: they can be dropped, and the chain still proves itself.

S is the seal of a store, H by default. A store may have a keyed one; then whoever does not know the key cannot make a record or a row that is
believed. Everything that makes or proves a digest takes the seal as an argument.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from enum import StrEnum
from hashlib import sha256
from operator import attrgetter
from typing import Any, Protocol

from ormsgpack import packb

from everstep.fields import Shape, replace

ZERO = bytes(32)
MODULUS = 1 << 256
SALT_BYTES = 16
Seal = Callable[[bytes], bytes]
SEALED = "sealed"  # the fact that a store with a keyed seal has, so that no one opens it with another one
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


def unkeyed(data: bytes) -> bytes:
    """The seal of a store without a key."""
    return sha256(data).digest()


class Opener(Protocol):
    """What opens the bodies of records: the framer of a store."""

    def unwrap(self, frame: bytes) -> bytes: ...


class _Opened:
    """Who opens the body of a record. Not one of its fields: it does not tell two records apart."""

    __slots__ = ("opener",)
    opener: Opener


class Record(Shape, _Opened):
    """One link of a run's chain. `number` is that of the newest checkpoint at or before this record.

    `note`, `tags` and `meta` are the labels of a checkpoint; `note` of a journal entry is its address. `own` is what the runtime says about a
    checkpoint, as JSON. `labels` is the salt of the labels, or their digest where they were dropped, or None.
    """

    run: str
    seq: int
    kind: str
    epoch: int
    at: int
    number: int
    note: str | None
    tags: tuple[str, ...]
    meta: str | None
    own: str | None
    labels: bytes | None
    body: bytes | None
    body_digest: bytes
    digest: bytes

    def __getattr__(self, name: str) -> Any:
        """Only called for what is not set: the digest of a body that was read, until somebody asks for it or proves the record."""
        if name == "opener":
            raise AttributeError("nobody opens this record: it was neither proved nor made by a store")
        if name != "body_digest" or self.body is None:
            raise AttributeError(name)
        self.body_digest = sha256(self.body).digest()
        return self.body_digest

    def content(self) -> bytes:
        """What the body holds, unwrapped by the framer of the store that made or proved this record."""
        return self.opener.unwrap(self.body or b"")

    def opened_by(self, opener: Opener) -> Record:
        """The record itself, which its store can open from now on."""
        self.opener = opener
        return self

    def without_body(self) -> Record:
        """The same record as a listing has it."""
        return replace(self, body=None)

    def without_labels(self) -> Record:
        """The same record after its labels were dropped: their digest stays."""
        if self.kind != _CHECKPOINT or not (self.note is not None or self.tags or self.meta is not None):
            return self
        return replace(self, note=None, tags=(), meta=None, labels=labels_digest(self.note, self.tags, self.meta, self.labels))


_CHECKPOINT = Kind.CHECKPOINT.value


def labels_digest(note: str | None, tags: Sequence[str], meta: str | None, labels: bytes | None) -> bytes:
    """What the digest of a checkpoint has of its labels; `meta` is the JSON text as stored. Empty where there are none."""
    if note is None and not tags and meta is None:
        return labels if labels is not None and len(labels) == 32 else b""
    return sha256((labels or b"") + packb([note, tags, meta])).digest()


def chain(before: bytes, key: bytes, r: Record, seal: Seal) -> bytes:
    """The digest that a record has to have, given that of the record before it and the key of its run. Believes `body_digest`."""
    if r.kind != _CHECKPOINT:
        return seal(before + packb([key, r.seq, r.kind, r.epoch, r.at, r.number, r.note]) + r.body_digest)
    part = before + packb([key, r.seq, _CHECKPOINT, r.epoch, r.at, r.number, r.own]) + r.body_digest
    if r.labels is None and r.note is None and r.meta is None and not r.tags:
        return seal(part)
    return seal(part + labels_digest(r.note, r.tags, r.meta, r.labels))


def make_record(
    before: bytes,
    run: str,
    key: bytes,
    seq: int,
    kind: str,
    epoch: int,
    at: int,
    number: int,
    body: bytes,
    note: str | None = None,
    tags: tuple[str, ...] = (),
    meta: str | None = None,
    own: str | None = None,
    labels: bytes | None = None,
    seal: Seal = unkeyed,
) -> Record:
    """A new link. `labels` is a salt, for a checkpoint that has any."""
    body_digest = sha256(body).digest()
    if kind == _CHECKPOINT:
        part = before + packb([key, seq, kind, epoch, at, number, own]) + body_digest
        digest = seal(part if note is None and meta is None and not tags else part + labels_digest(note, tags, meta, labels))
    else:
        digest = seal(before + packb([key, seq, kind, epoch, at, number, note]) + body_digest)
    return Record(run, seq, kind, epoch, at, number, note, tags, meta, own, labels, body, body_digest, digest)


def record_fault(before: bytes, record: Record, key: bytes, seal: Seal = unkeyed) -> str | None:
    """Say what is wrong with a record that was read, or None. A pruned body (None) is no fault, nor are labels that were dropped."""
    if record.body is not None:
        record.body_digest = sha256(record.body).digest()
    if chain(before, key, record, seal) != record.digest:
        return "it does not match its digest"
    if record.labels is None and (record.own is None or record.kind == _CHECKPOINT):  # nearly all
        return None if record.kind == _CHECKPOINT or (record.meta is None and not record.tags) else _NOT_ITS_OWN
    return _misplaced(record)


_NOT_ITS_OWN = "it has labels, which only checkpoints have"


def _misplaced(r: Record) -> str | None:
    """Whether a column has something that the digest does not cover: only damage puts it there."""
    if r.kind != _CHECKPOINT:
        return _NOT_ITS_OWN
    right = 32 if r.note is None and r.meta is None and not r.tags else SALT_BYTES
    return None if r.labels is not None and len(r.labels) == right else "its labels are not what is noted about them"


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

    def digest(self, seal: Seal = unkeyed) -> bytes:
        return seal(
            packb(
                [self.id, self.key, self.family, self.workflow, self.session, list(self.tags), self.note, self.meta, self.parent,
                 self.parent_number, self.created_at, self.status, self.updated_at, self.head_seq, self.head_digest,
                 self.checkpoints, self.stored, self.epoch, self.worker, self.since]
            )
        )  # fmt: skip

    def copy(self) -> RunRow:
        return RunRow(*_fields(self))  # `replace` takes ten times as long, at every commit

    def sealed(self, seal: Seal = unkeyed, /, **changes: Any) -> RunRow:
        """A copy with `changes` and a fresh check."""
        row = replace(self, **changes)
        row.check = row.digest(seal)
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
    def make(cls, key: bytes, name: str, number: int, at: int, seal: Seal = unkeyed) -> Tag:
        return cls(key, name, number, at, tag_check(key, name, number, at, seal))

    def digest(self, seal: Seal = unkeyed) -> bytes:
        return tag_check(self.key, self.name, self.number, self.at, seal)


def tag_check(key: bytes, name: str, number: int, at: int, seal: Seal = unkeyed) -> bytes:
    return seal(packb([key, name, number, at]))


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
    def make(cls, key: bytes, name: str, due: int | None, at: int, body: bytes, seal: Seal = unkeyed) -> Letter:
        return cls(key, name, due, at, body, seal(packb([key, name, due, at, body])))

    def digest(self, seal: Seal = unkeyed) -> bytes:
        return seal(packb([self.key, self.name, self.due, self.at, self.body]))


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
    def make(
        cls,
        key: bytes,
        ranges: Sequence[tuple[int, int]],
        freed: int,
        at: int,
        numbers: Sequence[tuple[int, int]] = (),
        seal: Seal = unkeyed,
    ) -> Pruned:
        bare = cls(key, tuple(ranges), freed, at, tuple(numbers), ZERO)
        return replace(bare, check=bare.digest(seal))

    def digest(self, seal: Seal = unkeyed) -> bytes:
        return seal(packb([self.key, [list(r) for r in self.ranges], self.freed, self.at, [list(r) for r in self.numbers]]))

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


class Base(Shape, frozen=True):
    """A base that prune added for a checkpoint that it keeps, so that the deltas before it can go. `body` is a frame."""

    key: bytes
    number: int
    at: int
    body: bytes
    check: bytes

    @classmethod
    def make(cls, key: bytes, number: int, at: int, body: bytes, seal: Seal = unkeyed) -> Base:
        return cls(key, number, at, body, seal(packb([key, number, at, body])))

    def digest(self, seal: Seal = unkeyed) -> bytes:
        return seal(packb([self.key, self.number, self.at, self.body]))


class Tombstone(Shape, frozen=True):
    """What is left of a deleted run, so that the manifest can tell a deleted run from one that vanished.

    `place` is the run's place in the order of creation. Of a run that a repair knows nothing else about, only that is known.
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
    def of(cls, place: int, row: RunRow, at: int, seal: Seal = unkeyed) -> Tombstone:
        bare = cls(place, row.id, row.key, row.family, row.created_at, at, row.head_seq, row.head_digest, row.checkpoints)
        return replace(bare, check=bare.digest(seal))

    @classmethod
    def unknown(cls, place: int, at: int, seal: Seal = unkeyed) -> Tombstone:
        bare = cls(place, "", b"", b"", 0, at, 0, ZERO, 0)
        return replace(bare, check=bare.digest(seal))

    def digest(self, seal: Seal = unkeyed) -> bytes:
        return seal(
            packb([self.place, self.id, self.key, self.family, self.created_at, self.at, self.head_seq, self.head_digest, self.checkpoints])
        )


def fact_check(name: str, value: str, seal: Seal = unkeyed) -> bytes:
    """The digest of something that the store remembers about itself."""
    return seal(packb([name, value]))


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

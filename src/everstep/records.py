"""The rows of a store, and the digests that connect them. No I/O.

    digest(record) = S(digest of the record before, header, H(body), H(labels))        H = SHA-256
    check(run row) = S(every field of the row)
    check(tag)     = S(every field of the tag)
    check(message)  = S(every field of the message); likewise for prune marks, added bases, tombstones and properties
    manifest       = sum of all these checks, modulo 2**256

The chain proves a run's history even after bodies were pruned; the row's head digest reveals a cut-off
tail; the manifest reveals a vanished run. `header` and "every field" are MessagePack arrays
in the order of the fields below (docs/format.md has them byte by byte).

The header has the run's key, not its id, so that a run can get another id. Labels are the program's texts about a checkpoint: note, tags
and metadata. They are hashed separately, with a salt, so that they can be dropped and the chain still verifies.

S is the seal of a store, H by default. A store may have a keyed seal; then only a process that has the key can make a record or a row that
verifies. Every function that makes or verifies a digest takes the seal as an argument.
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
from everstep.seals import Seal as Seal
from everstep.seals import of_rows
from everstep.seals import unkeyed as unkeyed

ZERO = bytes(32)
MODULUS = 1 << 256
SALT_BYTES = 16
ENCRYPTION = "encryption"  # the property of an encrypted store; its check is not keyed, because it must be read before the key is known
SEALED = "sealed"  # the property of a store with a keyed seal, so that it is not opened with another one
CHILD = -1  # the parent_number of a run that another run called; a fork has the number of the checkpoint where it begins


class Kind(StrEnum):
    """The kind of a record."""

    START = "start"
    CHECKPOINT = "checkpoint"
    BASE = "base"
    STATUS = "status"
    STEP = "step"
    GATE = "gate"
    ANSWER = "answer"
    TIMER = "timer"
    EVENT = "event"
    ATTACHED = "attached"


class Status(StrEnum):
    """The status of a run."""

    QUEUED = "queued"
    RUNNING = "running"
    WAITING = "waiting"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


Place = tuple[str | int | bytes, ...]
"""The kind of a frame, and its position in the run: ("record", 7, "step"). An encrypted frame can be opened in its own place only."""


Chunk = tuple[bytes, bytes]
"""The digest of a chunk's content, and an inner frame; as it is stored: its name, and its frame."""
Fetch = Callable[[Sequence[bytes]], dict[bytes, bytes]]


Labels = tuple[str | None, tuple[str, ...], str | None]
"""Note, tags and the JSON text of metadata."""
SEALED_LABELS = "\x1aencrypted:"  # how the note of an encrypted store begins


class Frames(Protocol):
    """The frames of one run. Every frame says which place it belongs to."""

    def wrap(self, content: bytes, place: Place, least: int = 0) -> bytes:
        """Wrap content in a frame; content below the threshold, or below `least` bytes, is not compressed."""

    def unwrap(self, frame: bytes, place: Place) -> bytes:
        """Return the content of a frame. Raises `DamagedFrame` for an invalid one, and for one of another place if the store is encrypted."""

    def stored(self, chunks: Sequence[Chunk]) -> Sequence[Chunk]:
        """Return the chunks as they are stored."""

    def chunk_name(self, digest: bytes) -> bytes:
        """Return the name under which the chunk of this content is stored."""

    def open_chunk(self, name: bytes, frame: bytes) -> bytes:
        """Return the inner frame of a stored chunk. A frame that cannot be opened yields one that no framer opens."""

    def fetcher(self, read: Fetch) -> Fetch:
        """Return a function from digests of content to inner frames, given one from stored names to stored frames."""

    def seal_labels(self, labels: Labels, place: Place) -> Labels:
        """Return labels as they are stored."""

    def open_labels(self, labels: Labels, place: Place) -> Labels:
        """Return labels as the program gave them."""


class Inner(Protocol):
    """Compresses: wraps what is inside of chunks."""

    def wrap(self, content: bytes, place: Place | None = None, least: int = 0) -> bytes: ...

    def unwrap(self, frame: bytes, place: Place | None = None) -> bytes: ...


class Framing(Protocol):
    """Makes and opens the frames of a store. A store has one, and no frame of it is made or opened by anything else."""

    @property
    def inner(self) -> Inner:
        """Wraps and unwraps what is inside of chunks, and compresses."""

    @property
    def encrypted(self) -> bool:
        """Whether frames are encrypted."""

    @property
    def locked(self) -> bool:
        """Whether they are, and the key is missing."""

    @property
    def overhead(self) -> int:
        """The bytes that a stored frame has more than an inner one."""

    def with_inner(self, inner: Any) -> Framing:
        """Return the same with another choice of compression."""

    def of(self, family: bytes, key: bytes) -> Frames:
        """Return the frames of a run, given its family and its key."""

    def store(self) -> Frames:
        """Return the frames that belong to no run: schedules, orders."""

    def new_family(self, family: bytes) -> bytes | None:
        """Make the key of a new family, unless it was made; return it wrapped. None if the store is not encrypted."""

    def forget(self, family: bytes) -> None:
        """Drop the key of a family from memory: a run of it was deleted."""


class _Opened:
    """Holds the opener of a record's body. It is not a field, so it plays no part in comparing two records."""

    __slots__ = ("opener",)
    opener: Frames


class Record(Shape, _Opened):
    """One link of a run's chain. `number` is that of the newest checkpoint at or before this record.

    `note`, `tags` and `meta` are the labels of a checkpoint; `note` of a journal entry is its address. `own` is the runtime's data about a
    checkpoint, as JSON. `labels` is the salt of the labels, or their digest if they were dropped, or None.
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
        """Compute the digest of a body that was read, when it is first used. Python calls this only for attributes that are not set."""
        if name == "opener":
            raise AttributeError("this record has no opener: it was neither verified nor made by a store")
        if name != "body_digest" or self.body is None:
            raise AttributeError(name)
        self.body_digest = sha256(self.body).digest()
        return self.body_digest

    def content(self) -> bytes:
        """Return the content of the body, unwrapped by the frames of the run that made or verified this record."""
        return self.opener.unwrap(self.body or b"", ("record", self.seq, self.kind))

    def shown(self) -> Labels:
        """Return the labels as the program gave them."""
        if self.note is None or not self.note.startswith(SEALED_LABELS):
            return self.note, self.tags, self.meta
        return self.opener.open_labels((self.note, self.tags, self.meta), ("labels", self.seq))

    def opened_by(self, opener: Frames) -> Record:
        """Set what opens the body: the frames of its run. Return the record itself."""
        self.opener = opener
        return self

    def without_body(self) -> Record:
        """Return the record as listings have it."""
        return replace(self, body=None)

    def without_labels(self) -> Record:
        """Return the record as it is after its labels were dropped: their digest stays."""
        if self.kind != _CHECKPOINT or not (self.note is not None or self.tags or self.meta is not None):
            return self
        return replace(self, note=None, tags=(), meta=None, labels=labels_digest(self.note, self.tags, self.meta, self.labels))


_CHECKPOINT = Kind.CHECKPOINT.value


def labels_digest(note: str | None, tags: Sequence[str], meta: str | None, labels: bytes | None) -> bytes:
    """Return the part of a checkpoint's digest that covers its labels; `meta` is the JSON text as stored. Empty if there are none."""
    if note is None and not tags and meta is None:
        return labels if labels is not None and len(labels) == 32 else b""
    return sha256((labels or b"") + packb([note, tags, meta])).digest()


def chain(before: bytes, key: bytes, r: Record, seal: Seal) -> bytes:
    """Return the correct digest of a record, given that of the record before it and the key of its run. Does not verify `body_digest`."""
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
    """Make a new record of the chain. `labels` is a salt, for a checkpoint that has any."""
    body_digest = sha256(body).digest()
    if kind == _CHECKPOINT:
        part = before + packb([key, seq, kind, epoch, at, number, own]) + body_digest
        digest = seal(part if note is None and meta is None and not tags else part + labels_digest(note, tags, meta, labels))
    else:
        digest = seal(before + packb([key, seq, kind, epoch, at, number, note]) + body_digest)
    return Record(run, seq, kind, epoch, at, number, note, tags, meta, own, labels, body, body_digest, digest)


def record_fault(before: bytes, record: Record, key: bytes, seal: Seal = unkeyed) -> str | None:
    """Return what is wrong with a record that was read, or None. A pruned body (None) and dropped labels are not faults."""
    body, kind = record.body, record.kind
    if body is not None:
        record.body_digest = sha256(body).digest()
    if chain(before, key, record, seal) != record.digest:
        return "it does not match its digest"
    if record.labels is None and (record.own is None or kind == _CHECKPOINT):  # nearly all records
        return None if kind == _CHECKPOINT or (record.meta is None and not record.tags) else _NOT_ITS_OWN
    return _misplaced(record)


_NOT_ITS_OWN = "it has labels, which only checkpoints have"


def _misplaced(r: Record) -> str | None:
    """Return the fault of a column whose value the digest does not cover: only damage writes one there."""
    if r.kind != _CHECKPOINT:
        return _NOT_ITS_OWN
    right = 32 if r.note is None and r.meta is None and not r.tags else SALT_BYTES
    return None if r.labels is not None and len(r.labels) == right else "its labels do not match their salt or digest"


class RunRow(Shape):
    """One run: its position in the family, its head, its lease. `check` is the digest of all other fields."""

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
        return of_rows(seal)(
            packb(
                [self.id, self.key, self.family, self.workflow, self.session, list(self.tags), self.note, self.meta, self.parent,
                 self.parent_number, self.created_at, self.status, self.updated_at, self.head_seq, self.head_digest,
                 self.checkpoints, self.stored, self.epoch, self.worker, self.since]
            )
        )  # fmt: skip

    def copy(self) -> RunRow:
        return RunRow(*_fields(self))  # `replace` takes ten times as long, at every commit

    def sealed(self, seal: Seal = unkeyed, /, **changes: Any) -> RunRow:
        """Return a copy with `changes` and a new check."""
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
    return of_rows(seal)(packb([key, name, number, at]))


class Message(Shape, frozen=True):
    """A message to a run, and the time at which it wakes up the run (`due`; None: it does not). `body` is a frame.

    Any process may post one; the run removes it after reading it. `key` is the run's key, so that no message reaches another run.
    """

    key: bytes
    name: str
    due: int | None
    at: int
    body: bytes
    check: bytes

    @classmethod
    def make(cls, key: bytes, name: str, due: int | None, at: int, body: bytes, seal: Seal = unkeyed) -> Message:
        return cls(key, name, due, at, body, seal(packb([key, name, due, at, body])))

    def digest(self, seal: Seal = unkeyed) -> bytes:
        return seal(packb([self.key, self.name, self.due, self.at, self.body]))


class Pruned(Shape, frozen=True):
    """The prune mark of a run: the parts of it that were pruned. Every pruned run has one.

    `ranges` (first, last) are the seqs whose bodies were dropped, `numbers` (first, last) the checkpoints that can no longer be loaded;
    both are sorted and do not overlap. Without the mark, a vanished body would look the same as one that was dropped on purpose.
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
        """Return whether the body of a record should exist."""
        return not _within(self.ranges, seq)

    def has_state(self, number: int) -> bool:
        """Return whether a checkpoint can be loaded."""
        return not _within(self.numbers, number)


Ranges = tuple[tuple[int, int], ...]


def _within(ranges: Ranges, n: int) -> bool:
    """Return whether one of the ranges contains a number."""
    index = bisect_right(ranges, (n, MODULUS)) - 1
    return index >= 0 and n <= ranges[index][1]


class Base(Shape, frozen=True):
    """A base that prune added for a checkpoint that it keeps, so that the deltas before it can be dropped. `body` is a frame."""

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
    """The row that remains of a deleted run, so that the manifest can tell a deleted run from a vanished one.

    `pk` is the run's position in the order of creation. For a run that repair could not identify, only the position is known.
    """

    pk: int
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
    def of(cls, pk: int, row: RunRow, at: int, seal: Seal = unkeyed) -> Tombstone:
        bare = cls(pk, row.id, row.key, row.family, row.created_at, at, row.head_seq, row.head_digest, row.checkpoints)
        return replace(bare, check=bare.digest(seal))

    @classmethod
    def unknown(cls, pk: int, at: int, seal: Seal = unkeyed) -> Tombstone:
        bare = cls(pk, "", b"", b"", 0, at, 0, ZERO, 0)
        return replace(bare, check=bare.digest(seal))

    def digest(self, seal: Seal = unkeyed) -> bytes:
        return of_rows(seal)(
            packb([self.pk, self.id, self.key, self.family, self.created_at, self.at, self.head_seq, self.head_digest, self.checkpoints])
        )


def property_check(name: str, value: str, seal: Seal = unkeyed) -> bytes:
    """Return the digest of a property of the store."""
    return (unkeyed if name == ENCRYPTION else of_rows(seal))(packb([name, value]))


class Worker(Shape):
    """One open store in one process, as the holder of leases, with their expiry (boot clock of `boot`, and wall time as a label)."""

    id: str
    host: str
    pid: int
    boot: str
    started_at: int
    expires_boot: int
    expires_at: int


def shift(manifest: bytes, minus: Sequence[bytes], plus: Sequence[bytes]) -> bytes:
    """Return the manifest after some checks were removed and others added."""
    total = int.from_bytes(manifest)
    for check in minus:
        total -= int.from_bytes(check)
    for check in plus:
        total += int.from_bytes(check)
    return (total % MODULUS).to_bytes(32)

"""Loads snapshots: the base at or before a checkpoint and the deltas after it, with every byte checked.

Relies on a backend for records and chunks and on `snapshot` for their meaning. Never returns an older state for a newer one: damage is an
error that names the damaged part and, for the head, the newest good checkpoint. The run's prune mark tells a pruned checkpoint from a
damaged one.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from everstep.backends.contract.core import Backend, Located
from everstep.codec.values import Decoder, revived
from everstep.errors import Damaged, DamagedKey, DamagedRecord, DamagedRun, EverstepError, MissingHead, PrunedCheckpoint, RunDeleted
from everstep.fields import Shape
from everstep.records import ZERO, Base, Kind, Pruned, Record, RunRow, Seal, record_fault
from everstep.snapshot.delta import Op, apply
from everstep.snapshot.loader import Loader
from everstep.snapshot.saver import NO_DELTA
from everstep.store.encryption.frames import content_of_base, fetch_of, frames_of
from everstep.threads.no_collection import no_collection

_STATE = (Kind.CHECKPOINT.value, Kind.BASE.value)


Frames = dict[bytes, bytes]


class Loaded(Shape):
    """A snapshot with neutral objects, and its distance from its base."""

    value: Any
    deltas: int
    delta_bytes: int
    objects: bool

    def revived(self) -> Any:
        return revived(self.value) if self.objects else self.value


class Stretch(Shape):
    """Data of a run read at once: where a checkpoint is, the records of its state and possibly later ones, not proved yet."""

    backend: Backend
    row: RunRow
    at: Located
    mark: Pruned | None

    def proved(self, first: int, last: int) -> list[Record]:
        """Return the records first..last, without gaps and each matching its digest."""
        before = max(1, first - 1)
        return _proved(self.backend, self.row, [r for r in self.at.records if before <= r.seq <= last], first, last)

    def checkpoint(self, number: int) -> Record:
        """Return the record of the checkpoint that this was read for."""
        return _checkpoint(self.row, self.proved(self.at.seq, self.at.seq)[-1], number)


def find(backend: Backend, row: RunRow, number: int) -> int:
    """Return the seq of a checkpoint."""
    try:
        found = backend.locate(row.id, number)
    except Damaged:
        found = None
    return _sound(backend, row, number, None, found).seq


def stretch(backend: Backend, row: RunRow, number: int, upto: int = 0) -> Stretch:
    """Read the records that make up the state of a checkpoint, and those after it up to a seq."""
    try:
        found = backend.locate(row.id, number, upto)
    except Damaged:
        found = None
    found = _sound(backend, row, number, upto, found)
    mark = _proved_mark(row, found.mark, backend.seal)
    if number != row.checkpoints and mark is not None and not mark.has_state(number):  # the head is never pruned
        raise pruned_error(row, number, mark)
    return Stretch(backend, row, found, mark)


def _sound(backend: Backend, row: RunRow, number: int, upto: int | None, found: Located | None) -> Located:
    """Return where a checkpoint is. If the backend does not find it, or at an impossible seq, search record by record, which names the
    damage.
    """
    if found is None or not (number <= found.seq <= row.head_seq and found.base <= min(found.seq + 1, row.head_seq)):
        return _searched(backend, row, number, upto)
    return found


def _searched(backend: Backend, row: RunRow, number: int, upto: int | None) -> Located:
    seq = _search(backend, row, number)
    bases = backend.records(row.id, 1, min(seq + 1, row.head_seq), (Kind.BASE.value,), newest=2)
    base = max((b.seq for b in bases if b.number <= number), default=0)
    found = Located(seq, base)
    return found if upto is None else found._replace(records=backend.records(row.id, found.first, found.last(upto)))


def _search(backend: Backend, row: RunRow, number: int) -> int:
    """Find the seq of a checkpoint by binary search: every record knows the newest number up to it."""
    low, high = max(1, number), row.head_seq
    while low < high:
        middle = (low + high) // 2
        record = _one(backend, row, middle)
        if record.number < number:
            low = middle + 1
        else:
            high = middle
    return low


def _one(backend: Backend, row: RunRow, seq: int) -> Record:
    found = backend.records(row.id, seq, seq)
    if not found:
        raise _gone(backend, row, seq)
    return found[0]


def refuse_deleted(backend: Backend, row: RunRow) -> None:
    """Raise `RunDeleted` if a run does not exist any more: its missing data is not damage."""
    now = backend.run(row.id)
    if now is None or now.key != row.key:
        raise RunDeleted(row.id)


def _gone(backend: Backend, row: RunRow, seq: int) -> Damaged:
    refuse_deleted(backend, row)
    if seq == row.head_seq:
        return MissingHead(f"record {seq}, the newest of run {row.id!r}, is missing")
    return DamagedRecord(row.id, seq, "it is missing")


def checkpoint_record(backend: Backend, row: RunRow, number: int) -> Record:
    """Return the verified record of one checkpoint."""
    return _checkpoint(row, checked(backend, row, find(backend, row, number), None)[-1], number)


def _checkpoint(row: RunRow, record: Record, number: int) -> Record:
    if record.number != number or record.kind != Kind.CHECKPOINT:
        raise DamagedRecord(row.id, record.seq, f"it must be checkpoint {number}")
    return record


def unproved(
    backend: Backend, row: RunRow, first: int, last: int, kinds: Sequence[str] | None = None, newest: int | None = None
) -> list[Record]:
    """Return records as stored, for listings: they are not proved, but can be opened."""
    frames = frames_of(backend, row)
    return [record.opened_by(frames) for record in backend.records(row.id, first, last, kinds, newest)]


def checked(backend: Backend, row: RunRow, first: int, last: int | None) -> list[Record]:
    """Return the records first..last, without gaps and each matching its digest; the head must also match the run row."""
    last = first if last is None else last
    return _proved(backend, row, backend.records(row.id, max(1, first - 1), last), first, last)


def _proved(backend: Backend, row: RunRow, records: list[Record], first: int, last: int) -> list[Record]:
    """Prove the records first..last among those read, with the one before them if there is one."""
    expected = range(max(1, first - 1), last + 1)
    if [r.seq for r in records] != list(expected):
        found = {r.seq for r in records}
        raise _gone(backend, row, next((seq for seq in reversed(expected) if seq not in found), first))
    before, key, seal, frames = ZERO, row.key, backend.seal, frames_of(backend, row)
    for i, record in enumerate(records):
        if i or record.seq == 1:
            fault = record_fault(before, record, key, seal)
            if fault:
                number = record.number if record.kind == Kind.CHECKPOINT else None
                raise DamagedRecord(row.id, record.seq, fault, number)
        record.opener = frames
        before = record.digest
    if last == row.head_seq and before != row.head_digest:
        raise DamagedRecord(row.id, last, "it is not the one named as head in the run row", records[-1].number)
    return records if first == 1 else records[1:]


def checked_from(backend: Backend, row: RunRow, first: int) -> list[Record]:
    """Return all records of a run from this one on, proved."""
    return checked(backend, row, first, row.head_seq) if first <= row.head_seq else []


def load(backend: Backend, row: RunRow, number: int, found: Stretch | None = None, frames: Frames | None = None) -> Loaded:
    """Load the snapshot of one checkpoint; an error about the head names the newest good one. `found`, `frames`: parts that were read
    already.
    """
    try:
        with no_collection():
            try:
                return load_only(backend, row, number, found, frames)
            except Damaged:  # try twice: a prune may have replaced the base between the reads of its record and its chunks
                return load_only(backend, row, number)
    except Damaged as error:
        refuse_deleted(backend, row)
        if number != row.checkpoints:
            raise
        raise of_head(backend, row, error) from error.__cause__


def load_two(backend: Backend, a: tuple[RunRow, int], b: tuple[RunRow, int]) -> tuple[Loaded, Loaded]:
    """Load two snapshots. If they are of one family, their chunks are fetched together."""
    found: tuple[Stretch | None, ...] = (None, None)
    frames: Frames = {}
    if a[0].family == b[0].family:
        with suppress(EverstepError):  # loading them one by one tells which one cannot be loaded, and why
            found = tuple(stretch(backend, row, number) for row, number in (a, b))
            roots = [parts_of(row, number, read)[0] for (row, number), read in zip((a, b), found, strict=True) if read is not None]
            reader = Loader(fetch_of(backend, a[0].family), backend.framer.inner.unwrap, frames)
            reader.read_ahead(*(root for root in roots if root is not None))
    return load(backend, *a, found[0], dict(frames)), load(backend, *b, found[1], frames)


def of_head(backend: Backend, row: RunRow, error: Damaged) -> Damaged:
    """Return an error about the head that names the newest good checkpoint."""
    return error.of_head(row.id, row.checkpoints, newest_good(backend, row, row.checkpoints - 1))


def last_error(backend: Backend, row: RunRow) -> dict[str, str] | None:
    """Return the error in the newest status record."""
    record = newest_of(backend, row, Kind.STATUS)
    if record is None:
        return None
    said = Decoder().decode(content_of(row, record))
    error = said.get("error") if isinstance(said, dict) else None
    return {name: str(error.get(name)) for name in ("type", "message", "traceback")} if isinstance(error, dict) else None


def newest_of(backend: Backend, row: RunRow, kind: Kind) -> Record | None:
    """Return the newest record of a kind; everything from there to the head is proved, so that none can hide behind a wrong kind."""
    found = backend.records(row.id, 1, row.head_seq, (kind.value,), newest=1)
    records = checked(backend, row, found[0].seq if found else 1, row.head_seq) if row.head_seq else []
    return next((record for record in reversed(records) if record.kind == kind), None)


def newest_good(backend: Backend, row: RunRow, number: int) -> int | None:
    """Return the newest checkpoint up to a number that can be loaded, or None."""
    from everstep.store.repair import salvage

    return salvage.newest_good(backend, row, number)


def load_only(backend: Backend, row: RunRow, number: int, found: Stretch | None = None, frames: Frames | None = None) -> Loaded:
    """Load the snapshot of one checkpoint; an error does not look for other good ones."""
    base, deltas = parts_of(row, number, found or stretch(backend, row, number))
    loader = Loader(fetch_of(backend, row.family), backend.framer.inner.unwrap, frames)
    value = None
    if base is not None:
        loader.read_ahead(base)
        value = loader.load(base)
    decoder = Decoder()
    size = 0
    for record in deltas:
        content = content_of(row, record)
        value = apply(value, ops_in(decoder, content, row, record))
        size += len(content)
    return Loaded(value, len(deltas), size, bool(loader.decoder.objects or decoder.objects))


def look(backend: Backend, row: RunRow, number: int) -> Any:
    """Return a lazy, read-only view of one checkpoint."""
    from everstep.snapshot.view import LazyLoader, view

    try:
        base, deltas = parts_of(row, number, stretch(backend, row, number))
        loader = LazyLoader(lambda digests: _chunks(backend, row, number, digests), backend.framer.inner.unwrap)
        value = loader.load(base) if base is not None else None
        decoder = Decoder()
        for record in deltas:
            value = apply(value, ops_in(decoder, content_of(row, record), row, record))
    except Damaged as error:
        if number != row.checkpoints:
            raise
        raise of_head(backend, row, error) from error.__cause__
    return view(value)


def _chunks(backend: Backend, row: RunRow, number: int, digests: Sequence[bytes]) -> dict[bytes, bytes]:
    """Fetch chunks for a view, which may be read long after it was made: by then the run may be deleted, or its checkpoint pruned."""
    try:
        found = fetch_of(backend, row.family)(digests)
    except DamagedKey:  # the deletion of a family's last run destroys its key
        refuse_deleted(backend, row)
        raise
    if any(digest not in found for digest in digests):
        refuse_deleted(backend, row)
        mark = prune_mark(backend, row)
        if mark is not None and not mark.has_state(number):
            raise pruned_error(row, number, mark)
    return found


def deltas_of(backend: Backend, row: RunRow, first: int, last: int) -> list[tuple[Record, list[Op] | None]]:
    """Return the checkpoints first..last with their deltas; None if a base replaces the delta, or if it was pruned (then it has no body)."""
    start, stop = find(backend, row, first), find(backend, row, last)
    decoder = Decoder()
    out: list[tuple[Record, list[Op] | None]] = []
    for record in checked(backend, row, start, stop):
        if record.kind == Kind.CHECKPOINT:
            content = NO_DELTA if record.body is None else record.content()
            out.append((record, None if content == NO_DELTA else ops_in(decoder, content, row, record)))
    return out


def prune_mark(backend: Backend, row: RunRow) -> Pruned | None:
    """Return the prune mark of a run, checked against its digest."""
    return _proved_mark(row, backend.pruned(row.id), backend.seal)


def _proved_mark(row: RunRow, mark: Pruned | None, seal: Seal) -> Pruned | None:
    if mark is not None and (mark.digest(seal) != mark.check or mark.key != row.key):
        raise DamagedRun(f"the prune mark of run {row.id!r} does not match its digest")
    return mark


def _proved_base(row: RunRow, base: Base | None, seal: Seal) -> Base | None:
    if base is not None and (base.digest(seal) != base.check or base.key != row.key):
        raise DamagedRun(f"the added base for {row.id}@{base.number} does not match its digest")
    return base


def parts_of(row: RunRow, number: int, found: Stretch) -> tuple[bytes | None, list[Record]]:
    """Return the content of the base to start from, and the checkpoints after it up to the requested one."""
    at = found.at
    records = found.proved(at.base or 1, max(at.seq, at.base))
    base = records[0] if at.base else None
    if base is not None and base.kind != Kind.BASE:
        raise DamagedRecord(row.id, at.base, "it must be a base")
    deltas = [r for r in records if r.kind == Kind.CHECKPOINT and (base is None or r.number > base.number)]
    if [r.number for r in deltas] != list(range((base.number if base else 0) + 1, number + 1)):
        raise DamagedRecord(row.id, at.seq, f"the checkpoints before {number} are not consecutive", number)
    if (base is not None and base.body is None) or any(r.body is None for r in deltas):
        return _around_pruned(found, number, deltas, _proved_base(row, at.added, found.backend.seal))
    return None if base is None else content_of(row, base), deltas


def _around_pruned(found: Stretch, number: int, deltas: list[Record], base: Base | None) -> tuple[bytes, list[Record]]:
    """Do the same if bodies are missing: start from a base that prune added, if everything after it is present."""
    row, mark = found.row, found.mark
    after = [r for r in deltas if base is not None and r.number > base.number]
    if base is not None and number - base.number == len(after) and all(r.body is not None for r in after):
        return content_of_base(frames_of(found.backend, row), base), after
    missing = [r for r in deltas if r.body is None and (mark is None or mark.has_body(r.seq))]
    if mark is None or missing:
        where = missing[-1] if missing else deltas[-1] if deltas else None
        raise DamagedRecord(row.id, where.seq if where else 0, "its body is missing although it was not pruned", number)
    if mark.has_state(number):
        raise DamagedRecord(row.id, deltas[-1].seq if deltas else 0, "the base that it depends on is missing", number)
    raise pruned_error(row, number, mark)


def pruned_error(row: RunRow, number: int, mark: Pruned) -> PrunedCheckpoint:
    """Return the error that a checkpoint was pruned; it names the nearest kept ones."""
    before = next((n for n in range(number - 1, 0, -1) if mark.has_state(n)), None)
    after = next((n for n in range(number + 1, row.checkpoints + 1) if mark.has_state(n)), None)
    return PrunedCheckpoint(row.id, number, (before, after))


def content_of(row: RunRow, record: Record) -> bytes:
    if record.body is None:
        raise DamagedRecord(row.id, record.seq, "its body is missing", record.number)
    return record.content()


def ops_in(decoder: Decoder, content: bytes, row: RunRow, record: Record) -> list[Op]:
    if content == NO_DELTA:
        raise DamagedRecord(row.id, record.seq, "it has no delta, and the base that should follow it is missing", record.number)
    ops = decoder.decode(content)
    if not isinstance(ops, list):
        raise DamagedRecord(row.id, record.seq, "its body is not a delta", record.number)
    return ops

"""Converts rows of SQLite to the rows of `everstep.records` and back. No I/O.

From a damaged page, SQLite may return a value of any type. The types of all columns are checked before a row becomes an object, so that
damage is an error of ours that names the row, never a TypeError in other code.
"""

from __future__ import annotations

from hashlib import sha256
from json.encoder import encode_basestring_ascii as _quoted
from typing import Any

from everstep.backends.columns import pack_ranges, pack_tags, unpack_ranges, unpack_tags
from everstep.backends.contract.core import MAX_SEQ
from everstep.backends.contract.query_semantics import meta_scalars
from everstep.backends.heads import refuse_stale
from everstep.errors import Damaged, DamagedFrame, DamagedRecord, DamagedRun
from everstep.records import ZERO, Base, Message, Pruned, Record, RunRow, Seal, Tag, Tombstone, Worker, property_check

Values = tuple[Any, ...]


class Columns:
    """The types that the columns of a row may have. Valid signatures are cached: there are few."""

    def __init__(self, *types: tuple[type, ...]) -> None:
        self._types = types
        self._good: set[tuple[type, ...]] = set()

    def fit(self, values: Values) -> bool:
        signature = tuple(map(type, values))
        if signature in self._good:
            return True
        fits = len(values) == len(self._types) and all(has in allowed for has, allowed in zip(signature, self._types, strict=True))
        if fits:
            self._good.add(signature)
        return fits


_TEXT, _MAYBE_TEXT, _INT, _BYTES, _MAYBE_BYTES = (str,), (str, type(None)), (int,), (bytes,), (bytes, type(None))
_MAYBE_INT = (int, type(None))
_RUN = Columns(
    _INT, _TEXT, _BYTES, _BYTES, _MAYBE_TEXT, _MAYBE_TEXT, _MAYBE_TEXT, _MAYBE_TEXT, _MAYBE_TEXT, _MAYBE_TEXT, _INT,
    _INT, _TEXT, _INT, _INT, _BYTES, _INT, _INT, _INT, _MAYBE_TEXT, _INT, _BYTES,
)  # fmt: skip
_RECORD = Columns(
    _INT, _TEXT, _INT, _INT, _INT, _MAYBE_TEXT, _MAYBE_TEXT, _MAYBE_TEXT, _MAYBE_TEXT, _MAYBE_BYTES, _BYTES, _MAYBE_BYTES, _MAYBE_BYTES
)  # fmt: skip
_TAG = Columns(_BYTES, _TEXT, _INT, _INT, _BYTES)
_MESSAGE = Columns(_BYTES, _TEXT, _MAYBE_INT, _INT, _BYTES, _BYTES)
_PRUNED = Columns(_BYTES, _BYTES, _INT, _INT, _BYTES, _BYTES)
_BASE = Columns(_BYTES, _INT, _INT, _BYTES, _BYTES)
_TOMBSTONE = Columns(_INT, _TEXT, _BYTES, _BYTES, _INT, _INT, _INT, _BYTES, _INT, _BYTES)
_WORKER = Columns(_TEXT, _TEXT, _INT, _TEXT, _INT, _INT, _INT)


def run_from(values: Values, wanted: str | None = None) -> RunRow:
    """Make a run row from all columns in the order of the table."""
    name = wanted if wanted is not None else values[1]
    if not _RUN.fit(values):
        raise DamagedRun(f"the row of run {name!r} is damaged: a column has the wrong type")
    tags = unpack_tags(values[6])
    if tags is None:
        raise DamagedRun(f"the row of run {name!r} is damaged: its tags cannot be read")
    name, key, family, workflow, session = values[1:6]
    return RunRow(name, key, family, workflow, session, tags, *values[7:])


def newest_run(values: Values, wanted: str | None = None) -> RunRow:
    """Make a run row from all columns and the id of the run's newest record."""
    row = run_from(values[:-1], wanted)
    newest: int | None = values[-1]
    refuse_stale(row, None if newest is None else newest & MAX_SEQ)
    return row


def run_values(row: RunRow) -> Values:
    """Return all columns of a run row except its primary key."""
    return (
        row.id, row.key, row.family, row.workflow, row.session, pack_tags(row.tags), row.note, row.meta, row.parent, row.parent_number,
        row.created_at, row.status, row.updated_at, row.head_seq, row.head_digest, row.checkpoints, row.stored, row.epoch,
        row.worker, row.since, row.check,
    )  # fmt: skip


def record_from(run: str, values: Values) -> Record:
    """Make a record. The digest of its body is computed when it is needed, unless the body was pruned."""
    if not _RECORD.fit(values):
        raise DamagedRecord(run, values[0] & MAX_SEQ, "a column has the wrong type")
    id, kind, epoch, at, number, note, tags, meta, own, labels, digest, body_digest, body = values
    seq = id & MAX_SEQ
    names = () if tags is None else unpack_tags(tags)
    if names is None:
        raise DamagedRecord(run, seq, "its tags cannot be read")
    if body is not None:
        record = Record(run, seq, kind, epoch, at, number, note, names, meta, own, labels, body, ZERO, digest)
        del record.body_digest  # verifying the record computes it, and nearly every reader verifies
        return record
    if body_digest is None:
        raise DamagedRecord(run, seq, "its body is missing and no digest of it is stored")
    return Record(run, seq, kind, epoch, at, number, note, names, meta, own, labels, body, body_digest, digest)


def meta_items(meta: str | None) -> list[int]:
    """Return the numbers by which the scalars of a checkpoint's metadata are found."""
    return [] if meta is None else [meta_item(key, text) for key, text in meta_scalars(meta).items()]


def known_items(meta: Any) -> list[int]:
    """Return the same for metadata that may be damaged."""
    try:
        return meta_items(meta)
    except (DamagedFrame, TypeError):
        return []


def meta_item(key: str, text: str) -> int:
    """Return the number for one scalar, with its key. Two may share one: a reader compares."""
    both = f"[{_quoted(key)}, {_quoted(text)}]"  # as json.dumps has it, which takes three times as long
    return int.from_bytes(sha256(both.encode()).digest()[:8], signed=True)


def record_values(pk: int, r: Record) -> Values:
    return (
        pk << 31 | r.seq, r.kind, r.epoch, r.at, r.number, r.note, pack_tags(r.tags) if r.tags else None, r.meta, r.own, r.labels,
        r.digest, r.body_digest if r.body is None else None, r.body,
    )  # fmt: skip


def tag_from(run: str, values: Values) -> Tag:
    if not _TAG.fit(values):
        raise DamagedRun(f"a tag of run {run!r} is damaged: a column has the wrong type")
    return Tag(*values)


def message_from(run: str, values: Values) -> Message:
    if not _MESSAGE.fit(values):
        raise DamagedRun(f"a message of run {run!r} is damaged: a column has the wrong type")
    return Message(*values)


def message_values(pk: int, message: Message) -> Values:
    return (pk, message.name, message.due, message.at, message.key, message.body, message.check)


def pruned_from(run: str, values: Values) -> Pruned:
    ranges, numbers = map(unpack_ranges, (values[1], values[4])) if _PRUNED.fit(values) else (None, None)
    if ranges is None or numbers is None:
        raise DamagedRun(f"the prune mark of run {run!r} is damaged")
    key, _, freed, at, _, check = values
    return Pruned(key, ranges, freed, at, numbers, check)


def pruned_values(pk: int, mark: Pruned) -> Values:
    return (pk, mark.key, pack_ranges(mark.ranges), mark.freed, mark.at, pack_ranges(mark.numbers), mark.check)


def base_from(run: str, values: Values) -> Base:
    if not _BASE.fit(values):
        raise DamagedRun(f"an added base of run {run!r} is damaged: a column has the wrong type")
    return Base(*values)


def base_values(pk: int, base: Base) -> Values:
    return (pk, base.number, base.key, base.at, base.body, base.check)


def tombstone_from(values: Values) -> Tombstone:
    if not _TOMBSTONE.fit(values):
        raise Damaged(f"the tombstone of run number {values[0]!r} is damaged: a column has the wrong type")
    return Tombstone(*values)


def tombstone_values(t: Tombstone) -> Values:
    return (t.pk, t.id, t.key, t.family, t.created_at, t.at, t.head_seq, t.head_digest, t.checkpoints, t.check)


def property_values(name: str, value: str, seal: Seal) -> Values:
    return (name, value, property_check(name, value, seal))


def property_from(values: Values, seal: Seal) -> tuple[str, str]:
    """Make a property and verify it: one flipped bit in a retention could otherwise delete data that should be kept."""
    name, value, _ = values
    if type(name) is not str or type(value) is not str or property_values(name, value, seal) != values:
        raise Damaged(f"the property {name!r} of the store does not match its digest", remedy="Set it again.")
    return name, value


def worker_from(values: Values) -> Worker:
    if not _WORKER.fit(values):
        raise DamagedRun(f"the row of worker {values[0]!r} is damaged: a column has the wrong type")
    return Worker(*values)


def worker_values(worker: Worker) -> Values:
    return (worker.id, worker.host, worker.pid, worker.boot, worker.started_at, worker.expires_boot, worker.expires_at)

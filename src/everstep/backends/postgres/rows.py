"""Converts rows of PostgreSQL to the rows of `everstep.records` and back. No I/O.

The server guarantees types, so this module only checks values packed inside a column: tags, ranges, the digests of properties.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import sha256
from typing import Any

from everstep.backends.columns import pack_tags, unpack_ranges, unpack_tags
from everstep.backends.contract.query_semantics import meta_scalars
from everstep.backends.heads import refuse_stale
from everstep.errors import Damaged, DamagedFrame, DamagedRecord, DamagedRun
from everstep.records import ZERO, Pruned, Record, RunRow, property_check

Values = tuple[Any, ...]


def run_from(values: Values) -> RunRow:
    """Make a run row from all columns in the order of the table."""
    name, key, family, workflow, session, packed = values[1:7]
    tags = unpack_tags(packed)
    if tags is None:
        raise DamagedRun(f"the row of run {name!r} is damaged: its tags cannot be read")
    return RunRow(name, key, family, workflow, session, tags, *values[7:])


def newest_run(values: Values) -> RunRow:
    """Make a run row from all columns and the seq of the run's newest record."""
    row = run_from(values[:-1])
    refuse_stale(row, values[-1])
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
    seq, kind, epoch, at, number, note, packed, meta, own, labels, digest, body_digest, body = values
    tags = () if packed is None else unpack_tags(packed)
    if tags is None:
        raise DamagedRecord(run, seq, "its tags cannot be read")
    if body is not None:
        record = Record(run, seq, kind, epoch, at, number, note, tags, meta, own, labels, body, ZERO, digest)
        del record.body_digest
        return record
    if body_digest is None:
        raise DamagedRecord(run, seq, "its body is missing and no digest of it is stored")
    return Record(run, seq, kind, epoch, at, number, note, tags, meta, own, labels, None, body_digest, digest)


def record_values(r: Record) -> Values:
    """Return all columns of a record except its run."""
    return (
        r.seq, r.kind, r.epoch, r.at, r.number, r.note, pack_tags(r.tags) if r.tags else None, r.meta, r.own, r.labels, r.digest,
        r.body_digest if r.body is None else None, r.body,
    )  # fmt: skip


def record_columns(records: Sequence[Record]) -> tuple[list[Any], ...]:
    """Return records as one array for each column."""
    return tuple(map(list, zip(*map(record_values, records), strict=True)))


def chunk_columns(chunks: Sequence[tuple[bytes, bytes]]) -> tuple[list[bytes], list[bytes]]:
    """Return digests and frames, each digest once: with the last frame that is not shorter than one before it."""
    kept: dict[bytes, bytes] = {}
    for digest, frame in chunks:
        if len(frame) >= len(kept.get(digest, b"")):
            kept[digest] = frame
    return list(kept), list(kept.values())


def items_of(meta: str | None) -> list[bytes]:
    """Return the index items for the scalars of a meta text."""
    return [] if meta is None else [item(key, text) for key, text in meta_scalars(meta).items()]


def items_or_none(meta: str | None) -> list[bytes]:
    """Return the same for a row that may be damaged."""
    try:
        return items_of(meta)
    except DamagedFrame:
        return []


def item(key: str, text: str) -> bytes:
    """Return the index item for one scalar of a meta text, with its key."""
    return sha256(json.dumps([key, text]).encode()).digest()


def pruned_from(run: str, values: Values) -> Pruned:
    key, packed, freed, at, packed_numbers, check = values
    ranges, numbers = unpack_ranges(packed), unpack_ranges(packed_numbers)
    if ranges is None or numbers is None:
        raise DamagedRun(f"the prune mark of run {run!r} is damaged")
    return Pruned(key, ranges, freed, at, numbers, check)


def property_from(values: Values) -> tuple[str, str]:
    """Make a property and verify it: retention depends on properties."""
    name, value, check = values
    if property_check(name, value) != check:
        raise Damaged(f"the property {name!r} of the store does not match its digest", remedy="Set it again.")
    return name, value

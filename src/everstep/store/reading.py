"""Loads snapshots: the base at or before a checkpoint and the deltas after it, every byte checked on the way.

Relies on a backend for records and chunks and on `snapshot` for what they mean. Never returns an older state for a newer one:
damage is an error that names what is damaged and, for the head, the newest checkpoint that is good.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from everstep.backends.base import Backend
from everstep.codec.frame import unwrap
from everstep.codec.values import Decoder, revived
from everstep.errors import Damaged, DamagedRecord, MissingHead
from everstep.records import ZERO, Kind, Record, RunRow, record_fault
from everstep.snapshot.delta import Op, apply
from everstep.snapshot.saver import NO_DELTA
from everstep.snapshot.tree import Loader

_STATE = (Kind.CHECKPOINT.value, Kind.BASE.value)


@dataclass(slots=True)
class Loaded:
    """A snapshot with objects still neutral, and how far behind its base is."""

    value: Any
    deltas: int
    delta_bytes: int
    objects: bool

    def revived(self) -> Any:
        return revived(self.value) if self.objects else self.value


def seq_of(backend: Backend, row: RunRow, number: int) -> int:
    """The place of a checkpoint in its run: found by halving, because every record knows the newest number up to it."""
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
        raise _gone(row, seq)
    return found[0]


def _gone(row: RunRow, seq: int) -> Damaged:
    if seq == row.head_seq:
        return MissingHead(f"record {seq}, the newest of run {row.id!r}, is gone")
    return DamagedRecord(row.id, seq, "it is gone")


def checkpoint_record(backend: Backend, row: RunRow, number: int) -> Record:
    """The verified record of one checkpoint."""
    record = checked(backend, row, seq_of(backend, row, number), None)[-1]
    if record.number != number or record.kind != Kind.CHECKPOINT:
        raise DamagedRecord(row.id, record.seq, f"checkpoint {number} should stand there")
    return record


def checked(backend: Backend, row: RunRow, first: int, last: int | None) -> list[Record]:
    """Records first..last, gap-free and each matching its digest; the head also matching the run row."""
    last = first if last is None else last
    records = backend.records(row.id, max(1, first - 1), last)
    expected = list(range(max(1, first - 1), last + 1))
    if [r.seq for r in records] != expected:
        missing = sorted(set(expected) - {r.seq for r in records})
        raise _gone(row, missing[-1] if missing else first)
    before = ZERO
    for i, record in enumerate(records):
        if i or record.seq == 1:
            fault = record_fault(before, record)
            if fault:
                number = record.number if record.kind == Kind.CHECKPOINT else None
                raise DamagedRecord(row.id, record.seq, fault, number)
        before = record.digest
    if last == row.head_seq and before != row.head_digest:
        raise DamagedRecord(row.id, last, "it is not the one that the run row names as its head", records[-1].number)
    return records if first == 1 else records[1:]


def load(backend: Backend, row: RunRow, number: int) -> Loaded:
    """The snapshot of one checkpoint; an error about the head names the newest good one."""
    try:
        with no_collection():
            return _load(backend, row, number)
    except Damaged as error:
        if number != row.checkpoints:
            raise
        raise of_head(backend, row, error) from error.__cause__


@contextmanager
def no_collection() -> Iterator[None]:
    """Keep the garbage collector out while thousands of containers come into being, none of them garbage: a fifth of the time."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def of_head(backend: Backend, row: RunRow, error: Damaged) -> Damaged:
    """An error about the head that names the newest good checkpoint."""
    return error.of_head(row.id, row.checkpoints, newest_good(backend, row, row.checkpoints - 1))


def last_error(backend: Backend, row: RunRow) -> dict[str, str] | None:
    """What the newest status record says went wrong."""
    found = backend.records(row.id, 1, row.head_seq, (Kind.STATUS.value,), newest=1)
    if not found:
        return None
    record = checked(backend, row, found[0].seq, None)[-1]
    said = Decoder().decode(_content(row, record))
    error = said.get("error") if isinstance(said, dict) else None
    return {name: str(error.get(name)) for name in ("type", "message", "traceback")} if isinstance(error, dict) else None


def newest_good(backend: Backend, row: RunRow, number: int) -> int | None:
    """The newest checkpoint up to a number that can be loaded, if any."""
    while number >= 1:
        try:
            _load(backend, row, number)
        except Damaged:
            number -= 1
        else:
            return number
    return None


def _load(backend: Backend, row: RunRow, number: int) -> Loaded:
    base, deltas = _records(backend, row, number)
    loader = Loader(lambda digests: backend.chunks(row.family, digests), unwrap)
    value = loader.load(_content(row, base)) if base is not None else None
    decoder = Decoder()
    size = 0
    for record in deltas:
        content = _content(row, record)
        value = apply(value, _ops(decoder, content, row, record))
        size += len(content)
    return Loaded(value, len(deltas), size, bool(loader.decoder.objects or decoder.objects))


def look(backend: Backend, row: RunRow, number: int) -> Any:
    """A lazy, read-only view of one checkpoint."""
    from everstep.snapshot.view import LazyLoader, view

    try:
        base, deltas = _records(backend, row, number)
        loader = LazyLoader(lambda digests: backend.chunks(row.family, digests), unwrap)
        value = loader.load(_content(row, base)) if base is not None else None
        decoder = Decoder()
        for record in deltas:
            value = apply(value, _ops(decoder, _content(row, record), row, record))
    except Damaged as error:
        if number != row.checkpoints:
            raise
        raise of_head(backend, row, error) from error.__cause__
    return view(value)


def deltas_of(backend: Backend, row: RunRow, first: int, last: int) -> list[tuple[Record, list[Op] | None]]:
    """The checkpoints first..last with their deltas; None where a base stands in for one."""
    start, stop = seq_of(backend, row, first), seq_of(backend, row, last)
    decoder = Decoder()
    out: list[tuple[Record, list[Op] | None]] = []
    for record in checked(backend, row, start, stop):
        if record.kind == Kind.CHECKPOINT:
            content = _content(row, record)
            out.append((record, None if content == NO_DELTA else _ops(decoder, content, row, record)))
    return out


def _records(backend: Backend, row: RunRow, number: int) -> tuple[Record | None, list[Record]]:
    """The base to start from, and the checkpoints after it up to the wanted one; all verified."""
    target = seq_of(backend, row, number)
    bound = min(target + 1, row.head_seq)  # a base for this very checkpoint follows right behind it
    bases = [b for b in backend.records(row.id, 1, bound, (Kind.BASE.value,), newest=2) if b.number <= number]
    first = bases[-1].seq if bases else 1
    records = checked(backend, row, first, max(target, first))
    base = records[0] if bases else None
    if base is not None and base.kind != Kind.BASE:
        raise DamagedRecord(row.id, first, "a base should stand there")
    deltas = [r for r in records if r.kind == Kind.CHECKPOINT and (base is None or r.number > base.number)]
    expected = list(range((base.number if base else 0) + 1, number + 1))
    if [r.number for r in deltas] != expected:
        raise DamagedRecord(row.id, target, f"the checkpoints before {number} do not follow each other", number)
    return base, deltas


def _content(row: RunRow, record: Record) -> bytes:
    if record.body is None:
        raise DamagedRecord(row.id, record.seq, "its body was pruned", record.number)
    return unwrap(record.body)


def _ops(decoder: Decoder, content: bytes, row: RunRow, record: Record) -> list[Op]:
    if content == NO_DELTA:
        raise DamagedRecord(row.id, record.seq, "it has no delta, and the base that should follow it is gone", record.number)
    ops = decoder.decode(content)
    if not isinstance(ops, list):
        raise DamagedRecord(row.id, record.seq, "its body is no delta", record.number)
    return ops

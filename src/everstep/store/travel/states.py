"""Many states of a run in one walk: each base is loaded once, and every delta after it is applied once. Reads only; proves every record."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from everstep.backends.contract.core import Backend
from everstep.codec.values import Decoder, revived
from everstep.errors import Damaged, InvalidArgument, NotFound, PrunedCheckpoint
from everstep.records import Record, RunRow
from everstep.snapshot.between.sharing import Copies, advanced
from everstep.snapshot.delta import apply
from everstep.snapshot.loader import Loader
from everstep.store.encryption.frames import fetch_of
from everstep.store.load import checkpoint_record, content_of, ops_in, parts_of, refuse_deleted, stretch
from everstep.store.query import with_tags_and_marks
from everstep.store.refs import numbers_of
from everstep.store.views import Checkpoint
from everstep.threads.no_collection import no_collection

State = tuple[Checkpoint, Any]
Found = tuple[Record, Any, bool]
"""The record of a checkpoint, its state, and whether that has objects of the program."""
_AT_ONCE = 64


def states(backend: Backend, row: RunRow, first: int | None, last: int | None, newest_first: bool, shared: bool) -> Iterator[State]:
    """Check the numbers, and return the states of checkpoints first..last. Pruned ones are left out."""
    low, high = _number(row, first, 1, "first"), _number(row, last, row.checkpoints, "last")
    return _down(backend, row, low, high, shared) if newest_first else _up(backend, row, low, high, shared)


def decoded(backend: Backend, row: RunRow) -> Iterator[tuple[int, Any]]:
    """Yield the number of every checkpoint that has a state, with that state as it is stored: no object of the program is made."""
    low = 1
    while low <= row.checkpoints:
        top = min(row.checkpoints, low + _AT_ONCE - 1)
        found, begins = _window(backend, row, low, top)
        while begins > low:
            top = begins - 1
            found, begins = _window(backend, row, low, top)
        yield from ((record.number, value) for record, value, _ in found)
        low = top + 1


def _number(row: RunRow, given: int | None, default: int, name: str) -> int:
    if given is None:
        return default
    if type(given) is not int:
        raise InvalidArgument(f"{name} must be the number of a checkpoint, got {given!r:.60}")
    if not 1 <= given <= row.checkpoints:
        raise NotFound(f"{given} is not a checkpoint of run {row.id!r}: {numbers_of(row)}")
    return given


def _down(backend: Backend, row: RunRow, low: int, high: int, shared: bool) -> Iterator[State]:
    while high >= low:
        found, begins = _window(backend, row, max(low, high - _AT_ONCE + 1), high)
        yield from _given(backend, row, found[::-1], shared)
        high = begins - 1


def _up(backend: Backend, row: RunRow, low: int, high: int, shared: bool) -> Iterator[State]:
    while low <= high:
        top = min(high, low + _AT_ONCE - 1)
        found, begins = _window(backend, row, low, top)
        while begins > low:  # a base lies between: those before it come first
            top = begins - 1
            found, begins = _window(backend, row, low, top)
        yield from _given(backend, row, found, shared)
        low = top + 1


def _window(backend: Backend, row: RunRow, low: int, high: int) -> tuple[list[Found], int]:
    """Return the states of low..high that depend on the same base as `high`, and the number of the first of them."""
    try:
        with no_collection():
            return _read(backend, row, low, high)
    except PrunedCheckpoint:
        return [], high
    except Damaged:  # try twice: a prune may have replaced the base between the reads of its record and its chunks
        refuse_deleted(backend, row)
        try:
            with no_collection():
                return _read(backend, row, low, high)
        except PrunedCheckpoint:
            return [], high


def _read(backend: Backend, row: RunRow, low: int, high: int) -> tuple[list[Found], int]:
    read = stretch(backend, row, high)
    base, deltas = parts_of(row, high, read)
    loader = Loader(fetch_of(backend, row.family), backend.framer.inner.unwrap)
    value, number = None, deltas[0].number - 1 if deltas else high
    if base is not None:
        loader.read_ahead(base)
        value = loader.load(base)
    decoder = Decoder()
    begins = max(low, number, 1)
    found: list[Found] = []
    if number >= begins:
        found.append((checkpoint_record(backend, row, number), value, bool(loader.decoder.objects)))
    for record in deltas:
        ops = ops_in(decoder, content_of(row, record), row, record)
        value = advanced(value, ops) if record.number > begins else apply(value, ops)
        if record.number >= begins:
            found.append((record, value, bool(loader.decoder.objects or decoder.objects)))
    return [one for one in found if read.mark is None or read.mark.has_state(one[0].number)], begins


def _given(backend: Backend, row: RunRow, found: list[Found], shared: bool) -> Iterator[State]:
    copies = Copies()
    checkpoints = with_tags_and_marks(backend, row, [record for record, _, _ in found])
    for checkpoint, (_, value, objects) in zip(checkpoints, found, strict=True):
        if shared and not objects:
            yield checkpoint, value
            continue
        with no_collection():
            own = copies.of(value)
        yield checkpoint, revived(own) if objects else own

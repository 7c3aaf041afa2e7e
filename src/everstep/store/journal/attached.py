"""Entries that are attached to a checkpoint: a name and a value each. They are records of the run's chain; an index finds them by checkpoint.

The note of such a record is its address, `NUMBER:DIGEST`, where DIGEST are 16 hex digits of SHA-256(the run's key, the name). The name itself
is in the body, so that it is gone if the body is dropped. The newest record with an address counts. Reads only.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple

from ormsgpack import packb

from everstep.backends.contract.core import Backend
from everstep.errors import DamagedRecord, InvalidArgument
from everstep.fields import Shape
from everstep.records import Kind, Record, RunRow
from everstep.store.chain import Chain, Entry
from everstep.store.encryption.frames import frames_of
from everstep.store.gates import prove
from everstep.store.journal.entries import AttachedEntry, open_as, pack
from everstep.store.journal.results import StoredResult, load_result, result_body
from everstep.store.query import check_text
from everstep.store.views import when

if TYPE_CHECKING:
    from everstep.store.store import BaseStore

_ATTACHED = Kind.ATTACHED.value


class Attached(Shape, frozen=True):
    """A value that was attached to a checkpoint under a name."""

    run: str
    number: int
    name: str
    value: Any
    at: datetime


class Given(NamedTuple):
    """A value to attach, as it will be stored."""

    name: str
    stored: StoredResult


def given(store: BaseStore, values: Mapping[str, Any]) -> list[Given]:
    """Check and encode values to attach."""
    out: list[Given] = []
    for name, value in values.items():
        if not isinstance(name, str) or not name:
            raise InvalidArgument(f"the name of an attached value must be text that is not empty, got {name!r:.60}")
        check_text(name, "the name of an attached value")
        what = f"attached value {name!r}"
        out.append(Given(name, result_body(value if store.mask is None else store.mask(value, what), what, store.framer.inner.wrap)))
    return out


def address_of(key: bytes, number: int, name: str) -> str:
    """Return the address of a name at a checkpoint of the run with this key."""
    return f"{number}:{sha256(key + name.encode()).hexdigest()[:16]}"


def number_in(record: Record) -> int:
    """Return the checkpoint that an entry is attached to; 0 if its address is damaged."""
    number = str(record.note).partition(":")[0]
    return int(number) if number.isascii() and number.isdigit() else 0


def entry_of(key: bytes, number: int, one: Given) -> Entry:
    """Return the journal entry of a value to attach."""
    form, data, chunks = one.stored
    return Entry(_ATTACHED, pack(AttachedEntry(one.name, form, data)), address_of(key, number, one.name), chunks)


def add_to(chain: Chain, address: str, one: Given) -> None:
    """Add the record of a value to attach to a chain. Saves the objects that `entry_of` makes: a framework attaches at each step."""
    form, data, chunks = one.stored
    chain.add(_ATTACHED, packb([one.name, form, data]), address)
    if chunks:
        chain.chunks(chunks)


def addresses(backend: Backend, row: RunRow, number: int) -> set[str]:
    """Return the addresses that are taken at a checkpoint."""
    return {str(record.note) for record in backend.attached(row.id, f"{number}:") if record.seq <= row.head_seq}


def list_attached(backend: Backend, row: RunRow, number: int | None, prefix: str | None) -> list[Attached]:
    """Return the entries attached to a checkpoint, or to any, in the order in which they were first attached. Each one is proved."""
    if number is not None and type(number) is not int:
        raise InvalidArgument(f"number must be the number of a checkpoint, got {number!r:.60}")
    return [one for record in _newest(backend, row, number) if (one := _opened(backend, row, record)).name.startswith(prefix or "")]


def carried(backend: Backend, row: RunRow, number: int, key: bytes) -> list[Entry]:
    """Return the entries of a checkpoint for the first checkpoint of a fork, whose key this is. The family shares their chunks."""
    out: list[Entry] = []
    for record in _newest(backend, row, number):
        name = open_as(record.opened_by(frames_of(backend, row)), AttachedEntry).name
        out.append(Entry(_ATTACHED, record.content(), address_of(key, 1, name)))
    return out


def _newest(backend: Backend, row: RunRow, number: int | None) -> list[Record]:
    """Return the newest record of each name, proved."""
    found = backend.attached(row.id, "" if number is None else f"{number}:")
    records = [record for record in found if record.seq <= row.head_seq and record.body is not None]
    prove(backend, row, records)
    newest: dict[str | None, Record] = {}
    for record in records:
        newest[record.note] = record
    return list(newest.values())


def _opened(backend: Backend, row: RunRow, record: Record) -> Attached:
    entry = open_as(record.opened_by(frames_of(backend, row)), AttachedEntry)
    number = number_in(record)
    if record.note != address_of(row.key, number, entry.name):
        raise DamagedRecord(row.id, record.seq, "its address does not match its name")
    return Attached(row.id, number, entry.name, load_result(backend, row.family, entry.form, entry.data), when(record.at))

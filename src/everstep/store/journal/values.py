"""The contents of journal entries: encoded values, and roots of trees of chunks. Relies on `entries` for their shapes. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from everstep.records import Kind, Record
from everstep.store.journal.entries import (
    CHUNKED,
    ENTRY_KINDS,
    INLINE,
    AnswerEntry,
    AnyEntry,
    AttachedEntry,
    EventEntry,
    GateEntry,
    StepEntry,
    open_entry,
    said_in,
)

Contents = tuple[list[bytes], list[bytes]]


def contents(record: Record) -> Contents:
    """Return the encoded values and the roots in the body of a record that is neither checkpoint nor base. Raises `Damaged` if it is
    invalid.
    """
    kind = record.kind
    if kind in ENTRY_KINDS:
        return _in_entry(open_entry(record))
    if kind in (Kind.START, Kind.STATUS):
        said = said_in(record)
        results = [said[name] for name in ("input", "result") if name in said]
        return _sorted([*results, *(edit[1:] for edit in said.get("edits", ()) if edit)], said.get("error"))
    if record.body is not None:  # a kind that this version does not know
        record.content()
    return [], []


def _in_entry(entry: AnyEntry) -> Contents:
    match entry:
        case StepEntry():
            return _sorted([(entry.form, entry.result)], entry.error)
        case AttachedEntry():
            return _sorted([(entry.form, entry.data)], None)
        case AnswerEntry(value=value) | EventEntry(data=value) | GateEntry(default=value):
            return ([] if value is None else [value]), []
        case _:
            return [], []


def _sorted(results: Sequence[Sequence[Any]], error: Any) -> Contents:
    error = error if isinstance(error, dict) else {}
    values = [data for form, data in results if form == INLINE and data is not None]
    values += [error[name] for name in ("object", "fields") if type(error.get(name)) is bytes]
    return values, [data for form, data in results if form == CHUNKED and data is not None]

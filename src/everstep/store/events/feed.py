"""The store's events, in commit order: every record of every journal, as readable data.

Relies on the backend's feed. A pruned record still gives an event, without data.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from everstep.backends.contract.core import Backend
from everstep.codec.values import decode
from everstep.errors import DamagedRecord, EverstepError, InvalidArgument
from everstep.records import ZERO, Kind, Record, RunRow, record_fault
from everstep.store.encryption.frames import frames_of
from everstep.store.events import cursor as cursors
from everstep.store.events.cursor import Cursor
from everstep.store.events.event import Event
from everstep.store.journal.attached import number_in
from everstep.store.journal.entries import (
    ENTRY_KINDS,
    AnswerEntry,
    AttachedEntry,
    EventEntry,
    GateEntry,
    StepEntry,
    TimerEntry,
    open_entry,
    said_in,
)
from everstep.store.journal.results import show_input
from everstep.store.load import checked
from everstep.store.query import MAX_POSITION
from everstep.store.refs import verified
from everstep.store.views import Page, from_meta, header_of, when


def events(backend: Backend, after: int | str, run: RunRow | None, limit: int) -> Page[Event]:
    """Return events after a position. For one run, positions are its record numbers."""
    if type(limit) is not int or not 1 <= limit <= MAX_POSITION:
        raise InvalidArgument(f"limit must be an integer from 1 to {MAX_POSITION:,}, got {limit!r:.60}")
    cursor = Cursor.parse(after)
    page: Page[Event] = Page()
    if run is not None:
        after = int(cursor)
        records = checked(backend, run, after + 1, min(after + limit, run.head_seq)) if after < run.head_seq else []
        page.extend(event_of(record.seq, record) for record in records)
        page.next = max(after, records[-1].seq) if records else after
        return page
    end = backend.feed_end()
    cursor = cursors.checked(backend, cursor, end)
    found = backend.feed(cursor, limit)
    page.extend(_proved(backend, found))
    newest = found[-1] if found else None
    position = found[-1][0] if len(found) >= limit else max(cursor, end, newest[0] if newest else 0)
    page.next = cursors.anchored(backend, int(position), newest, cursor)
    return page


def _proved(backend: Backend, found: list[tuple[int, Record]]) -> Iterator[Event]:
    """Yield events whose records match their digests."""
    known: dict[tuple[str, int], bytes] = {}
    proved: set[str] = set()
    rows = {run: backend.run(run) for run in dict.fromkeys(record.run for _, record in found)}
    for position, record in found:
        row = rows[record.run]
        if row is None:
            continue  # the run was deleted meanwhile
        before = known.get((record.run, record.seq - 1)) or _digest_before(backend, record)
        if record.run not in proved:  # the chain does not have the run's id: only its row proves whose records these are
            proved.add(verified(row, backend.seal).id)
        fault = record_fault(before, record, row.key, backend.seal)
        if fault:
            raise DamagedRecord(record.run, record.seq, fault)
        known[record.run, record.seq] = record.digest
        yield event_of(position, record.opened_by(frames_of(backend, row)))


def _digest_before(backend: Backend, record: Record) -> bytes:
    before = record.seq - 1
    return backend.digests(record.run, [before]).get(before, ZERO) if before else ZERO


def event_of(position: int | None, record: Record, replayed: bool = False) -> Event:
    """Convert a record to an event."""
    name, data = _words(record)
    return Event(name, record.run, when(record.at), data, position, record.seq, replayed, record.epoch)


def _words(record: Record) -> tuple[str, dict[str, Any]]:
    kind = record.kind
    if kind == Kind.CHECKPOINT:
        header = header_of(record.own)
        note, tags, meta = record.shown()
        about = {"number": record.number, "kind": header.get("kind", "manual"), "note": note, "tags": list(tags)}
        return "checkpoint_created", {**about, "step": header.get("step"), "meta": from_meta(meta)}
    if kind == Kind.BASE:
        return "base_written", {"number": record.number}
    if record.body is None:
        return kind, {}
    if kind in (Kind.STATUS, Kind.START):
        return _status(record)
    return _entry(record)


def _status(record: Record) -> tuple[str, dict[str, Any]]:
    said = said_in(record)
    if record.kind == Kind.START:
        about = {name: said[name] for name in ("workflow", "version", "caller", "parent", "number") if said.get(name) is not None}
        return ("run_forked" if said.get("parent") else "run_created"), about
    error = said.get("error")
    about = {name: said[name] for name in ("reason", "worker", "failures") if said.get(name) is not None}
    about |= {name: when(said[name]) for name in ("until", "retry_at") if said.get(name) is not None}
    if isinstance(error, dict):
        about["error"] = {name: error.get(name) for name in ("type", "message")}
    return f"run_{said.get('status')}", about


def _entry(record: Record) -> tuple[str, dict[str, Any]]:
    if record.kind not in ENTRY_KINDS:  # a kind that this version does not know
        return record.kind, {}
    entry, address = open_entry(record), record.note
    match entry:
        case StepEntry():
            return _step(entry, address)
        case GateEntry(ask, schema, deadline):
            return "gate_opened", {"gate": address, "ask": ask, "schema": schema, "deadline": None if deadline is None else when(deadline)}
        case AnswerEntry() if entry.flags.get("cancelled"):
            return "gate_cancelled", {"gate": address}
        case AnswerEntry(value, by):
            return "gate_answered", {"gate": address, "value": _shown(value), "by": by}
        case AttachedEntry(name):
            return "attached", {"number": number_in(record), "name": name}
        case TimerEntry(deadline=due):
            return "timer_set", {"timer": address, "deadline": when(due)}
        case EventEntry(name, data):
            shown = _shown(data)
            return name, shown if isinstance(shown, dict) else {}


def _step(step: StepEntry, address: str | None) -> tuple[str, dict[str, Any]]:
    about: dict[str, Any] = {
        "step": address, "attempt": step.attempt, "seconds": step.seconds, "tokens": step.tokens, "cost": step.cost, "worker": step.worker,
    }  # fmt: skip
    if step.flags.get("value"):
        return "value_drawn", {"step": address}
    if step.flags.get("skipped"):
        return "step_skipped", about
    if step.error:
        about["error"] = {name: step.error.get(name) for name in ("type", "message")}
    name = "step_retrying" if step.flags.get("next") else "step_started" if step.status == "running" else f"step_{step.status}"
    return name, {**about, "input": show_input(step.input)}


def _shown(data: bytes) -> Any:
    try:
        return decode(data)
    except EverstepError as error:
        return f"({error.message})"

"""What a run has recorded and its program has not yet asked for again. Reads the journal once, when the run is opened.

A workflow is played back from its beginning; a loop of one's own from its base, the newest checkpoint that the program itself
asked for. Every record that is read is proved by the chain before anything relies on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from everstep.backends.contract.core import Backend
from everstep.clock import clock
from everstep.records import Kind, Record, RunRow
from everstep.runtime.limits.budget import Used
from everstep.runtime.limits.driven_time import driven_seconds
from everstep.store.chain import Entry
from everstep.store.journal.entries import (
    FAILED,
    RUNNING,
    SUCCEEDED,
    AnswerEntry,
    EventEntry,
    GateEntry,
    Recorded,
    StepEntry,
    TimerEntry,
    open_as,
    pack,
    said_in,
)
from everstep.store.load import checked_from, checkpoint_record
from everstep.store.no_collection import no_collection
from everstep.store.views import asked_for, header_of

_STEP, _GATE, _ANSWER, _TIMER, _EVENT = (k.value for k in (Kind.STEP, Kind.GATE, Kind.ANSWER, Kind.TIMER, Kind.EVENT))
_COUNTED = (_STEP, _GATE, _ANSWER, _TIMER, _EVENT)
_STATUS, _CHECKPOINT, _START = Kind.STATUS.value, Kind.CHECKPOINT.value, Kind.START.value


class Playback:
    """The recorded steps, gates and timers by address."""

    def __init__(self) -> None:
        self.entries: dict[str, Recorded[StepEntry]] = {}
        self.answers: dict[str, Recorded[AnswerEntry]] = {}
        self.asked: dict[str, Recorded[GateEntry | TimerEntry]] = {}
        self.fired: dict[str, Recorded[EventEntry]] = {}  # timers of async programs, whose ends have an order
        self.unfired: dict[str, Recorded[EventEntry]] = {}  # timers that the program cancelled
        self.saves: list[Record] = []  # the checkpoints that the program asked for
        self.skip_saves = 0  # how many of them a fork took over without having their records
        self.start: dict[str, Any] = {}
        self.status: dict[str, Any] = {}
        self.failures = 0
        self.doubtful: set[str] = set()  # steps that were running when an attempt was broken off
        self.unsure = False  # an attempt died, and nothing was recorded since
        self.saved_at: int | None = None
        self.words: set[str] = set()  # the addresses of the program's own events
        self.apart = 0.0  # seconds in which a child run, or a child of it, was not driven by its caller
        self._used = Used()
        self._from = (0.0, 0, -1)  # seconds that are known, and the time and epoch of the record that says so
        self._counted = False
        self.steps_since = 0  # since the newest checkpoint; known after `count`
        self.recent: list[Recorded[StepEntry]] = []
        self.number = 0  # the base
        self.counts: dict[str, int] = {}
        self.records: list[Record] = []

    def take(self, record: Record) -> None:
        kind = record.kind
        if kind == _STEP:
            address = record.note or ""
            before = self.entries.get(address)
            found = self.entries[address] = Recorded(record, before)
            self.recent.append(found)
            self.unsure = False
        elif kind == _ANSWER:
            self.answers[record.note or ""] = Recorded(record)
        elif kind in (_GATE, _TIMER):
            self.asked[record.note or ""] = Recorded(record)
        elif kind == _CHECKPOINT:
            self._checkpoint(record)
        elif kind == _STATUS:
            self._status(record)
        elif kind == _EVENT:
            self._event(record)
        elif kind == _START:
            self.start = content(record)
            self.skip_saves = self.start.get("saves", 0)

    def _checkpoint(self, record: Record) -> None:
        header = header_of(record.own)
        self.recent.clear()
        self.saved_at = record.at
        if "used" in header:
            self._used = Used(*header["used"])
        if header.get("kind", "manual") == "manual":
            self.saves.append(record)

    def _status(self, record: Record) -> None:
        said = self.status = content(record)
        if said.get("status") in ("failed", "succeeded"):
            self.failures = said.get("failures", 0)
        if "used" in said:
            self.apart = said["used"][0]
        for address in said.get("steps", ()):
            self.forget(address)

    def _event(self, record: Record) -> None:
        event = open_as(record, EventEntry)
        name = event.name
        if record.note:
            self.words.add(record.note)
        if name == "interrupted":
            self.doubtful.update(_steps_in(event))
        elif name == "timer_fired":
            self.fired[str(event.said().get("timer"))] = Recorded(record)
        elif name == "timer_cancelled":
            self.unfired[str(event.said().get("timer"))] = Recorded(record)
        elif name == "retried":
            for address in _steps_in(event):
                self.retry(address)
        elif name == "taken_over":
            self.unsure = True

    def seconds_since(self) -> float:
        """How long ago the newest checkpoint was made, by the wall clock; 0 if there is none."""
        return 0.0 if self.saved_at is None else max(0.0, (clock.now_us() - self.saved_at) / 1e6)

    def forget(self, address: str) -> None:
        """The next call of a step that failed runs it again, how often it was tried is remembered. A wait that was cancelled begins again."""
        forget(self.entries.get(address))
        answer = self.answers.get(address)
        if address in self.unfired or (answer is not None and answer.entry.flags.get("cancelled")):
            for known in (self.answers, self.unfired, self.asked):
                known.pop(address, None)

    def retry(self, address: str) -> None:
        """Somebody wants a failed step to run again. So do steps and waits that were cancelled after it: its failure may be why."""
        found = self.entries.get(address)
        if found is None:
            return
        forget(found)
        cancelled = [other for other, one in self.entries.items() if one.record.seq > found.record.seq and one.entry.flags.get("cancelled")]
        waits: list[tuple[str, Recorded[Any]]] = [*self.answers.items(), *self.unfired.items()]
        for other in (*cancelled, *(other for other, one in waits if one.record.seq > found.record.seq)):
            self.forget(other)

    @property
    def used(self) -> Used:
        """What the run has used; added up when somebody asks, because that opens every record."""
        if not self._counted:
            self.count()
        return self._used

    def count(self) -> None:
        """Add up the steps since the newest checkpoint, which knows what was used before it. Values that were drawn are no steps."""
        used, self._counted = self._used, True
        used.seconds = driven_seconds(self.records, *self._from)
        for found in self.recent:
            step = found.entry
            flags = step.flags
            if (not flags and step.status != RUNNING) or (not flags.get("value") and (step.status != RUNNING or flags.get("again"))):
                self.steps_since += 1
                used.steps += 1
                used.tokens += step.tokens
                used.cost += step.cost


def _steps_in(event: EventEntry) -> list[str]:
    """The addresses of steps that an event names."""
    steps = event.said().get("steps")
    return [str(step) for step in steps] if isinstance(steps, list) else []


def forget(found: Recorded[StepEntry] | None) -> None:
    """Have a failed step run again. One that had ended when the program cancelled it has its result: it never runs again."""
    if found is None or found.entry.status != FAILED:
        return
    flags, before = found.entry.flags, found.before
    if flags.get("cancelled") and before is not None and before.entry.status == SUCCEEDED:
        found.entry = before.entry
    else:
        found.entry = found.entry._replace(status=RUNNING, flags={**flags, "again": True})


def taken_over(deaths: int | None = None, children: str = "") -> Entry:
    """Says that an attempt died: the steps that it may have been in stay doubtful, whoever has the run meanwhile.

    `deaths` is how many died in a row, where this one is to be counted; `children` how far the child runs are by then.
    """
    return Entry("event", pack(EventEntry.of("taken_over", {} if deaths is None else {"deaths": deaths, "children": children})), None)


def content(record: Record) -> dict[str, Any]:
    """What a status or start record says."""
    return said_in(record)


def begun(records: Sequence[Record]) -> Playback:
    """A run that has just been made by these records."""
    playback = Playback()
    playback.records = list(records)
    for record in records:
        playback.take(record)
    return playback


def whole(backend: Backend, row: RunRow) -> Playback:
    """All that a workflow has recorded."""
    playback = Playback()
    with no_collection():
        playback.records = checked_from(backend, row, 1)
        for record in playback.records:
            playback.take(record)
    if row.checkpoints:
        playback.number = row.checkpoints
    return playback


def after_base(backend: Backend, row: RunRow) -> Playback:
    """What a loop of one's own has recorded since its base; its `number` is 0 where there is none."""
    playback = Playback()
    first = 1
    if row.checkpoints:
        head = checkpoint_record(backend, row, row.checkpoints)
        header = header_of(head.own)
        playback.number = row.checkpoints if asked_for(head.own) else header.get("base", 0)
        if playback.number:
            base = head if playback.number == row.checkpoints else checkpoint_record(backend, row, playback.number)
            header = header_of(base.own)
            playback.counts = dict(header.get("counts") or {})
            if header.get("many"):
                playback.counts = _count(backend, row, base.seq)
            playback._used = Used(*header.get("used", ()))
            playback._from = (playback._used.seconds, base.at, base.epoch)
            playback.saved_at = base.at
            first = base.seq + 1
    playback.records = checked_from(backend, row, first)
    for record in playback.records:
        playback.take(record)
    return playback


def _count(backend: Backend, row: RunRow, last: int) -> dict[str, int]:
    """How often each name was used up to a record, for runs with more names than a checkpoint lists."""
    counts: dict[str, int] = {}
    for record in checked_from(backend, row, 1):
        if record.seq < last and record.kind in _COUNTED and record.note and "/" not in record.note:
            name, _, number = record.note.rpartition("#")
            if name and number.isdigit():
                counts[name] = max(counts.get(name, 0), int(number) + 1)
    return counts


def keyed(backend: Backend, row: RunRow) -> dict[str, Recorded[StepEntry]]:
    """The steps with a key of the whole journal: they are found wherever they stand."""
    found: dict[str, Recorded[StepEntry]] = {}
    for record in checked_from(backend, row, 1):
        if record.kind == _STEP and record.note and "@" in record.note:
            found[record.note] = Recorded(record, found.get(record.note))
        elif record.kind == _STATUS:
            for address in content(record).get("steps", ()):
                forget(found.get(address))
    return found

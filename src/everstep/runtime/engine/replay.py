"""The records of a run, and which of them its program has asked for again. Reads the journal once, when the run is opened.

A workflow is replayed from its beginning; a program that uses `store.run` from its resume point, the newest checkpoint that the program
itself asked for. The chain proves every record before anything relies on it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from everstep.backends.contract.core import Backend
from everstep.clock import clock
from everstep.codec.values import decode
from everstep.fields import replace
from everstep.records import Kind, Record, RunRow
from everstep.runtime.engine.store_trouble import TROUBLE
from everstep.runtime.hooks import Hooks
from everstep.runtime.limits.budget import Used
from everstep.runtime.limits.running_time import running_seconds
from everstep.store.chain import Entry
from everstep.store.journal.entries import (
    FAILED,
    INLINE,
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
from everstep.store.journal.results import load_result
from everstep.store.load import Stretch, checked_from, stretch
from everstep.store.views import asked_for, header_of
from everstep.threads.no_collection import no_collection

_STEP, _GATE, _ANSWER, _TIMER, _EVENT = (k.value for k in (Kind.STEP, Kind.GATE, Kind.ANSWER, Kind.TIMER, Kind.EVENT))
_COUNTED = (_STEP, _GATE, _ANSWER, _TIMER, _EVENT)
_UNTOLD = ("value_drawn", "step_started", "gate_cancelled")  # records of steps for which hooks are not called, not even live
_HOOKS_OF = {"step": ("after_step",), "checkpoint": ("after_checkpoint",), "answer": ("after_gate",), "gate": ("before_gate",)}
_STATUS, _CHECKPOINT, _START = Kind.STATUS.value, Kind.CHECKPOINT.value, Kind.START.value


class Replay:
    """The recorded steps, gates and timers by address, and which of them the program has asked for."""

    def __init__(self) -> None:
        self.entries: dict[str, Recorded[StepEntry]] = {}
        self.answers: dict[str, Recorded[AnswerEntry]] = {}
        self.asked: dict[str, Recorded[GateEntry | TimerEntry]] = {}
        self.fired: dict[str, Recorded[EventEntry]] = {}  # timers of async programs, whose ends have an order
        self.unfired: dict[str, Recorded[EventEntry]] = {}  # timers that the program cancelled
        self.saves: list[Record] = []  # the checkpoints that the program asked for
        self.skip_saves = 0  # how many of them a fork inherited without their records
        self.start: dict[str, Any] = {}
        self.status: dict[str, Any] = {}
        self.failures = 0
        self.doubtful: set[str] = set()  # steps that were running when an attempt was broken off
        self.unsure = False  # an attempt died, and nothing was recorded since
        self.saved_at: int | None = None
        self.words: set[str] = set()  # the addresses of the program's own events
        self.apart = 0.0  # seconds in which a child run, or a child of it, was not executed by its caller
        self._used = Used()
        self._from = (0.0, 0, -1)  # the known seconds, and the time and epoch of the record that has them
        self._counted = False
        self.steps_since = 0  # since the newest checkpoint; known after `count`
        self.recent: list[Recorded[StepEntry]] = []
        self.number = 0  # the checkpoint of the resume point
        self.counts: dict[str, int] = {}
        self.records: list[Record] = []
        self.read: Stretch | None = None  # the records that make up the state of the resume point, until it is loaded
        self.requested: set[str] = set()  # the addresses that the program has asked for in this attempt
        self._keyed: dict[str, Recorded[StepEntry]] | None = None

    def bind(self, backend: Backend, row: RunRow, met: Callable[[BaseException], None]) -> None:
        """Attach this to an attempt that was opened with this row. `met` is called with errors of the store before they are raised."""
        self._backend, self._row, self._met = backend, row, met

    def taken_read(self) -> Stretch | None:
        """Return the records that were read for the state, and drop them here."""
        read, self.read = self.read, None
        return read

    def recorded(self, address: str) -> Recorded[StepEntry] | None:
        """Return the record of a step, a drawn value or a call that the program asks for."""
        found = self.entries.get(address)
        if found is None and "@" in address:
            if self._keyed is None:  # later records are in `entries`, and may not be stored yet
                self._keyed = self._read_keyed()
            found = self._keyed.get(address)
        if found is not None:
            self.requested.add(address)
        return found

    def _read_keyed(self) -> dict[str, Recorded[StepEntry]]:
        try:
            return keyed(self._backend, self._row)
        except TROUBLE as error:
            self._met(error)
            raise

    def loaded(self, step: StepEntry) -> Any:
        """Return the recorded result of a step."""
        try:
            if step.form == INLINE and step.result is not None:  # nearly all results
                return decode(step.result)
            return load_result(self._backend, self._row.family, step.form, step.result)
        except TROUBLE as error:
            self._met(error)
            raise

    def unused(self) -> list[str]:
        """Return the recorded steps that the program did not ask for."""
        return [address for address in self.entries if address not in self.requested and "/" not in address and "@" not in address]

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
        """Return how many seconds ago the newest checkpoint was made, by the wall clock; 0 if there is none."""
        return 0.0 if self.saved_at is None else max(0.0, (clock.now_us() - self.saved_at) / 1e6)

    def forget(self, address: str) -> None:
        """Have a failed step run again at its next call; its attempts stay counted. A cancelled wait begins again."""
        forget(self.entries.get(address))
        answer = self.answers.get(address)
        if address in self.unfired or (answer is not None and answer.entry.flags.get("cancelled")):
            for known in (self.answers, self.unfired, self.asked):
                known.pop(address, None)

    def retry(self, address: str) -> None:
        """Let a failed step run again, and with it the steps and waits that were cancelled after it: its failure may be why."""
        found = self.entries.get(address)
        if found is None:
            return
        forget(found)
        cancelled = [other for other, one in self.entries.items() if one.record.seq > found.record.seq and one.entry.flags.get("cancelled")]
        waits: list[tuple[str, Recorded[Any]]] = [*self.answers.items(), *self.unfired.items()]
        for other in (*cancelled, *(other for other, one in waits if one.record.seq > found.record.seq)):
            self.forget(other)

    def resume_at(self, base: Record, used: Used) -> None:
        """Begin at a checkpoint, which has the figures up to it."""
        self._used = used
        self._from = (used.seconds, base.at, base.epoch)
        self.saved_at = base.at

    @property
    def used(self) -> Used:
        """The amounts that the run has used; computed when first read, because that opens every record."""
        if not self._counted:
            self.count()
        return self._used

    def count(self) -> None:
        """Add up the steps since the newest checkpoint, which has the figures up to it. Drawn values do not count as steps."""
        used, self._counted = self._used, True
        used.seconds = running_seconds(self.records, *self._from)
        for found in self.recent:
            step = found.entry
            flags = step.flags
            if (not flags and step.status != RUNNING) or (not flags.get("value") and (step.status != RUNNING or flags.get("again"))):
                self.steps_since += 1
                used.steps += 1
                used.tokens += step.tokens
                used.cost += step.cost


def _steps_in(event: EventEntry) -> list[str]:
    """Return the addresses of the steps in an event."""
    steps = event.said().get("steps")
    return [str(step) for step in steps] if isinstance(steps, list) else []


def forget(found: Recorded[StepEntry] | None) -> None:
    """Have a failed step run again. A step that had ended when the program cancelled it has its result: it never runs again."""
    if found is None or found.entry.status != FAILED:
        return
    flags, before = found.entry.flags, found.before
    if flags.get("cancelled") and before is not None and before.entry.status == SUCCEEDED:
        found.entry = before.entry
    else:
        found.entry = found.entry._replace(status=RUNNING, flags={**flags, "again": True})


def taken_over(deaths: int | None = None, children: str = "") -> Entry:
    """Return an event that an attempt died: the steps that it may have been in stay doubtful for all later attempts.

    `deaths` is how many died in a row, if this one counts; `children` is the position of the child runs at that time.
    """
    return Entry("event", pack(EventEntry.of("taken_over", {} if deaths is None else {"deaths": deaths, "children": children})), None)


def content(record: Record) -> dict[str, Any]:
    """Return the content of a status or start record."""
    return said_in(record)


def begun(records: Sequence[Record]) -> Replay:
    """Return the replay of a run that these records have just created."""
    replay = Replay()
    replay.records = list(records)
    for record in records:
        replay.take(record)
    return replay


def whole(backend: Backend, row: RunRow) -> Replay:
    """Return the replay of a workflow's whole journal."""
    replay = Replay()
    with no_collection():
        replay.records = checked_from(backend, row, 1)
        for record in replay.records:
            replay.take(record)
    if row.checkpoints:
        replay.number = row.checkpoints
    return replay


def since_resume_point(backend: Backend, row: RunRow) -> Replay:
    """Return the replay of the records since the resume point; its `number` is 0 if there is none."""
    replay = Replay()
    first = 1
    if row.checkpoints:
        head = stretch(backend, row, row.checkpoints, row.head_seq)
        own = head.checkpoint(row.checkpoints).own
        replay.number = row.checkpoints if asked_for(own) else header_of(own).get("base", 0)
        if replay.number:
            replay.read = head if replay.number == row.checkpoints else stretch(backend, row, replay.number, row.head_seq)
            base = replay.read.checkpoint(replay.number)
            header = header_of(base.own)
            replay.counts = dict(header.get("counts") or {})
            if header.get("many"):
                replay.counts = _count(backend, row, base.seq)
            replay.resume_at(base, Used(*header.get("used", ())))
            first = base.seq + 1
    replay.records = checked_from(backend, row, first) if replay.read is None else _behind(replay.read, first)
    for record in replay.records:
        replay.take(record)
    return replay


def _behind(read: Stretch, first: int) -> list[Record]:
    return read.proved(first, read.row.head_seq) if first <= read.row.head_seq else []


def _count(backend: Backend, row: RunRow, last: int) -> dict[str, int]:
    """Return how often each name was used up to a record, for runs with more names than a checkpoint lists."""
    counts: dict[str, int] = {}
    for record in checked_from(backend, row, 1):
        if record.seq < last and record.kind in _COUNTED and record.note and "/" not in record.note:
            name, _, number = record.note.rpartition("#")
            if name and number.isdigit():
                counts[name] = max(counts.get(name, 0), int(number) + 1)
    return counts


def keyed(backend: Backend, row: RunRow) -> dict[str, Recorded[StepEntry]]:
    """Return the steps with a key in the whole journal: they are found at any position."""
    found: dict[str, Recorded[StepEntry]] = {}
    for record in checked_from(backend, row, 1):
        if record.kind == _STEP and record.note and "@" in record.note:
            found[record.note] = Recorded(record, found.get(record.note))
        elif record.kind == _STATUS:
            for address in content(record).get("steps", ()):
                forget(found.get(address))
    return found


def republish(hooks: Hooks, records: list[Record]) -> None:
    """Call this process's hooks once more for the records."""
    from everstep.store.events.feed import event_of

    for record in records:
        event = event_of(None, record, replayed=True)
        if record.kind == _EVENT and (event.name.startswith("custom:") or event.name == "milestone"):
            name = f"custom:{event.name.removeprefix('custom:')}"
            hooks.fire(name, replace(event, name=name))
        elif event.name not in _UNTOLD:
            for name in _HOOKS_OF.get(record.kind, ()):
                hooks.fire(name, event)
            if event.name in ("step_failed", "step_retrying"):
                hooks.fire("error", event)

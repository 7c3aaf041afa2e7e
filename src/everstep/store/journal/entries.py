"""The entries of a run's journal by name: their fields, their bytes, and the checks that a forged body has to pass. Does no I/O.

The address of the step, gate or timer is in the record's note, so that a journal can be indexed without opening a body. A body is one
MessagePack array with the fields of its class in their order:

    step     StepEntry       one attempt of a step, or a drawn value
    gate     GateEntry       a question
    answer   AnswerEntry     the end of the wait at a gate
    timer    TimerEntry      a deadline
    event    EventEntry      an event of the program, or of the runtime itself
    attached AttachedEntry   a value that is attached to a checkpoint; `journal.attached` has the addresses

Start and status records hold a map instead; `said_in` reads it. Times are µs since 1970.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, NamedTuple, TypedDict, TypeVar, cast

from ormsgpack import packb, unpackb

from everstep.codec.values import Decoder, decode, encode
from everstep.errors import DamagedFrame, DamagedRecord
from everstep.records import Kind, Record

NOTHING, INLINE, CHUNKED = 0, 1, 2  # forms of a result: none, encoded in place, the root of a tree of chunks (of the run's family)
SUCCEEDED, FAILED, RUNNING = "succeeded", "failed", "running"


class StepFlags(TypedDict, total=False):
    """Further data of an attempt at a step."""

    tried: int  # attempts of this round of retries
    next: int  # when the next attempt is due
    inner: list[str]  # the steps inside that failed it: the next attempt runs them again
    value: bool  # a drawn value: time or random
    cancelled: bool
    skipped: bool
    why: str  # why a step was skipped
    user: str  # who skipped it
    again: bool  # never stored: `replay.forget` makes the step run again


class StepEntry(NamedTuple):
    """One attempt of a step. `input` is encoded if it is short, otherwise described in words: it is only shown, its digest decides."""

    status: str
    attempt: int
    digest: bytes
    input: bytes | str
    form: int
    result: bytes | None
    error: dict[str, Any] | None
    started: int
    ended: int
    tokens: int
    cost: float
    worker: str
    flags: StepFlags

    @property
    def seconds(self) -> float:
        return (self.ended - self.started) / 1e6


class GateEntry(NamedTuple):
    """The question of a gate. `default` is encoded."""

    ask: str | None
    schema: dict[str, Any] | None
    deadline: int | None
    default: bytes | None
    flags: dict[str, Any]


class AnswerFlags(TypedDict, total=False):
    expired: bool  # the deadline passed without a default
    cancelled: bool  # the program cancelled its wait
    seconds: float  # how long it had waited by then
    user: str  # who sent the answer


class AnswerEntry(NamedTuple):
    """The end of the wait at a gate. `value` is encoded."""

    value: bytes
    by: str | None
    flags: AnswerFlags


def flags_of(expired: bool, user: str | None) -> AnswerFlags:
    """Return the flags of an answer that came: whether it is the outcome of the deadline, and who sent it."""
    flags: AnswerFlags = {"expired": True} if expired else {}
    if user:
        flags["user"] = user
    return flags


class TimerEntry(NamedTuple):
    """The deadline of a sleep."""

    deadline: int


class EventEntry(NamedTuple):
    """An event with its encoded data."""

    name: str
    data: bytes

    @classmethod
    def of(cls, name: str, data: Mapping[str, Any], path: str = "state") -> EventEntry:
        """Make an event with this data. `path` names a value that cannot be stored, for errors."""
        return cls(name, encode(data, path))

    def said(self) -> dict[str, Any]:
        """Return the data; empty if a forged store has something else there."""
        found = decode(self.data)
        return found if isinstance(found, dict) else {}


class AttachedEntry(NamedTuple):
    """A named value. It has a form, as the result of a step has."""

    name: str
    form: int
    data: bytes | None


AnyEntry = StepEntry | GateEntry | AnswerEntry | TimerEntry | EventEntry | AttachedEntry
E = TypeVar("E", bound=AnyEntry)


def pack(entry: AnyEntry) -> bytes:
    """Return the bytes of an entry, before they are framed."""
    return packb([*entry])  # ormsgpack does not pack named tuples


def pack_step(
    status: str, attempt: int, digest: bytes, input: bytes | str, form: int, result: bytes | None, error: dict[str, Any] | None,
    started: int, ended: int, tokens: int, cost: float, worker: str, flags: StepFlags,
) -> bytes:  # fmt: skip
    """Return the bytes of a `StepEntry` with these fields. Every step passes here, so no named tuple is made."""
    return packb([status, attempt, digest, input, form, result, error, started, ended, tokens, cost, worker, flags])


def open_entry(record: Record) -> AnyEntry:
    """Return the entry in the body of a record. Raises `Damaged` if it is not one: a forged store can contain anything."""
    if record.body is None:
        raise DamagedRecord(record.run, record.seq, "its body was pruned")
    try:
        body = unpackb(record.content())
    except ValueError as error:
        raise DamagedFrame(f"record {record.seq} of run {record.run!r} is not a journal entry") from error
    cls, fits = _KINDS.get(record.kind, _UNKNOWN)
    if body.__class__ is not list or not fits(body):
        raise DamagedRecord(record.run, record.seq, "its body is not a journal entry")
    return _new(cls, body)  # `_make` takes half a microsecond longer, for each replayed step


def open_as(record: Record, cls: type[E]) -> E:
    """Return the entry in the body of a record that must be of this class."""
    entry = open_entry(record)
    if not isinstance(entry, cls):
        raise DamagedRecord(record.run, record.seq, f"it must be a {cls.__name__}, got a {record.kind}")
    return entry


def unpack_step(packed: bytes) -> StepEntry:
    """Return the entry in the bytes of a step that do not come from a record."""
    try:
        body = unpackb(packed)
    except ValueError as error:
        raise DamagedFrame("the bytes of a step are not a journal entry") from error
    if not isinstance(body, list) or not _is_step(body):
        raise DamagedFrame("the bytes of a step are not a journal entry")
    return StepEntry._make(body)


class Recorded(Generic[E]):
    """The newest record about one address, opened when needed. `before` is the record that it replaced."""

    __slots__ = ("_entry", "attempts", "before", "record")

    def __init__(self, record: Record, before: Recorded[E] | None = None):
        self.record = record
        self.before = before
        self.attempts: int = before.attempts + 1 if before is not None else 0
        self._entry: E | None = None

    @property
    def entry(self) -> E:
        if self._entry is None:
            self._entry = cast(E, open_entry(self.record))
        return self._entry

    @entry.setter
    def entry(self, entry: E) -> None:
        """Change the entry that later calls see; the store keeps the recorded one."""
        self._entry = entry


def said_in(record: Record) -> dict[str, Any]:
    """Return the content of a status or start record."""
    said = Decoder().decode(record.content()) if record.body is not None else {}
    if not isinstance(said, dict) or any(name in said and not fits(said[name]) for name, fits in _SAYS.items()):
        raise DamagedRecord(record.run, record.seq, f"its body is not a {record.kind}")
    return said


_new: Callable[[type[AnyEntry], list[Any]], AnyEntry] = tuple.__new__
_LAST_US = 253_402_300_799_000_000  # the end of the year 9999
_STATUSES = frozenset({SUCCEEDED, FAILED, RUNNING})


def _a_time(value: Any) -> bool:
    return type(value) is int and 0 <= value <= _LAST_US


def _a_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**31


def _a_number(value: Any) -> bool:
    return type(value) is int or type(value) is float


def _a_text(value: Any) -> bool:
    return value is None or type(value) is str


def _some_bytes(value: Any) -> bool:
    return type(value) is bytes


def _names(value: Any) -> bool:
    return type(value) is list and all(type(one) is str for one in value)


def _a_result(value: Any) -> bool:
    return type(value) is list and len(value) == 2 and type(value[0]) is int and (value[1] is None or type(value[1]) is bytes)


def _edits(value: Any) -> bool:
    return type(value) is list and all(type(one) is list and _a_count(one[0]) and _a_result(one[1:]) for one in value if one)


def _is_step(body: list[Any]) -> bool:
    """Check a step without calling functions: this runs for each replayed step."""
    if len(body) != 13:
        return False
    status, attempt, digest, kept, form, result, error, started, ended, tokens, cost, worker, flags = body
    return (
        status.__class__ is str and status in _STATUSES and attempt.__class__ is int and 0 <= attempt < 2**31
        and digest.__class__ is bytes and (kept.__class__ is bytes or kept.__class__ is str)
        and form.__class__ is int and 0 <= form <= CHUNKED and (result is None or result.__class__ is bytes)
        and (error.__class__ is dict or (error is None and status != FAILED))
        and started.__class__ is int and 0 <= started <= _LAST_US and ended.__class__ is int and 0 <= ended <= _LAST_US
        and tokens.__class__ is int and (cost.__class__ is float or cost.__class__ is int)
        and worker.__class__ is str and flags.__class__ is dict and (not flags or _are_flags(flags))
    )  # fmt: skip


def _are_flags(flags: dict[str, Any]) -> bool:
    due = flags.get("next")
    return (due is None or _a_time(due)) and _a_count(flags.get("tried", 0)) and _names(flags.get("inner", []))


def _is_gate(body: list[Any]) -> bool:
    if len(body) != 5:
        return False
    ask, schema, deadline, default, flags = body
    good = (ask is None or type(ask) is str) and (schema is None or type(schema) is dict) and (deadline is None or _a_time(deadline))
    return good and (default is None or type(default) is bytes) and type(flags) is dict


def _is_answer(body: list[Any]) -> bool:
    if len(body) != 3:
        return False
    value, by, flags = body
    return type(value) is bytes and _a_text(by) and type(flags) is dict


def _is_timer(body: list[Any]) -> bool:
    return len(body) == 1 and _a_time(body[0])


def _is_event(body: list[Any]) -> bool:
    if len(body) != 2:
        return False
    name, data = body
    return type(name) is str and type(data) is bytes


def _is_attached(body: list[Any]) -> bool:
    if len(body) != 3:
        return False
    name, form, data = body
    return type(name) is str and type(form) is int and 0 <= form <= CHUNKED and (data is None or type(data) is bytes)


_KINDS: dict[str, tuple[type[AnyEntry], Callable[[list[Any]], bool]]] = {
    Kind.STEP.value: (StepEntry, _is_step), Kind.GATE.value: (GateEntry, _is_gate), Kind.ANSWER.value: (AnswerEntry, _is_answer),
    Kind.TIMER.value: (TimerEntry, _is_timer), Kind.EVENT.value: (EventEntry, _is_event),
    Kind.ATTACHED.value: (AttachedEntry, _is_attached),
}  # fmt: skip
ENTRY_KINDS = frozenset(_KINDS)
_UNKNOWN: tuple[type[AnyEntry], Callable[[list[Any]], bool]] = (EventEntry, lambda body: False)
_SAYS: dict[str, Callable[[Any], bool]] = {
    "key": _some_bytes, "id": _a_text, "family": _some_bytes, "parent_key": _some_bytes, "status": _a_text, "reason": _a_text, "workflow": _a_text, "definition": _a_text, "version": _a_text, "parent": _a_text, "steps": _names,
    "failures": _a_count, "saves": _a_count, "number": _a_count, "seconds": _a_number, "until": _a_time, "retry_at": _a_time,
    "used": lambda value: type(value) is list and len(value) == 4 and all(map(_a_number, value)),
    "result": _a_result, "input": _a_result, "edits": _edits, "error": lambda value: type(value) is dict,
}  # fmt: skip

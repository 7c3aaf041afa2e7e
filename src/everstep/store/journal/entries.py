"""What a journal's records say about steps, gates, timers and values. Owns the format of their bodies. No I/O but by `read` and what stands on it.

The address of what a record is about stands in its note, so that a journal can be indexed without opening a body:

    step     [status, attempt, input digest, input, form, result, error, started, ended, tokens, cost, worker, flags]
    gate     [ask, schema, deadline, default, flags]     the question
    answer   [value, by, flags]                          what ended the wait
    timer    [deadline]
    event    [name, data]                                what the program said, and what the runtime did on its own

A result has a form: 0 none, 1 encoded in place, 2 the root of a tree of chunks (of the run's family). An input is encoded if it
is short and described in words otherwise: it is only ever shown; what counts is its digest. Times are µs since 1970.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from reprlib import Repr
from typing import Any

from ormsgpack import packb, unpackb

from everstep.backends.contract.core import Backend
from everstep.codec.frame import unwrap
from everstep.codec.values import Decoder, decode, encode, revived
from everstep.errors import DamagedFrame, DamagedRecord, EverstepError
from everstep.fields import Shape, field
from everstep.records import Kind, Record, RunRow
from everstep.snapshot.loader import Loader
from everstep.snapshot.saver import Saver
from everstep.store.load import checked
from everstep.store.views import when

NOTHING, INLINE, CHUNKED = 0, 1, 2
SUCCEEDED, FAILED, RUNNING = "succeeded", "failed", "running"
BIG_RESULT = 16 * 1024
SHORT_INPUT = 200
Body = tuple[int, bytes | None, list[tuple[bytes, bytes]]]
Chunks = list[tuple[bytes, bytes]]

_shape = Repr()
_shape.maxstring = _shape.maxother = 60
_shape.maxlist = _shape.maxdict = _shape.maxtuple = 4
_shape.maxlevel = 3


class Step(Shape, frozen=True):
    """A recorded step, as it is listed."""

    address: str
    status: str
    attempt: int
    started: datetime
    ended: datetime
    tokens: int
    cost: float
    worker: str
    input: str
    error: dict[str, Any] | None
    skipped: bool
    seq: int
    epoch: int
    _load: Callable[[], Any] = field(repr=False, compare=False)

    @property
    def name(self) -> str:
        return name_of(self.address)

    @property
    def seconds(self) -> float:
        return (self.ended - self.started).total_seconds()

    @property
    def result(self) -> Any:
        """What the step returned; read when it is asked for."""
        return self._load()


def name_of(address: str) -> str:
    """The name in the last part of an address."""
    last = address.rpartition("/")[2]
    return last.partition("@")[0] if "@" in last else last.rpartition("#")[0]


def result_body(result: Any, path: str, wrap: Callable[[bytes], bytes]) -> Body:
    """The form of a result, its bytes, and the chunks that these need. `path` is what an error calls it."""
    if result is None:
        return NOTHING, None, []
    data = encode(result, path)
    if len(data) < BIG_RESULT:
        return INLINE, data, []
    saver = Saver(wrap)
    saver.begin(decode(data))
    saved = saver.build(whole=True)
    return CHUNKED, saved.base, saved.chunks


def load_result(backend: Backend, family: bytes, form: int, data: bytes | None) -> Any:
    if form == NOTHING or data is None:
        return None
    if form == INLINE:
        return decode(data)
    loader = Loader(lambda digests: backend.chunks(family, digests), unwrap)
    value = loader.load(data)
    return revived(value) if loader.decoder.objects else value


def input_of(address: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
    """The bytes that an input is known by."""
    data = encode(list(args), f"{address}: args")
    return data + encode(dict(sorted(kwargs.items())), f"{address}: kwargs") if kwargs else data


def preview(data: bytes, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes | str:
    """What to keep of an input so that a person can tell it from another one."""
    if len(data) <= SHORT_INPUT:
        return data
    shown = [_shape.repr(a) for a in args] + [f"{k}={_shape.repr(v)}" for k, v in kwargs.items()]
    text = f"({', '.join(shown)})"[:400] + f" of {len(data):,} bytes"
    return text.encode("utf-8", "replace").decode()


def show_input(kept: Any) -> str:
    """An input in words."""
    if isinstance(kept, str):
        return kept
    if not isinstance(kept, bytes) or not kept:
        return "(not kept)"
    try:
        args = decode(kept)
        rest = kept[len(encode(args)) :]  # named arguments follow the others
        kwargs = decode(rest) if rest else {}
    except EverstepError:
        return f"{len(kept)} bytes"
    if not isinstance(args, list) or not isinstance(kwargs, dict):
        return f"{len(kept)} bytes"
    return f"({', '.join([*map(repr, args), *(f'{k}={v!r}' for k, v in kwargs.items())])})"


class Recorded:
    """The newest record about one address, opened when it is needed. `before` is the one that it took the place of."""

    __slots__ = ("_body", "attempts", "before", "record")

    def __init__(self, record: Record, before: Recorded | None = None):
        self.record = record
        self.before = before
        self.attempts: int = before.attempts + 1 if before is not None else 0
        self._body: list[Any] | None = None

    @property
    def body(self) -> list[Any]:
        if self._body is None:
            self._body = open_body(self.record)
        return self._body


def open_body(record: Record) -> list[Any]:
    """The body of a journal entry, if it is one: who forges a store can write anything into it."""
    if record.body is None:
        raise DamagedRecord(record.run, record.seq, "its body was pruned")
    try:
        body = unpackb(unwrap(record.body))
    except ValueError as error:
        raise DamagedFrame(f"record {record.seq} of run {record.run!r} is no journal entry") from error
    fits = _FITS.get(record.kind)
    if not isinstance(body, list) or (fits is not None and not fits(body)):
        raise DamagedRecord(record.run, record.seq, "its body is no journal entry")
    return body


def said_in(record: Record) -> dict[str, Any]:
    """What a status or start record says."""
    said = Decoder().decode(unwrap(record.body)) if record.body is not None else {}
    if not isinstance(said, dict) or any(name in said and not fits(said[name]) for name, fits in _SAYS.items()):
        raise DamagedRecord(record.run, record.seq, f"its body is no {record.kind}")
    return said


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
    """Asked for each step that is played back: no calls."""
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
    return len(body) == 3 and type(body[0]) is bytes and (body[1] is None or type(body[1]) is str) and type(body[2]) is dict


def _is_timer(body: list[Any]) -> bool:
    return len(body) == 1 and _a_time(body[0])


def _is_event(body: list[Any]) -> bool:
    return len(body) == 2 and type(body[0]) is str and type(body[1]) is bytes


_FITS: dict[str, Callable[[list[Any]], bool]] = {
    Kind.STEP.value: _is_step, Kind.GATE.value: _is_gate, Kind.ANSWER.value: _is_answer, Kind.TIMER.value: _is_timer,
    Kind.EVENT.value: _is_event,
}  # fmt: skip
_SAYS: dict[str, Callable[[Any], bool]] = {
    "key": _some_bytes, "family": _some_bytes, "parent_key": _some_bytes, "status": _a_text, "reason": _a_text, "workflow": _a_text, "definition": _a_text, "version": _a_text, "parent": _a_text, "steps": _names,
    "failures": _a_count, "saves": _a_count, "number": _a_count, "seconds": _a_number, "until": _a_time, "retry_at": _a_time,
    "used": lambda value: type(value) is list and len(value) == 4 and all(map(_a_number, value)),
    "result": _a_result, "input": _a_result, "edits": _edits, "error": lambda value: type(value) is dict,
}  # fmt: skip


def pack_body(body: list[Any]) -> bytes:
    return packb(body)


def read(backend: Backend, row: RunRow, first: int) -> list[Record]:
    """All records from a place on, proved."""
    return checked(backend, row, first, row.head_seq) if first <= row.head_seq else []


def list_steps(backend: Backend, row: RunRow) -> list[Step]:
    """Every recorded step of a run, in the order in which they ended, failed attempts too."""
    records = [r for r in read(backend, row, 1) if r.kind == Kind.STEP and r.body is not None]
    return [as_step(backend, row, record) for record in records]


def as_step(backend: Backend, row: RunRow, record: Record) -> Step:
    status, attempt, _, kept, form, result, error, started, ended, tokens, cost, worker, flags = open_body(record)
    return Step(
        record.note or "", status, attempt, when(started), when(ended), tokens, cost, worker, show_input(kept), error,
        bool(flags.get("skipped")), record.seq, record.epoch, lambda: load_result(backend, row.family, form, result),
    )  # fmt: skip

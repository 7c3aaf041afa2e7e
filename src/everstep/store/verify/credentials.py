"""Finds what looks like a credential in a store without a key: in the newest states, in inputs, results and errors of steps, in answers.

Uses the rules of `redact`, and names places, never values. Looks at a bounded number of runs, records and values, and says how much that was.
Reads only; damage is left to `verify`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from time import monotonic
from typing import Any

from everstep.backends.contract.core import Backend, Query
from everstep.codec.explain import shown
from everstep.codec.kinds import Unknown
from everstep.codec.values import Decoder
from everstep.errors import EverstepError, StoreClosed
from everstep.fields import Shape, field
from everstep.records import Kind, Record, RunRow
from everstep.redact import MASK, Redactor
from everstep.secret import Secret
from everstep.snapshot.loader import Loader
from everstep.store.encryption.frames import fetch_of
from everstep.store.journal.entries import CHUNKED, AnswerEntry, StepEntry, open_entry, said_in
from everstep.store.load import load, unproved
from everstep.store.verify.findings import Finding

RUNS, RECORDS, VALUES, CHARACTERS, SECONDS = 200, 200, 500_000, 64 * 1024 * 1024, 5.0
_MOST_STORED = 64 * 1024 * 1024  # of one run, compressed: loading the state of a larger one may take long
_SHOWN, _ENOUGH = 5, 100
_REMEDY = (
    "Give the store a key, wrap such values in everstep.Secret, or mask them before they are stored (redaction.store = true). "
    "All of these apply to new values: to remove stored ones, delete the run (store.delete(run_id)) or drop its checkpoints "
    "(store.drop(run_id, numbers)), and then replace the credentials."
)
_JOURNAL = (Kind.STEP.value, Kind.ANSWER.value)
Place = tuple[Any, str]  # the place above, or None, and one more part of the path


class _Looked(Shape):
    """The work done so far, and the places found."""

    runs: int = 0
    passed_over: int = 0
    values: int = 0
    characters: int = 0
    until: float = 0.0
    places: list[str] = field(default_factory=list)

    def enough(self) -> bool:
        return self.values > VALUES or self.characters > CHARACTERS or len(self.places) >= _ENOUGH or monotonic() > self.until


def credentials(backend: Backend, redactor: Redactor, runs: int, seconds: float = SECONDS) -> Iterator[Finding]:
    """Return the finding about the newest runs. `runs` is the number of all runs."""
    looked, after = _Looked(until=monotonic() + seconds), None
    while looked.runs < min(runs, RUNS) and not looked.enough():
        rows = backend.runs(Query(after=after, limit=20))
        if not rows:
            break
        for after, row in rows:  # noqa: B007 -- the last one is the cursor
            if looked.enough() or looked.runs == RUNS:
                break
            looked.runs += 1
            _look_at(backend, redactor, row, looked)
    how_much = f"looked at {looked.values:,} values of the newest {looked.runs:,} of {runs:,} runs"
    if looked.passed_over:
        how_much += f", without {looked.passed_over:,} parts that are too large or cannot be read"
    if not looked.places:
        yield Finding("ok", "credentials", f"nothing looks like a credential; {how_much}")
        return
    count = len(looked.places)
    number = f"{'at least ' if looked.enough() else ''}{count:,} {'value looks like a credential' if count == 1 else 'values look like credentials'}"
    more = f" and {count - _SHOWN:,} more" if count > _SHOWN else ""
    said = f"{number} and can be read by everybody who can read the store; {', '.join(looked.places[:_SHOWN])}{more}; {how_much}"
    yield Finding("bad", "credentials", said, _REMEDY)


def _look_at(backend: Backend, redactor: Redactor, row: RunRow, looked: _Looked) -> None:
    for part in (_state, _input, _journal):
        if looked.enough():
            return
        try:
            for where, value in part(backend, row):
                looked.places += _found(redactor, where, value, looked)
                if looked.enough():
                    return
        except StoreClosed:
            raise
        except (EverstepError, MemoryError):
            looked.passed_over += 1


def _state(backend: Backend, row: RunRow) -> Iterator[tuple[str, Any]]:
    if row.checkpoints:
        if row.stored > _MOST_STORED:
            raise MemoryError
        yield f"{row.id}@{row.checkpoints} state", load(backend, row, row.checkpoints).value


def _input(backend: Backend, row: RunRow) -> Iterator[tuple[str, Any]]:
    for record in unproved(backend, row, 1, 1):
        form, data = said_in(record).get("input") or (0, None)
        yield f"{row.id} arguments", _result(backend, row, form, data)


def _journal(backend: Backend, row: RunRow) -> Iterator[tuple[str, Any]]:
    for record in unproved(backend, row, 1, row.head_seq, _JOURNAL, RECORDS):
        if record.body is not None:
            yield from _entry(backend, row, record)


def _entry(backend: Backend, row: RunRow, record: Record) -> Iterator[tuple[str, Any]]:
    entry = open_entry(record)
    if isinstance(entry, AnswerEntry):
        yield f"{row.id} answer of {record.note}", Decoder().decode(entry.value)
    elif isinstance(entry, StepEntry):
        where = f"{row.id} step {record.note}"
        yield f"{where} input", _arguments(entry.input)
        yield f"{where} result", _result(backend, row, entry.form, entry.result)
        if entry.error is not None:
            yield f"{where} error", [entry.error.get("message"), entry.error.get("traceback")]


def _arguments(kept: bytes | str) -> Any:
    """Return the decoded input of a step: positional and named arguments, or a description."""
    from everstep.store.journal.results import kept_arguments

    found = kept_arguments(kept)
    return kept if found is None else {**dict(enumerate(found.args)), **found.kwargs}


def _result(backend: Backend, row: RunRow, form: int, data: bytes | None) -> Any:
    if data is None:
        return None
    if form != CHUNKED:
        return Decoder().decode(data)
    return Loader(fetch_of(backend, row.family), backend.framer.inner.unwrap).load(data)


def _found(redactor: Redactor, where: str, value: Any, looked: _Looked) -> Iterator[str]:
    """Yield the places in a value that hold what looks like a credential."""
    todo: list[tuple[Any, Place, bool]] = [(value, (None, where), False)]
    while todo and not looked.enough():
        one, place, hidden = todo.pop()
        looked.values += 1
        if isinstance(one, (str, bytes)):
            text = one if isinstance(one, str) else one.decode("latin-1")
            looked.characters += len(text)
            if text and text != MASK and (hidden or redactor.text(text) != text):
                yield _written(place, redactor)
        elif isinstance(one, Secret) or (hidden and isinstance(one, (int, float)) and not isinstance(one, bool)):
            yield _written(place, redactor)
        else:
            inside = [(held, (place, f"[{shown(key)}]"), hidden or redactor.hides(key, held), key) for key, held in _parts(one)]
            todo += [(held, below, hides) for held, below, hides, _ in reversed(inside)]
            for _, _, _, key in inside:
                if isinstance(key, str) and redactor.text(key) != key:
                    yield f"{_written(place, redactor)} (a key)"


def _parts(value: Any) -> Iterable[tuple[Any, Any]]:
    if isinstance(value, Unknown):
        return value.fields.items()
    if isinstance(value, dict):
        return dict.items(value)
    return enumerate(value) if isinstance(value, (list, tuple, set, frozenset, deque)) else ()


def _written(place: Place, redactor: Redactor) -> str:
    parts: list[str] = []
    above: Any = place
    while above is not None:
        above, part = above
        parts.append(part)
    return redactor.text("".join(reversed(parts)))

"""A dry run of type versions over a whole store: what a load would upgrade, leave unknown, or refuse.

Relies on `load` and `journal.entries` for stored values with neutral objects, and on `codec.kinds` for the types that this program has
registered. Calls the program's own upgrade functions on freshly read values. Never writes, and never stops at one bad run.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterator
from typing import Any, Literal

from everstep.backends.contract.core import Backend, Query
from everstep.codec.explain import shown
from everstep.codec.kinds import Unknown, kind_named, revive
from everstep.codec.values import FROZEN, Decoder
from everstep.errors import Damaged, EverstepError, StoreClosed
from everstep.fields import Shape
from everstep.records import Kind, Record, RunRow
from everstep.snapshot.loader import Loader
from everstep.store.encryption.frames import fetch_of
from everstep.store.journal.entries import CHUNKED, INLINE, StepEntry, open_as
from everstep.store.load import load, unproved
from everstep.store.progress import Pace, Progress
from everstep.store.refs import verified

What = Literal["upgrade", "unknown", "newer", "fails", "damaged"]
_AT_ONCE = 500
_Path = tuple[Any, ...]  # (the path above, the format of this step, the step); () above the first


class Upgrade(Shape, frozen=True):
    """One stored object that would not come back unchanged, or one part that cannot be read.

    upgrade   an older version; this program's upgrades bring it up to date
    unknown   its name is not registered: it comes back as `Unknown`, and is saved again unchanged
    newer     a newer version than this program knows: loading it is refused
    fails     its upgrade is missing or fails, or its fields don't fit the type: loading it is refused
    damaged   the stored bytes are damaged; `error` says how, and there is no name
    """

    run: str
    number: int | None
    where: str
    name: str | None
    stored: int | None
    here: int | None
    outcome: What
    error: str | None = None

    def __str__(self) -> str:
        ref = self.run if self.number is None else f"{self.run}@{self.number}"
        what = {
            "upgrade": f"{self.name} {self.stored} -> {self.here}",
            "unknown": f"{self.name} {self.stored} is not registered here",
            "newer": f"{self.name} {self.stored} is newer than {self.here}",
        }
        return f"{ref} {self.where}: {what.get(self.outcome) or f'{self.outcome}: {self.error}'}"


def upgrades(backend: Backend, all_checkpoints: bool = False, progress: Progress | None = None) -> list[Upgrade]:
    """List what would happen to the objects in the newest state of every run, or in all states, and in the results of steps."""
    return list(each_upgrade(backend, all_checkpoints, progress))


def each_upgrade(backend: Backend, all_checkpoints: bool = False, progress: Progress | None = None) -> Iterator[Upgrade]:
    """Yield the same run by run, for stores with a long list."""
    seen: set[bytes] = set()
    pace = Pace(progress, None)
    pace.total = backend.manifest().runs
    for oldest_first in (True, False):  # approach an unreadable row from both sides
        try:
            for row in _rows(backend, oldest_first):
                if row.key not in seen:
                    seen.add(row.key)
                    yield from _run(backend, row, all_checkpoints)
                    pace.on(1, "upgrades")
        except Damaged as error:
            problem = error
        else:
            return
    yield Upgrade("", None, "runs", None, None, None, "damaged", problem.message)


def _rows(backend: Backend, oldest_first: bool) -> Iterator[RunRow]:
    after, limit = None, _AT_ONCE
    while True:
        try:
            rows = backend.runs(Query(oldest_first=oldest_first, after=after, limit=limit))
        except Damaged:
            if limit == 1:
                raise
            limit = 1  # one bad row fails its whole page: read row by row up to it
            continue
        for after, row in rows:  # noqa: B007 -- the last one is the cursor
            yield row
        if len(rows) < limit:
            return


def _run(backend: Backend, row: RunRow, all_checkpoints: bool) -> list[Upgrade]:
    """Return the findings about one run; none if it was deleted meanwhile."""
    found: list[Upgrade] = []
    first = 1 if all_checkpoints else max(1, row.checkpoints)
    _guard(found, row, None, "run", lambda: verified(row, backend.seal))
    if not found:
        for number in range(first, row.checkpoints + 1):
            _guard(found, row, number, "state", lambda n=number: _state(backend, row, n))  # type: ignore[misc]
        _guard(found, row, None, "steps", lambda: _steps(backend, row, found))
    if any(u.outcome == "damaged" for u in found):
        try:
            now = backend.run(row.id)
        except Damaged:
            return found
        if now is None or now.key != row.key:
            return []
    return found


def _guard(found: list[Upgrade], row: RunRow, number: int | None, where: str, look: Callable[[], Any]) -> None:
    """Read one value and try it; failures become part of the list."""
    try:
        trial = _Trial(row.id, number, found)
        trial.value(look(), ((), "{}", where))
    except StoreClosed:
        raise
    except EverstepError as error:
        found.append(Upgrade(row.id, number, where, None, None, None, "damaged", error.message))
    except Exception as error:  # noqa: BLE001 - the program's own types: one that cannot be a key any more, for instance
        found.append(Upgrade(row.id, number, where, None, None, None, "fails", f"{type(error).__name__}: {error}"))


def _state(backend: Backend, row: RunRow, number: int) -> Any:
    loaded = load(backend, row, number)
    return loaded.value if loaded.objects else None


def _steps(backend: Backend, row: RunRow, found: list[Upgrade]) -> None:
    """Try results and errors of steps. The chain is not proved, because the values are not returned."""
    for record in unproved(backend, row, 1, row.head_seq, (Kind.STEP.value,)):
        for what, look in (("result", _result), ("error", _error)):
            where = f"{what} of {record.note}"
            _guard(found, row, record.number, where, lambda r=record, f=look: f(backend, row, r))  # type: ignore[misc]


def _result(backend: Backend, row: RunRow, record: Record) -> Any:
    step = open_as(record, StepEntry)
    if step.result is None:
        return None
    if step.form == INLINE:
        return Decoder().decode(step.result)
    return Loader(fetch_of(backend, row.family), backend.framer.inner.unwrap).load(step.result) if step.form == CHUNKED else None


def _error(backend: Backend, row: RunRow, record: Record) -> Any:
    error = open_as(record, StepEntry).error
    return Decoder().decode(error["object"]) if error and "object" in error else None


class _Trial:
    """Revives one value as a load would, object by object, and notes the outcome of each. Consumes the value."""

    def __init__(self, run: str, number: int | None, found: list[Upgrade]):
        self._run = run
        self._number = number
        self._found = found

    def value(self, value: Any, path: _Path) -> Any:
        cls = type(value)
        if cls in FROZEN:
            return value
        if cls is dict or cls is OrderedDict or cls is Counter:
            items = [(self.value(k, (path, " (key {})", k)), self.value(v, (path, "[{}]", k))) for k, v in dict.items(value)]
            value.clear()
            for k, v in items:
                value[k] = v
            return value
        if cls is list or cls is tuple or cls is deque:
            made = [self.value(v, (path, "[{}]", i)) for i, v in enumerate(value)]
            return deque(made, value.maxlen) if cls is deque else cls(made)
        if cls is set or cls is frozenset:
            return cls(self.value(v, (path, " (member {})", v)) for v in value)
        return self._object(value, path) if cls is Unknown else value

    def _object(self, value: Unknown, path: _Path) -> Any:
        value.fields = {k: self.value(v, (path, ".{}", k)) for k, v in value.fields.items()}
        kind = kind_named(value.name)
        if kind is None:
            self._note(value, path, None, "unknown")
        elif value.version > kind.version:
            self._note(value, path, kind.version, "newer")
        else:
            return self._revived(value, path, kind.version)
        return value

    def _revived(self, value: Unknown, path: _Path, version: int) -> Any:
        try:
            made = revive(value.name, value.version, dict(value.fields))
        except Exception as error:  # noqa: BLE001 - upgrades and constructors are the program's code
            text = error.message if isinstance(error, EverstepError) else f"{type(error).__name__}: {error}"
            self._note(value, path, version, "fails", text)
            return value
        if value.version < version:
            self._note(value, path, version, "upgrade")
        return made

    def _note(self, value: Unknown, path: _Path, here: int | None, outcome: What, error: str | None = None) -> None:
        self._found.append(Upgrade(self._run, self._number, _text(path), value.name, value.version, here, outcome, error))


def _text(path: _Path) -> str:
    steps: list[str] = []
    while path:
        path, form, step = path
        steps.append(form.format(step if form in ("{}", ".{}") else shown(step)))
    return "".join(reversed(steps))

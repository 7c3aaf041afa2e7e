"""Load the newest good state at or before a damaged checkpoint, and list the skipped checkpoints.

Walks back from the checkpoint, record by record and past unreadable ones, to the first undamaged base, and from there forward again as far
as the deltas are good. A damaged base does not end the walk: the deltas before and after it may give the same state. Every record is proved
by the one before it, as in `store.load`. Reads only, each record once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

from everstep.backends.contract.core import Backend
from everstep.codec.values import Decoder, revived
from everstep.errors import Damaged, PrunedCheckpoint
from everstep.fields import Shape, field
from everstep.records import ZERO, Base, Kind, Pruned, Record, RunRow, record_fault
from everstep.snapshot.delta import apply
from everstep.snapshot.loader import Loader
from everstep.snapshot.saver import NO_DELTA
from everstep.store import load
from everstep.store.encryption.frames import content_of_base, fetch_of, frames_of

_AT_ONCE = 500
_MOST_SKIPPED = 10_000
_MOST_FAILURES = 5_000
"""If this many reads fail, the store is damaged rather than a checkpoint, and `repair` is the better tool."""
_PRUNED = "its state was pruned"


class Salvaged(Shape, frozen=True):
    """A state, its checkpoint, and the newer checkpoints that were skipped, newest first, each with the reason."""

    state: Any
    run: str
    number: int
    skipped: list[tuple[int, str]] = field(default_factory=list)

    def __str__(self) -> str:
        return "\n".join([f"{self.run}@{self.number}", *(f"skipped {self.run}@{n}: {reason}" for n, reason in self.skipped)])


def salvage(backend: Backend, row: RunRow, number: int) -> Salvaged:
    """Return the state of a checkpoint, or of the newest good one before it. If there is none, raises what `load` raises."""
    try:
        return Salvaged(load.load(backend, row, number).revived(), row.id, number)
    except (Damaged, PrunedCheckpoint) as error:
        found = _Walk(backend, row, number).back()
        if found is None:
            raise
        state, good = found.value, found.number
        return Salvaged(revived(state) if found.objects else state, row.id, good, found.skipped(number, error.message))


def newest_good(backend: Backend, row: RunRow, number: int) -> int | None:
    """Return the newest checkpoint up to a number that `load` can load, or None."""
    while number >= 1:
        found = _Walk(backend, row, number).back()
        if found is None:
            return None
        for good in (found.loadable, found.source):
            if good and _loads(backend, row, good):
                return good
        number = max(found.source, 1) - 1
    return None


def _loads(backend: Backend, row: RunRow, number: int) -> bool:
    try:
        load.load_only(backend, row, number)
    except (Damaged, PrunedCheckpoint):
        return False
    return True


class _Good(Shape):
    """The newest good state, and the faults of the newer ones."""

    run: str
    value: Any
    number: int
    source: int
    """The number of the base that it was built from, 0 for none."""
    loadable: int
    """The newest number that a plain load reaches, without a way around a damaged base."""
    objects: bool
    faults: dict[int, str]

    def skipped(self, last: int, message: str) -> list[tuple[int, str]]:
        first = self.number + 1
        if first > last:
            return []
        if last - first > _MOST_SKIPPED:
            return [(last, message), (first, f"it and all up to {last} are damaged or missing")]
        reasons = dict.fromkeys(range(first + 1, last + 1), f"it depends on {self.run}@{first}")
        reasons[first] = message if first == last else "its record is damaged or missing"
        return [(number, self.faults.get(number) or reasons[number]) for number in range(last, self.number, -1)]


class _Walk:
    """One walk back from a checkpoint."""

    def __init__(self, backend: Backend, row: RunRow, number: int):
        self._backend = backend
        self._row = row
        self._frames = frames_of(backend, row)
        self._last = number
        self._mark: Pruned | None = None
        self._deltas: dict[int, Record] = {}
        self._bad_bases: list[int] = []
        self._failures = 0
        self._faults: dict[int, str] = {}
        self._loader = Loader(fetch_of(backend, row.family), backend.framer.inner.unwrap)
        self._decoder = Decoder()

    def back(self) -> _Good | None:
        added = self._added()
        with suppress(Damaged):  # without a valid mark, nothing counts as pruned
            self._mark = load.prune_mark(self._backend, self._row)
        for record in self._records():
            if record.number > self._last:
                continue
            content: Callable[[], bytes] | None = None
            if record.kind == Kind.CHECKPOINT:
                self._deltas[record.number] = record
                content = added.get(record.number)
            elif record.kind == Kind.BASE:
                content = record.content if record.body is not None else None
            if content is not None:
                found = self._forward(record.number, content)
                if found is not None:
                    return found
        return self._forward(0, None)

    def _added(self) -> dict[int, Callable[[], bytes]]:
        """Return the bases that prune added and whose digests match."""
        try:
            bases: list[Base] = self._backend.bases(self._row.id)
        except Damaged:
            return {}
        return {
            base.number: partial(content_of_base, self._frames, base)
            for base in bases
            if base.digest(self._backend.seal) == base.check and base.key == self._row.key
        }

    def _records(self) -> Iterator[Record]:
        """Yield the proved records, newest first."""
        last = self._there(self._row.head_seq)
        while last > 0:
            first = max(1, last - _AT_ONCE + 1)
            found = {record.seq: record for record in self._readable(max(1, first - 1), last)}
            if not found:
                last = self._there(first - 1)
                continue
            for seq in range(last, first - 1, -1):
                record = found.get(seq)
                fault = self._fault(record, found.get(seq - 1)) if record is not None else None
                if record is not None and fault is None:
                    yield record.opened_by(self._frames)
                elif record is not None and record.kind == Kind.CHECKPOINT:
                    self._faults.setdefault(record.number, fault or "")
                elif record is not None and record.kind == Kind.BASE:
                    self._bad_bases.append(record.number)
            last = first - 1

    def _there(self, last: int) -> int:
        """Return the seq of the newest existing record at or before `last`: the head in a damaged row may be any number."""
        if last < 1 or self._failures > _MOST_FAILURES:
            return 0
        try:
            found = self._backend.records(self._row.id, 1, last, newest=1)
        except Damaged:
            return last
        return found[-1].seq if found else 0

    def _readable(self, first: int, last: int) -> list[Record]:
        """Return the records of a range, without those that cannot be read."""
        try:
            return self._backend.records(self._row.id, first, last)
        except Damaged:
            self._failures += 1
            if first == last or self._failures > _MOST_FAILURES:
                return []
        middle = (first + last) // 2
        return self._readable(first, middle) + self._readable(middle + 1, last)

    def _fault(self, record: Record, before: Record | None) -> str | None:
        if before is None and record.seq > 1:
            return "the record before it is damaged or missing, so it cannot be proved"
        if record.seq == self._row.head_seq and record.digest != self._row.head_digest:
            return "it is not the one named as head in the run row"
        return record_fault(before.digest if before is not None else ZERO, record, self._row.key, self._backend.seal)

    def _forward(self, number: int, content: Callable[[], bytes] | None) -> _Good | None:
        """Go forward from a base, or from the beginning, as far as possible."""
        try:
            value = self._loader.load(content()) if content is not None else None
        except Damaged as error:
            self._faults.setdefault(number, f"its base is damaged: {error.message}")
            self._bad_bases.append(number)
            return None
        good = number
        while good < self._last:
            try:
                ops = self._ops(self._deltas.get(good + 1))
            except Damaged as error:
                self._faults.setdefault(good + 1, error.message)
                break
            try:
                value = apply(value, ops)
            except Damaged as error:  # half of it may have been applied
                self._faults[good + 1] = error.message
                self._last = good
                return self._forward(number, content)
            good += 1
        shown = next((n for n in range(good, max(number, 1) - 1, -1) if self._has_state(n)), 0)
        self._faults.update(dict.fromkeys(range(max(number, shown + 1, 1), good + 1), _PRUNED))
        if shown and shown < good:
            self._last = shown
            return self._forward(number, content)
        if not shown:
            return None
        ahead = [base for base in self._bad_bases if number < base <= good]
        objects = bool(self._loader.decoder.objects or self._decoder.objects)
        return _Good(self._row.id, value, good, number, min(ahead, default=good + 1) - 1, objects, self._faults)

    def _has_state(self, number: int) -> bool:
        """Whether a checkpoint was not pruned: the bytes of a pruned one may still be there for others."""
        return self._mark is None or self._mark.has_state(number)

    def _ops(self, record: Record | None) -> Any:
        if record is None:
            raise Damaged("its record is damaged or missing")
        if record.body is None:
            raise Damaged(_PRUNED)
        content = record.content()
        ops = self._decoder.decode(content) if content != NO_DELTA else None
        if not isinstance(ops, list):
            raise Damaged("the base that it depends on is damaged or missing")
        return ops

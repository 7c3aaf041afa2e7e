"""Determine which checkpoints of a repaired run can be loaded. The others are marked as pruned, and their remaining data is kept.

Relies on a function that fetches chunks known to be good. If a base has lost a chunk but the deltas before it give the same state, a new
base is added instead. So every checkpoint either loads or reports that it cannot. Never guesses a state.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby
from typing import Any

from everstep.codec.values import Decoder
from everstep.errors import Damaged, EverstepError
from everstep.fields import Shape, field, replace
from everstep.records import Base, Frames, Inner, Kind, Pruned, Record, RunRow, Seal
from everstep.snapshot.delta import apply
from everstep.snapshot.loader import Fetch, Loader
from everstep.snapshot.saver import NO_DELTA, Saver
from everstep.store.encryption.frames import content_of_base
from everstep.store.repair.report import Loss
from everstep.store.retention.reachable import Reach

_SHORT = 64  # a "no delta" frame is shorter than this, with any codec
_STATE = (Kind.CHECKPOINT.value, Kind.BASE.value)


class States(Shape):
    """The checkpoints of one run. `row` must have its id and key; `lost` gives by number why records are missing."""

    row: RunRow
    records: list[Record]
    bases: list[Base]
    mark: Pruned | None
    lost: dict[int, str]
    fetch: Fetch
    frames: Frames
    inner: Inner
    seal: Seal
    good: set[int] = field(default_factory=set)
    needed: set[bytes] = field(default_factory=set)
    """The chunks that the bases refer to."""
    made: dict[bytes, bytes] = field(default_factory=dict)
    """New chunks of added bases."""
    losses: list[Loss] = field(default_factory=list)
    _why: dict[int, str] = field(default_factory=dict)
    _pruned: set[int] = field(default_factory=set)

    def settle(self, now: int, reach: Reach) -> None:
        """Find out which checkpoints can be loaded, drop damaged bases, and mark the rest as pruned."""
        mark = self.mark
        if mark is not None:  # an older version of a record may still have the body that was pruned
            self.records = [r if r.kind not in _STATE or mark.has_body(r.seq) else self._without(r) for r in self.records]
        bases = {base.number: base for base in self.bases if self._whole(partial(content_of_base, self.frames, base), base.number, reach)}
        self._pruned = {r.number for r in self.records if r.kind == Kind.CHECKPOINT and r.body is None and r.number not in self.lost}
        broken: set[int] = set()
        known = True
        for record in self.records:
            if record.kind == Kind.CHECKPOINT:
                known = (known and _has_delta(record)) or record.number in bases
            elif record.kind == Kind.BASE and record.body is not None:
                whole = self._whole(record.content, record.number, reach)
                broken.update(() if whole else (record.seq,))
                if known and not whole and record.number not in bases:
                    known = self._replace(record, bases, broken)
                known = known or whole
            if known and record.kind in _STATE:
                self.good.add(record.number)
        self.bases = [base for _, base in sorted(bases.items())]
        self.records = [self._without(record) if record.seq in broken else record for record in self.records]
        self._mark(now)

    def _whole(self, content: Callable[[], bytes], number: int, reach: Reach) -> bool:
        """Whether all chunks of a base are present."""
        try:
            digests = reach.of([content()])
        except Damaged as error:
            self._why[number] = f"its base is damaged: {error.message}"
            return False
        self.needed |= digests
        return True

    def _replace(self, record: Record, bases: dict[int, Base], broken: set[int]) -> bool:
        """Add a base with the state that the deltas give, to replace a damaged one; return False if the deltas do not give it."""
        saver = Saver(self.inner.wrap)
        try:
            saver.begin(self._value(record.number, bases, broken))
            saved = saver.build(whole=True)
        except EverstepError:
            return False
        assert saved.base is not None
        self.made.update(saved.chunks)
        self.needed.update(digest for digest, _ in saved.chunks)
        bases[record.number] = Base.make(
            self.row.key, record.number, record.at, self.frames.wrap(saved.base, ("base", record.number)), self.seal
        )
        return True

    def _value(self, number: int, bases: dict[int, Base], broken: set[int]) -> Any:
        """Return the state of a known checkpoint, from the newest undamaged base before it."""
        loader = Loader(lambda digests: {**self.fetch(digests), **self.made}, self.inner.unwrap)
        sources: dict[int, Callable[[], bytes]] = {
            r.number: r.content for r in self.records if r.kind == Kind.BASE and r.body is not None and r.seq not in broken
        }
        sources |= {base.number: partial(content_of_base, self.frames, base) for base in bases.values()}
        source = max((n for n in sources if n <= number), default=0)
        value: Any = loader.load(sources[source]()) if source else None
        decoder = Decoder()
        for record in self.records:
            if record.kind == Kind.CHECKPOINT and source < record.number <= number:
                value = apply(value, decoder.decode(record.content()))
        return value

    @staticmethod
    def _without(record: Record) -> Record:
        return replace(record, body=None)

    def _mark(self, now: int) -> None:
        """Mark missing states, so that they do not count as damage. Pruned checkpoints stay pruned, even if their bytes are still needed."""
        last, mark = max((record.number for record in self.records), default=0), self.mark
        pruned = {n for n in range(1, last + 1) if not mark.has_state(n)} if mark is not None else self._pruned - self.good
        self._list(last, pruned)
        self.good -= pruned
        bodies = [record for record in self.records if record.kind in _STATE]
        ranges = _runs_of(bodies, lambda record: record.body is None, lambda record: record.seq)
        numbers = _runs_of(range(1, last + 1), lambda number: number not in self.good, lambda number: number)
        if not ranges and not numbers:
            self.mark = None
        elif mark is None or (mark.ranges, mark.numbers, mark.key) != (ranges, numbers, self.row.key):
            self.mark = Pruned.make(self.row.key, ranges, mark.freed if mark is not None else 0, now, numbers, self.seal)

    def _list(self, last: int, pruned: set[int]) -> None:
        """List the lost checkpoints that were not pruned before."""
        fallen = 0
        for number in range(1, last + 1):
            own = self.lost.get(number) or self._why.get(number)
            if number in self.good:
                fallen = 0
                if number in self.lost:
                    self.losses.append(Loss(self.row.id, "note", "its state is there, but its note, tags and meta are lost", number))
                continue
            fallen = fallen if fallen and own is None else number
            if number not in pruned or number in self.lost:
                reason = own or (f"it depends on {self.row.id}@{fallen}, which is lost" if fallen < number else "its state is lost")
                self.losses.append(Loss(self.row.id, "checkpoint", reason, number))


def _has_delta(record: Record) -> bool:
    if record.body is None or len(record.body) > _SHORT:
        return record.body is not None
    try:
        return record.content() != NO_DELTA
    except EverstepError:
        return False


def _runs_of(items: Sequence[Any], gone: Callable[[Any], bool], number_of: Callable[[Any], int]) -> tuple[tuple[int, int], ...]:
    """Return the first and last of each series of items that are missing."""
    rows = [list(group) for is_gone, group in groupby(items, gone) if is_gone]
    return tuple((number_of(row[0]), number_of(row[-1])) for row in rows)

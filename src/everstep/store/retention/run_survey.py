"""A run from its first record to its head, proved by the chain, without its bodies: the input for prune and gc.

Relies on a backend and on `records`. Any damage is an error, including a body that is missing without having been pruned: nothing is
dropped or freed because of a run that cannot be proved. Reads only, in batches; others may write meanwhile.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterator

from everstep.backends.contract.core import Backend, Query
from everstep.errors import Conflict, Damaged, DamagedRecord, DamagedRun
from everstep.fields import Shape, field
from everstep.records import ZERO, Base, Kind, Pruned, Record, RunRow, record_fault
from everstep.snapshot.saver import NO_DELTA
from everstep.store.encryption.frames import frames_of
from everstep.store.journal.entries import said_in
from everstep.store.refs import named_tags, verified
from everstep.store.retention.retention import Point
from everstep.store.views import asked_for, header_of

_AT_ONCE = 500
_TRIES = 5
_PRUNABLE = (Kind.CHECKPOINT.value, Kind.BASE.value)
_SHORT = 64  # a "no delta" frame is shorter than this, with any codec


class Body(Shape):
    """The body of a checkpoint or base record: its seq and length. `length` is 0 if it was dropped."""

    seq: int
    number: int
    base: bool
    length: int
    digest: bytes
    there: bool
    nothing: bool = False
    """Whether it is a checkpoint without a delta, known only by its base."""


class Labels(Shape):
    """Labels that may be added to a run at any time and may keep a checkpoint: tags by number, and forks by id."""

    tags: dict[int, list[str]]
    forks: dict[str, int]

    def on(self, numbers: set[int]) -> set[tuple[int, str]]:
        """Return the labels on these checkpoints."""
        tags = {(number, name) for number, names in self.tags.items() if number in numbers for name in names}
        return tags | {(number, fork) for fork, number in self.forks.items() if number in numbers}


class Survey(Shape):
    """Everything about a run that decides what can be dropped."""

    row: RunRow
    mark: Pruned | None = None
    bodies: list[Body] = field(default_factory=list)
    bases: list[Base] = field(default_factory=list)
    points: list[Point] = field(default_factory=list)
    """The checkpoints that can be loaded."""
    sizes: dict[int, int] = field(default_factory=dict)
    """The bytes of all bodies of each checkpoint: its own, that of a base record, that of an added base."""
    pinned: dict[int, str] = field(default_factory=dict)
    """The checkpoints that are kept regardless of the rules, and why."""
    journal: int = 0
    """Bytes of all other bodies, which are always kept."""
    labels: Labels = field(default_factory=lambda: Labels({}, {}))
    sources: list[int] = field(default_factory=list)
    """The checkpoints that a load can begin at."""
    newest_base: int = 0
    """The number of the newest base record. Its bodies are always kept: a program that has the run open builds on its chunks."""


def survey(backend: Backend, row: RunRow, without: Collection[str] = ()) -> Survey:
    """Survey a run, again if another process pruned it meanwhile. Raises `Damaged` if anything is wrong with it.

    `without`: ids of forks that count as deleted.
    """
    for _ in range(_TRIES):
        found = Survey(verified(row, backend.seal), mark_of(backend, row))
        _look(backend, found, without)
        if mark_of(backend, row) == found.mark:
            _prove(found)
            return found
    raise Conflict(f"another process is pruning run {row.id!r}", remedy="Try again when it has finished.")


def proved(backend: Backend, row: RunRow) -> Iterator[Record]:
    """Yield every record up to the head of the row; each must match its digest, and the last one the row."""
    before, seq, number, frames = ZERO, 0, 0, frames_of(backend, row)
    while seq < row.head_seq:
        batch = backend.records(row.id, seq + 1, min(seq + _AT_ONCE, row.head_seq))
        if not batch:
            raise DamagedRecord(row.id, seq + 1, "it is missing")
        for record in batch:
            number += record.kind == Kind.CHECKPOINT
            fault = (
                f"record {seq + 1} before it is missing" if record.seq != seq + 1 else record_fault(before, record, row.key, backend.seal)
            )
            if fault or record.number != number:
                raise DamagedRecord(row.id, record.seq, fault or f"it counts {record.number} checkpoints, there are {number}")
            before, seq = record.digest, record.seq
            yield record.opened_by(frames)
    if before != row.head_digest or number != row.checkpoints:
        raise DamagedRun(f"the records of run {row.id!r} do not end where its row says")


def refuse_vanished(row: RunRow, records: list[tuple[int, str]], mark: Pruned | None) -> None:
    """Raise if a record lost its body without being pruned. `records` are seq and kind of those without a body; read the mark after them."""
    starts = [first for first, _ in mark.ranges] if mark is not None else []
    for seq, kind in records:
        index = bisect_right(starts, seq) - 1
        if kind not in _PRUNABLE or index < 0 or mark is None or mark.ranges[index][1] < seq:
            raise DamagedRecord(row.id, seq, "its body is missing although it was not pruned")


def mark_of(backend: Backend, row: RunRow) -> Pruned | None:
    """Return the run's prune mark, checked against its digest."""
    mark = backend.pruned(row.id)
    if mark is not None and (mark.key != row.key or mark.digest(backend.seal) != mark.check):
        raise DamagedRun(f"the prune mark of run {row.id!r} does not match its digest")
    return mark


def bases_of(backend: Backend, row: RunRow) -> list[Base]:
    """Return the bases that prune added to a run, checked against their digests."""
    found = backend.bases(row.id)
    for base in found:
        if base.key != row.key or base.digest(backend.seal) != base.check or not base.number >= 1:
            raise DamagedRun(f"the added base for {row.id}@{base.number} does not match its digest")
    return found


def gone(backend: Backend, row: RunRow) -> bool:
    """Whether a run was deleted since its row was read, so that apparent damage is not real."""
    now = backend.run(row.id)
    return now is None or now.key != row.key


def labels_of(backend: Backend, row: RunRow) -> Labels:
    """Return the valid tags of a run's checkpoints, and the runs that were forked from one of them."""
    tags: dict[int, list[str]] = {}
    found = backend.tags(row.id)
    for tag in found:
        if tag.key != row.key or tag.digest(backend.seal) != tag.check:
            raise DamagedRun(f"the tag {tag.name!r} of run {row.id!r} does not match its digest")
    for tag in named_tags(backend, row, found) if backend.framer.encrypted else found:
        tags.setdefault(tag.number, []).append(tag.name)
    forks = backend.runs(Query(parent=row.id, oldest_first=True))
    return Labels(tags, {fork.id: fork.parent_number for _, fork in forks if fork.parent_number > 0})


def _look(backend: Backend, found: Survey, without: Collection[str]) -> None:
    row = found.row
    about: dict[int, tuple[int, tuple[str, ...], str | None]] = {}
    for record in proved(backend, row):
        if record.kind in _PRUNABLE:
            found.bodies.append(_body(record))
            if record.kind == Kind.CHECKPOINT:
                about[record.number] = (record.at, record.shown()[1], record.own)
        elif record.kind == Kind.ATTACHED and record.body is None and found.mark is not None:
            continue  # its checkpoint was dropped
        elif record.body is None:
            raise DamagedRecord(row.id, record.seq, "its body is missing although it was not pruned")
        else:
            found.journal += len(record.body)
            if record.kind == Kind.START and said_in(record).get("edited"):
                found.pinned[1] = "the edited state that this fork starts with"
    found.bases = bases_of(backend, row)
    records = {b.number for b in found.bodies if b.base and b.there}
    found.sources = sorted(records | {base.number for base in found.bases})
    found.newest_base = max(records, default=0)
    found.labels = labels = labels_of(backend, row)
    labels.forks = {fork: number for fork, number in labels.forks.items() if fork not in without}
    for body in found.bodies:
        found.sizes[body.number] = found.sizes.get(body.number, 0) + body.length
    for base in found.bases:
        found.sizes[base.number] = found.sizes.get(base.number, 0) + len(base.body)
    found_hashes = backend.framer.encrypted
    for number in _loadable(found):
        at, tags, text = about[number]
        kind = str(header_of(text).get("kind", "manual"))
        names = tuple(dict.fromkeys((*tags, *labels.tags.get(number, ()))))
        if found_hashes:  # those that came with the checkpoint; their names are in its record
            names = tuple(name for name in names if not name.startswith("#"))
        found.points.append(Point(number, at, kind, names, found.sizes[number]))
    _pin(found, labels, about[row.checkpoints][2] if row.checkpoints else None)


def _body(record: Record) -> Body:
    body = record.body
    nothing = body is not None and len(body) < _SHORT and record.kind == Kind.CHECKPOINT and record.content() == NO_DELTA
    there, base = body is not None, record.kind == Kind.BASE
    return Body(record.seq, record.number, base, len(body or b""), record.body_digest, there, nothing)


def _loadable(found: Survey) -> list[int]:
    """Return the checkpoints that were not pruned and that can be loaded: from their own base, or from deltas since one."""
    sources, out, before = set(found.sources), [], 0
    for body in found.bodies:
        if not body.base and (body.number in sources or (before == body.number - 1 and body.there and not body.nothing)):
            before = body.number
            if found.mark is None or found.mark.has_state(before):
                out.append(before)
    return out


def _pin(found: Survey, labels: Labels, head: str | None) -> None:
    """Pin the checkpoints that are kept regardless of the rules, besides the head."""
    pinned, row = found.pinned, found.row
    if row.checkpoints and not asked_for(head):
        pinned.setdefault(int(header_of(head).get("base", 0)), "the run resumes from it")
    for fork, number in labels.forks.items():
        pinned.setdefault(number, f"fork {fork} starts here")


def _prove(found: Survey) -> None:
    """Require that the newest state can be loaded, and that the mark covers every missing body."""
    row = found.row
    kinds = [(b.seq, Kind.BASE.value if b.base else Kind.CHECKPOINT.value) for b in found.bodies if not b.there]
    refuse_vanished(row, kinds, found.mark)
    if row.checkpoints and (not found.points or found.points[-1].number != row.checkpoints):
        raise Damaged(f"the newest checkpoint of run {row.id!r} cannot be loaded: data that it depends on is missing")

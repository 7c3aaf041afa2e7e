"""Drop single checkpoints permanently: bodies, labels and attached entries. The chain can still be verified.

Relies on `run_survey` for what is present and on `apply_prune` for dropping bodies. A kept checkpoint whose state was built on a dropped one
first gets a base of its own. An event in the journal says which checkpoints were dropped; it also makes every open line read the run again,
so that none of them relies on chunks that only a dropped base needs. A broken-off drop may be repeated.
"""

from __future__ import annotations

from collections.abc import Iterable

from everstep.backends.contract.core import Backend
from everstep.backends.contract.types import Cut
from everstep.clock import clock, iso
from everstep.errors import Conflict, InvalidArgument, LeaseHeld, LostLease, RunDeleted
from everstep.records import Kind, Pruned, RunRow, labels_digest
from everstep.store.chain import Chain, Entry
from everstep.store.journal.attached import number_in
from everstep.store.journal.entries import EventEntry, pack
from everstep.store.progress import Pace
from everstep.store.refs import verified
from everstep.store.retention.apply_prune import Cutter
from everstep.store.retention.plan import RunPlan, needed, source_of
from everstep.store.retention.retention import Decision
from everstep.store.retention.run_survey import Survey, mark_of, proved, survey

_TRIES = 20


def drop(backend: Backend, row: RunRow, numbers: Iterable[int], user: str | None = None) -> int:
    """Drop checkpoints of a run; return how many. `user` is who asked for it."""
    going = _checked(row, numbers)
    if not going:
        return 0
    row = _noted(backend, row, going, user)
    for tries_left in range(_TRIES - 1, -1, -1):
        try:
            found = survey(backend, row)
            _refuse_pinned(found, going)
            Cutter(backend, found, _plan(found, going), Pace(None, None)).all()
            _drop_labels(backend, row, going)
            return len(going)
        except Conflict:
            if not tries_left:
                raise
            row = _newest(backend, row)
    raise AssertionError("unreachable")


def _checked(row: RunRow, numbers: Iterable[int]) -> set[int]:
    given = None if isinstance(numbers, (str, bytes)) or not isinstance(numbers, Iterable) else list(numbers)
    if given is None or not all(type(number) is int and 1 <= number <= row.checkpoints for number in given):
        raise InvalidArgument(
            f"numbers must be a list of checkpoints of run {row.id!r}, which are 1 to {row.checkpoints}, got {numbers!r:.100}"
        )
    if row.checkpoints in given:
        raise InvalidArgument(
            f"{row.id}@{row.checkpoints} is the newest checkpoint and cannot be dropped: the run continues from it",
            remedy="Save another checkpoint first, or delete the run: store.delete(run_id).",
        )
    return set(given)


def _refuse_pinned(found: Survey, going: set[int]) -> None:
    """Refuse checkpoints that the run itself needs. A fork has a copy of its first state, and needs none."""
    for number, reason in found.pinned.items():
        if number in going and not reason.startswith("fork "):
            raise InvalidArgument(f"{found.row.id}@{number} cannot be dropped: {reason}")


def _newest(backend: Backend, row: RunRow) -> RunRow:
    now = backend.run(row.id)
    if now is None or now.key != row.key:
        raise RunDeleted(row.id)
    return verified(now, backend.seal)


def _noted(backend: Backend, row: RunRow, going: set[int], user: str | None) -> RunRow:
    """Record what will be dropped; return the new row."""
    said = {"numbers": sorted(going), **({"user": user} if user else {})}
    entry = Entry("event", pack(EventEntry.of("dropped", said)), None)
    for tries_left in range(_TRIES - 1, -1, -1):
        holder = backend.holder(row)
        if holder is not None:
            raise LeaseHeld(row.id, holder.host, holder.pid, iso(row.since), iso(holder.expires_at))
        chain = Chain(backend.framer, row, row, backend.seal)
        chain.entries([entry])
        commit = chain.commit()
        try:
            backend.commit(commit)
        except (Conflict, LostLease):
            if not tries_left:
                raise
            row = _newest(backend, row)
            continue
        return commit.run
    raise AssertionError("unreachable")


def _plan(found: Survey, going: set[int]) -> RunPlan:
    """Plan that no dropped body stays: a kept checkpoint that would need one gets its own base."""
    sources = [source for source in found.sources if source not in going]
    kept = [point.number for point in found.points if point.number not in going]
    bases: list[int] = []
    for number in kept:
        first = source_of(sources, number)
        if any(max(1, first) <= gone <= number for gone in going):
            bases.append(number)
            sources = sorted((*sources, number))
    plan = RunPlan(found.row.id, bases=tuple(bases))
    plan.stay = set(needed(sources, kept, 0 if found.newest_base in going else found.newest_base))
    plan.decisions = [Decision(point.number, point.number not in going, "dropped", point.bytes) for point in found.points]
    return plan


def _drop_labels(backend: Backend, row: RunRow, going: set[int]) -> None:
    """Drop the labels of the checkpoints, and the bodies of the entries that are attached to them."""
    mark = mark_of(backend, row)
    assert mark is not None
    labels: list[tuple[int, bytes | None]] = []
    bodies: list[tuple[int, bytes]] = []
    for record in proved(backend, row):
        if record.kind == Kind.CHECKPOINT and record.number in going:
            digest = labels_digest(record.note, record.tags, record.meta, record.labels)
            labels.append((record.seq, digest or None))
        elif record.kind == Kind.ATTACHED and record.body is not None and number_in(record) in going:
            bodies.append((record.seq, record.body_digest))
    now = Pruned.make(row.key, mark.ranges, mark.freed, clock.now_us(), mark.numbers, backend.seal)
    backend.prune(Cut(row.id, mark, now, bodies=bodies, labels=labels))

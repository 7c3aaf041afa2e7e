"""Choose the checkpoints to drop so that at most `max_bytes` are stored: the oldest first, over all runs that the limit covers.

The weight of a checkpoint is the space that is free once it is dropped. It depends on the others: a delta is needed while a later
checkpoint builds on it, a chunk while any base of the family reaches it. So each body and each chunk gets the rank at which its last user
is dropped, and the weights are added up by rank. Bases that pruning adds are ignored: they only reduce what is kept. Reads only.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

from everstep.backends.contract.core import Backend
from everstep.fields import Shape, field
from everstep.records import Kind
from everstep.store.retention.plan import base_content, source_of
from everstep.store.retention.reachable import Reach, contents_of
from everstep.store.retention.retention import Decision, fewest
from everstep.store.retention.run_survey import Survey, proved


class Member(Shape):
    """One run that counts: its decisions, and whether the limit may drop more of it. `position`: that of its creation."""

    survey: Survey
    decisions: list[Decision]
    governed: bool
    position: int
    held: dict[int, set[bytes]]
    """The chunks that each base reaches; at 0, those that the journal reaches."""
    gone: dict[int, float] = field(default_factory=dict)
    """The rank at which each checkpoint is dropped: 0 for those that are dropped anyway, inf for those that are kept."""


def over_size_limit(backend: Backend, members: list[Member], other: int, limit: int) -> dict[bytes, set[int]]:
    """Return the checkpoints to drop, by the key of their run. `other`: bytes that count but cannot be dropped."""
    order = sorted((at, m.position, d.number, m) for m in members for at, d in _candidates(m))
    for m in members:
        m.gone = {d.number: inf if d.kept else 0 for d in m.decisions}
    for index, (_, _, number, m) in enumerate(order):
        m.gone[number] = index + 1
    weights: list[tuple[int | None, int]] = [(None, other)]
    weights += [(None if index == inf else int(index), size) for index, size in _weights(backend, members)]
    out: dict[bytes, set[int]] = {}
    for _, _, number, m in order[: fewest(weights, len(order), limit)]:
        out.setdefault(m.survey.row.key, set()).add(number)
    return out


def _candidates(member: Member) -> Iterator[tuple[int, Decision]]:
    """Yield candidates, with times made non-decreasing within each run: numbers give the order, not the clock."""
    latest = 0
    for point, decision in zip(member.survey.points, member.decisions, strict=True):
        latest = max(latest, point.at)
        if member.governed and decision.kept and not decision.firm:
            yield latest, decision


def held_by(backend: Backend, found: Survey, reach: Reach) -> dict[int, set[bytes]]:
    """Return the chunks that a run needs, by the base that needs them; at 0, those of its journal."""
    journal = [c for record in proved(backend, found.row) if record.kind != Kind.BASE for c in contents_of(record)]
    bases = {source: reach.of([base_content(backend, found, source)]) for source in found.sources}
    return {0: reach.of(journal), **bases}


def _weights(backend: Backend, members: list[Member]) -> Iterator[tuple[float, int]]:
    """Yield the rank at which bytes become free, and how many."""
    families: dict[bytes, dict[bytes, float]] = {}
    for m in members:
        free = _free(m)
        yield inf, m.survey.journal
        yield from ((free[number], size) for number, size in m.survey.sizes.items())
        needed = families.setdefault(m.survey.row.family, {})
        for source, digests in m.held.items():
            for digest in digests:
                needed[digest] = max(free[source], needed.get(digest, 0))
    for family, needed in families.items():
        stored, name = backend.chunk_sizes(family), backend.framer.of(family, family).chunk_name
        yield from ((index, stored.get(name(digest), 0)) for digest, index in needed.items())


def _free(member: Member) -> dict[int, float]:
    """Return the rank at which the bodies of each checkpoint become free: when all that depend on it are dropped. At 0: never."""
    found, out, last, before = member.survey, {0: inf}, 0.0, -1
    for number in sorted(found.sizes, reverse=True):
        source = source_of(found.sources, number)
        last = max(last if source == before else 0, member.gone.get(number, 0))
        out[number], before = last, source
    if found.newest_base:
        out[found.newest_base] = inf
    return out


def dropped_by_limit(decisions: list[Decision], numbers: set[int], limit: int) -> list[Decision]:
    """Apply the limit to the decisions; checkpoints that were tagged or forked since then are kept."""
    reason = f"max_bytes={limit:,}"
    return [Decision(d.number, False, reason, d.bytes) if d.number in numbers and not d.firm else d for d in decisions]

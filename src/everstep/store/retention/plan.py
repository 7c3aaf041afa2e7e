"""Plan for one run: the decisions, and the bodies that no kept checkpoint needs. Reads, never writes.

A load begins at a *source*, the newest base at or before a checkpoint, and needs every delta after it. So between two sources, all bodies
up to the newest kept checkpoint stay, and all after it are dropped. A checkpoint that is not kept cannot be loaded any more, even if its
bodies stay for another one. If the bodies that would stay for one kept checkpoint outweigh a base, it gets its own base. Before anything is
dropped, every base that stays is checked.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby

from everstep.backends.contract.core import Backend
from everstep.errors import DamagedRecord
from everstep.fields import Shape, field
from everstep.records import RunRow
from everstep.snapshot.base import build_base
from everstep.store.encryption.frames import content_of_base, fetch_of, frames_of
from everstep.store.load import load
from everstep.store.retention.reachable import Reach
from everstep.store.retention.retention import Decision
from everstep.store.retention.run_survey import Survey

WORTH = 4096  # fewer bytes than this are not worth a load and a new base
MOST_AT_ONCE = 4 * 1024 * 1024  # the chunks of a base are written in one transaction, which blocks writers


class RunPlan(Shape):
    """The checkpoints of a run to drop and to keep, each with its reason; `bases` are the checkpoints that get their own base.

    `freed` counts the bytes of dropped bodies, `added` those of new bases and their chunks. With a `problem` nothing is dropped.
    """

    run: str
    decisions: list[Decision] = field(default_factory=list)
    bases: tuple[int, ...] = ()
    freed: int = 0
    added: int = 0
    problem: str | None = None
    stay: set[int] = field(default_factory=set, repr=False, compare=False)
    """The checkpoints whose bodies are kept."""
    held: dict[int, set[bytes]] = field(default_factory=dict, repr=False, compare=False)
    """The chunks that each new base reaches."""

    @property
    def kept(self) -> list[int]:
        return [d.number for d in self.decisions if d.kept]

    @property
    def dropped(self) -> list[int]:
        return [d.number for d in self.decisions if not d.kept]

    def __str__(self) -> str:
        if self.problem is not None:
            return f"{self.run}: nothing dropped: {self.problem}"
        head = f"{self.run}: {len(self.dropped)} of {len(self.decisions)} checkpoints to drop, {self.freed:,} bytes"
        return "\n  ".join([head, *map(str, self.decisions)])


def family_reach(backend: Backend, family: bytes) -> Reach:
    return Reach(fetch_of(backend, family), backend.framer)


def make_plan(backend: Backend, survey: Survey, decisions: Sequence[Decision], reach: Reach) -> RunPlan:
    """Turn decisions into a plan. Raises `Damaged` if a base that stays is damaged."""
    plan = RunPlan(survey.row.id)
    kept = [d.number for d in decisions if d.kept]
    stay = needed(survey.sources, kept, survey.newest_base)
    if len(kept) < len(decisions) or any(number not in stay for number, size in survey.sizes.items() if size):
        held = {source: reach.of([base_content(backend, survey, source)]) for source in survey.sources if source in stay}
        for number, digests, size in _additions(backend, survey, kept, held):
            plan.held[number] = digests
            plan.added += size
        plan.bases = tuple(plan.held)
        stay = needed(sorted({*survey.sources, *plan.bases}), kept, survey.newest_base)
    plan.stay = set(stay)
    plan.decisions = [d if d.kept else _goes(d, stay.get(d.number)) for d in decisions]
    plan.freed = sum(size for number, size in survey.sizes.items() if number not in stay)
    return plan


def _goes(decision: Decision, needed_by: int | None) -> Decision:
    if needed_by is None:
        return decision
    return Decision(decision.number, False, f"{decision.reason}; its bytes are kept, because checkpoint {needed_by} depends on them", 0)


def source_of(sources: list[int], number: int) -> int:
    """Return the checkpoint at which a load begins; 0: before the first one."""
    index = bisect_right(sources, number)
    return sources[index - 1] if index else 0


def needed(sources: list[int], kept: list[int], newest_base: int) -> dict[int, int]:
    """Return the checkpoints whose bodies are kept, each with the newest checkpoint that needs them."""
    top = {source_of(sources, number): number for number in kept}  # in order: the last one counts
    out = {number: newest for source, newest in top.items() for number in range(max(1, source), newest + 1)}
    if newest_base:
        out.setdefault(newest_base, max(kept))
    return out


def base_content(backend: Backend, survey: Survey, source: int) -> bytes:
    """Return the content of the base that a load begins at."""
    for base in survey.bases:
        if base.number == source:
            return content_of_base(frames_of(backend, survey.row), base)
    known = next(b for b in survey.bodies if b.base and b.there and b.number == source)
    found = backend.records(survey.row.id, known.seq, known.seq)
    if not found or found[0].body is None or found[0].body_digest != known.digest:
        raise DamagedRecord(survey.row.id, known.seq, "it changed while it was being read")
    return found[0].opened_by(frames_of(backend, survey.row)).content()


def build(backend: Backend, row: RunRow, number: int) -> tuple[bytes, list[tuple[bytes, bytes]]]:
    """Build a base for a checkpoint: its content, and all its chunks. Objects stay as they are stored, without upgrades."""
    built = build_base(load(backend, row, number).value, backend.framer.inner.wrap)
    return built.root, list(built.chunks.items())


def _sizes_of_content(backend: Backend, row: RunRow) -> Callable[[bytes], int]:
    """Return a function from the digest of a chunk's content to its stored bytes, 0 if it is not stored."""
    sizes, name = backend.chunk_sizes(row.family), backend.framer.of(row.family, row.key).chunk_name
    return lambda digest: sizes.get(name(digest), 0)


def _additions(backend: Backend, survey: Survey, kept: list[int], held: Mapping[int, set[bytes]]) -> Iterator[tuple[int, set[bytes], int]]:
    """Yield the kept checkpoints for which a base of their own is smaller than the bodies that would otherwise be kept for them.

    Each comes with the chunks that it reaches, and the bytes that it adds to the store.
    """
    row, counts = survey.row, Counter(digest for digests in held.values() for digest in digests)
    stored = _sizes_of_content(backend, row)
    alone = row.family == row.key and not survey.labels.forks
    for source, group in groupby(kept, lambda number: source_of(survey.sources, number)):
        before = source - 1 if source else 0
        for number in group:
            first, before = before + 1, number
            if number == source or (row.worker is not None and number > survey.newest_base):
                continue  # it has a base, or the running program will write one soon
            instead = held[source] if first == source != survey.newest_base else set()  # chunks that only the source needs
            gain = sum(survey.sizes.get(n, 0) for n in range(first, number) if n != survey.newest_base)
            gain += sum(stored(d) for d in instead if counts[d] == 1) if alone else 0
            if gain <= WORTH:
                continue
            root, chunks = build(backend, row, number)
            more = backend.framer.overhead
            made = {d: len(frame) + more for d, frame in chunks}
            size = len(backend.framer.inner.wrap(root)) + more
            if sum(made.values()) > MOST_AT_ONCE or gain <= size + sum(n for d, n in made.items() if counts[d] <= (d in instead)):
                continue
            counts.update(made)
            counts.subtract(instead)
            yield number, set(made), size + sum(n for d, n in made.items() if not stored(d))

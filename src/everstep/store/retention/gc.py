"""Free the chunks that nothing refers to, family by family, while others write. Needs no lease and blocks no other process.

First, gc reads the number of the newest write and follows everything that can refer to a chunk. Then it removes the chunks that were not
reached and are not newer than that number. A commit made meanwhile either brings its chunks along, which makes them newer, or relies on
those of the newest base of its run, which was followed. A fork can be made only while its parent exists, so one that was made after the
runs were listed is found when they are listed again. If anything in a family is damaged, its references are unknown and nothing of that
family is freed; if a run itself is missing, nothing at all is freed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from everstep.backends.contract.core import Backend, Query
from everstep.errors import Damaged
from everstep.fields import Shape, field
from everstep.records import RunRow
from everstep.store.encryption.frames import content_of_base, fetch_of, frames_of
from everstep.store.progress import Pace, TimeOver
from everstep.store.read_ahead import ahead_of
from everstep.store.refs import verified
from everstep.store.retention.reachable import Reach, contents_of
from everstep.store.retention.run_survey import bases_of, gone, mark_of, proved, refuse_vanished
from everstep.store.retention.throttle import Slices

_AT_ONCE = 500
_PAGE = 4096


class Collected(Shape):
    """The result of gc; of a dry run, what it would free. `complete` is False if the time ran out."""

    families: int = 0
    chunks: int = 0
    """The number of freed chunks."""
    freed: int = 0
    """Their bytes."""
    kept: int = 0
    """The number of chunks that are referred to."""
    given_back: int = 0
    """Bytes returned to the system; of a dry run, an estimate."""
    problems: list[str] = field(default_factory=list)
    dry_run: bool = False
    complete: bool = True

    def __str__(self) -> str:
        what = f"{self.chunks} chunks of {self.families} families {'would be ' if self.dry_run else ''}freed, {self.freed:,} bytes"
        rest = (
            f"; about {self.given_back:,} bytes would be returned to the system"
            if self.dry_run
            else f"; {self.given_back:,} bytes returned to the system"
        )
        return "\n".join([f"{what}; {self.kept} chunks kept{rest}", *self.problems])


class Foreseen(Shape):
    """The outcome that a dry run assumes: deleted runs, and for pruned ones the checkpoints whose bodies are kept and the chunks that new
    bases reach.
    """

    deleted: set[bytes] = field(default_factory=set)
    stay: dict[bytes, set[int]] = field(default_factory=dict)
    held: dict[bytes, set[bytes]] = field(default_factory=dict)


class Collector:
    """One gc of a store."""

    def __init__(self, backend: Backend, pace: Pace, foreseen: Foreseen | None = None):
        self._ahead, self._backend = ahead_of(backend)
        self._pace = pace
        self._foreseen = foreseen or Foreseen()
        self._after = 0
        self._runs: dict[bytes, list[tuple[int, RunRow]]] = {}

    def collect(self, dry_run: bool) -> Collected:
        out = Collected(dry_run=dry_run)
        try:
            refuse_unproved(self._backend)
            families = self._backend.families()
            self._pace.total += len(families)
            self._list()
            for page, stamp in self._pages(families):
                for family in page:
                    self._family(family, stamp, out)
                    self._pace.on(1, "gc")
        except Damaged as error:
            out.problems.append(f"nothing was freed: {error.message}")
        except TimeOver:
            out.complete = False
        return out

    def _pages(self, families: Sequence[bytes]) -> Iterator[tuple[Sequence[bytes], int]]:
        """Yield pages of families whose runs are read ahead, with the number of the newest write before: newer chunks are never freed."""
        for first in range(0, len(families), _AT_ONCE):
            page = families[first : first + _AT_ONCE]
            stamp = self._backend.manifest().writes
            rows = [pair for family in page for pair in self._runs.get(family, ())]
            self._ahead.load(rows if len(rows) <= 2 * _AT_ONCE else ())
            yield page, stamp

    def _list(self) -> None:
        """List the runs that were created since the last call."""
        while True:
            rows = self._backend.runs(Query(oldest_first=True, after=self._after, limit=_AT_ONCE))
            for self._after, row in rows:
                self._runs.setdefault(verified(row, self._backend.seal).family, []).append((self._after, row))
            if len(rows) < _AT_ONCE:
                return

    def _family(self, family: bytes, stamp: int, out: Collected) -> None:
        if self._all_deleted(family):
            return  # its chunks are deleted with its last run
        out.families += 1
        stored = self._backend.chunk_sizes(family)
        try:
            reached = self._mark(family, stored)
        except Damaged as error:
            out.problems.append(f"family {family.hex()[:16]}: nothing was freed, because it is damaged: {error.message}")
            return
        loose = [digest for digest in stored if digest not in reached]
        out.kept += len(stored) - len(loose)
        if out.dry_run:
            out.chunks += len(loose)
            out.freed += sum(stored[digest] for digest in loose)
        else:
            self._sweep(family, loose, stored, stamp, out)

    def _all_deleted(self, family: bytes) -> bool:
        runs = self._runs.get(family, [])
        return bool(runs) and all(row.key in self._foreseen.deleted for _, row in runs)

    def _mark(self, family: bytes, stored: Collection[bytes]) -> set[bytes]:
        """Return the names of all chunks reached from any run of the family, including runs that were forked meanwhile."""
        reach = Reach(fetch_of(self._backend, family), self._backend.framer)
        name = self._backend.framer.of(family, family).chunk_name
        reached: set[bytes] = set()
        looked_at: set[bytes] = set()
        while True:
            if not reached.issuperset(stored):  # new runs matter only if something would be freed
                self._list()
            runs = [row for _, row in self._runs.get(family, []) if row.key not in looked_at]
            if not runs:
                return reached
            for row in runs:
                looked_at.add(row.key)
                if row.key not in self._foreseen.deleted:
                    reached |= {name(digest) for digest in self._run(row, reach)}
                    reached |= {name(digest) for digest in self._foreseen.held.get(row.key, ())}

    def _run(self, row: RunRow, reach: Reach) -> set[bytes]:
        """Return the chunks that one run reaches, up to its newest record; none if it was deleted. Tries again after a concurrent prune."""
        while True:
            now = self._backend.run(row.id)
            if now is None or now.key != row.key:
                return set()
            mark = self._backend.pruned(row.id)
            try:
                return reach.of(self._contents(verified(now, self._backend.seal)))
            except Damaged:
                if self._ahead.forget(row.id):
                    continue  # data that was read ahead may be from before a prune
                if not gone(self._backend, row) and self._backend.pruned(row.id) == mark:
                    raise

    def _contents(self, row: RunRow) -> Iterator[bytes]:
        stay = self._foreseen.stay.get(row.key)
        empty: list[tuple[int, str]] = []
        for record in proved(self._backend, row):
            if self._pace.over:
                raise TimeOver
            if record.body is None and record.kind == "attached":
                continue  # its checkpoint was dropped
            if record.body is None:
                empty.append((record.seq, record.kind))
            elif record.kind != "base" or stay is None or record.number in stay:
                yield from contents_of(record)
        refuse_vanished(row, empty, mark_of(self._backend, row))
        frames = frames_of(self._backend, row)
        yield from (content_of_base(frames, base) for base in bases_of(self._backend, row) if stay is None or base.number in stay)

    def _sweep(self, family: bytes, loose: Sequence[bytes], stored: dict[bytes, int], stamp: int, out: Collected) -> None:
        slices, at = Slices(64, 512), 0
        while at < len(loose):
            if self._pace.over:
                raise TimeOver
            part = loose[at : at + slices.size]
            freed = slices.do(lambda part=part: self._backend.sweep(family, part, stamp))  # type: ignore[misc]
            at += len(part)
            out.freed += freed
            # Chunks that were written again meanwhile are kept; count the removed ones only in that case.
            out.chunks += len(part) if freed == sum(stored[d] for d in part) else _count_gone(self._backend, family, part)


def _count_gone(backend: Backend, family: bytes, digests: Sequence[bytes]) -> int:
    return len(digests) - len(backend.chunks(family, digests))


def refuse_unproved(backend: Backend) -> None:
    """Raise unless the manifest adds up: missing runs may have referred to any chunk."""
    census = backend.census()
    if census.runs != census.found_runs or census.total != census.found_total or census.created != census.found_runs + census.tombstones:
        raise Damaged("the runs do not match the manifest", remedy="Run store.verify() to see what is wrong.")


def give_back(backend: Backend, pace: Pace) -> int:
    """Return free space to the system, in small steps; return the number of bytes."""
    slices, given = Slices(64, 1024), 0
    while not pace.over:
        part = slices.do(lambda: backend.shrink(slices.size * _PAGE))
        if not part:
            break
        given += part
    return given


def to_give_back(backend: Backend, freed: int) -> int:
    """Estimate the bytes that the system would get: space that is free already plus what would be freed. 0 if the engine does this by
    itself.
    """
    health = backend.health()
    pages, size = health.get("free_pages"), health.get("page_size")
    return max(0, pages * size + freed) if isinstance(pages, int) and isinstance(size, int) else 0

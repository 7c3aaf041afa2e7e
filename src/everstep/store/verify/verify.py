"""Verify a store, at one of three depths. Reports, never repairs; writes nothing but the result and its time.

quick      every run row, tag, message, prune mark, added base, tombstone and property against its digest, all of them against the
           manifest; every position of a run taken by the run or by its tombstone; every head present
records    also every record of every run against the chain; bodies missing exactly where the prune mark says; every run that waits in
           a queue has the right queue entry
full       also every body decoded, every delta applied, every chunk read, hashed and decoded once, each base compared with the state
           that the deltas give, every message opened; unreferenced chunks counted; then the listings, the feed and the engine's own check

Other processes may write, prune, sweep and delete meanwhile: `run_proof` describes how such a change is distinguished from damage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from everstep import clock as clocks
from everstep.backends.contract.core import Backend, Query
from everstep.errors import Damaged, EverstepError, InvalidArgument, StoreClosed
from everstep.records import RunRow, Status
from everstep.store import queue_entries
from everstep.store.progress import Pace, Progress, TimeOver
from everstep.store.read_ahead import ahead_of
from everstep.store.verify.report import Depth, Problem, Report
from everstep.store.verify.run_proof import RunProof

__all__ = ["Depth", "Problem", "Report", "verify"]
_AT_ONCE, _HEADS_AT_ONCE = 500, 2000
_OVER = (Status.SUCCEEDED, Status.CANCELLED)
_MOST_MISSES = 10_000  # positions to try one by one to find the next readable row


def verify(backend: Backend, depth: Depth = "quick", progress: Progress | None = None, seconds: Any = None) -> Report:
    if depth not in ("quick", "records", "full"):
        raise InvalidArgument(f"depth must be quick, records or full, got {depth!r}")
    pace = Pace(progress, seconds)
    report = Report(depth)
    ahead, backend = ahead_of(backend)
    proof = RunProof(backend, depth, pace, ahead=ahead)
    check = _Check(backend, report, pace, proof)
    try:
        check.all()
    except TimeOver:
        report.complete = False
        report.reached = check.reached()
    report.records = proof.records
    report.chunks += sum(chunks.count for chunks in proof.families.values())
    report.seconds = pace.seconds
    _remember(backend, report, pace)
    if report.complete:
        pace.end("all")
    return report


def _remember(backend: Backend, report: Report, pace: Pace) -> None:
    """Record the result if possible; it is returned in any case. A file that SQLite finds broken is not written, to avoid further damage."""
    try:
        if report.problems and (pace.over or backend.check() != []):
            report.not_recorded = "the store may be damaged, so it was not written"
        else:
            backend.set_property(f"verify.{report.depth}", report.to_json(clocks.clock.now_us()))
    except StoreClosed:
        raise
    except EverstepError as error:
        report.not_recorded = error.message


class _Check:
    def __init__(self, backend: Backend, report: Report, pace: Pace, proof: RunProof):
        self._backend = backend
        self._report = report
        self._pace = pace
        self._proof = proof
        self._runs_in_all = 0
        self._families: list[bytes] = []
        self._settled: set[bytes] = set()
        self._entries_checked: set[str] = set()

    def all(self) -> None:
        """Run the parts one after the other; damage that ends one part is reported, and the next one starts."""
        full = self._report.depth == "full"
        for part in (
            self._prepare,
            self._manifest,
            *((self._engine, self._list_families) if full else ()),
            self._tombstones,
            self._properties,
            self._runs,
        ):
            self._guard(part)
        if self._report.depth != "quick":
            self._guard(self._other_entries)
        if full:
            self._guard(self._unreachable)

    def _guard(self, part: Callable[[], object]) -> None:
        try:
            part()
        except StoreClosed:
            raise
        except EverstepError as error:
            self._add(error, "store")
            self._proof.certain = False

    def reached(self) -> str:
        """Say how far the check came."""
        runs = f"{self._report.runs} of {self._runs_in_all} runs"
        done, total = self._pace.done, max(self._pace.done, self._pace.total)
        return runs if self._report.depth == "quick" else f"{runs}, {done:,} of {total:,} bytes"

    def _add(self, error: EverstepError, where: str) -> None:
        self._report.add([Problem(error.code, where, error.message)])

    def _prepare(self) -> None:
        """Estimate the amount of work. Damage that prevents this is reported by the parts that follow."""
        with suppress(Damaged):
            self._runs_in_all = self._pace.total = self._backend.manifest().runs
            if self._report.depth != "quick" and self._pace.watched:
                stats = self._backend.stats()
                self._pace.total = stats["record_bytes"] + (stats["chunk_bytes"] if self._report.depth == "full" else 0)
        self._pace.on(0, "manifest")

    def _manifest(self) -> None:
        census = self._backend.census()
        if census.runs != census.found_runs:
            self._manifest_problem(f"it counts {census.runs} runs, but {census.found_runs} were found")
        elif census.total != census.found_total:
            self._manifest_problem("the runs, their side rows, the tombstones and the properties do not match it")
        if census.created != census.found_runs + census.tombstones:
            self._manifest_problem(
                f"{census.created} runs were created, but {census.found_runs} were found and {census.tombstones} have a tombstone"
            )

    def _manifest_problem(self, what: str) -> None:
        self._report.add([Problem("E500", "manifest", what)])

    def _engine(self) -> None:
        self._pace.on(0, "engine")
        found = self._backend.check(lambda: self._pace.over)
        if found is None:
            raise TimeOver
        self._report.add(Problem("E400", "engine", sentence) for sentence in found)

    def _properties(self) -> None:
        """Check the properties of the store: a retention changed by damage would prune the wrong checkpoints."""
        try:
            self._backend.properties("")
        except Damaged as error:
            self._add(error, "properties")

    def _list_families(self) -> None:
        """List families before any run is checked, so that chunks that a new run writes meanwhile do not count as unreachable."""
        self._families = self._backend.families()

    def _tombstones(self) -> None:
        after = 0
        while True:
            found = self._backend.tombstones(after, _AT_ONCE)
            for stone in found:
                if stone.digest(self._backend.seal) != stone.check:
                    self._report.add([Problem("E500", f"tombstone {stone.pk}", "it does not match its digest")])
            if len(found) < _AT_ONCE:
                return
            after = found[-1].pk
            self._pace.on(0, "tombstones")

    def _runs(self) -> None:
        for position, row in self._rows():
            self._report.runs += 1
            self._report.add(self._proof.problems(position, row))
            if self._report.depth != "quick" and row.status not in _OVER:
                self._queue_entry(row.id)
            if self._report.depth == "quick":
                self._pace.on(1, f"run {row.id}")
            elif self._report.depth == "full" and self._alone(row):
                self._settle(row.family)

    def _queue_entry(self, run: str) -> None:
        """Compare the queue entry of a run, which has no digest. Entries of damaged or busy runs cannot be compared and are skipped."""
        self._entries_checked.add(run)
        if self._backend.framer.locked:
            return  # the first record of the run says what the entry must be
        with suppress(Damaged):
            found = queue_entries.read_entry(self._backend, run)
            fault = None if found is None else found.fault()
            if fault is not None:
                self._report.add([Problem("E400", f"run {run}", f"{fault}; a worker corrects it when it starts")])

    def _other_entries(self) -> None:
        """Check the queue entries of runs that should have none."""
        for entry in self._backend.queue_entries():
            if entry.run not in self._entries_checked:
                self._queue_entry(entry.run)

    def _rows(self) -> Iterator[tuple[int, RunRow]]:
        """Yield every run, oldest first. An unreadable row is skipped, and the rows after it are still found."""
        most = _HEADS_AT_ONCE if self._report.depth == "quick" else _AT_ONCE
        after, limit, misses = 0, most, 0
        last = self._last_position()
        while True:
            try:
                rows = self._backend.runs(Query(oldest_first=True, after=after, limit=limit))
            except Damaged as error:
                if limit == 1:
                    self._add(error, "store")
                    self._proof.certain = False
                    after, misses = after + 1, misses + 1
                    if misses > _MOST_MISSES or after > last:
                        return
                limit = 1
                continue
            if self._proof.ahead is not None:
                self._proof.ahead.load(rows, heads=self._report.depth == "quick")
            yield from rows
            if len(rows) < limit:
                return
            after, limit = rows[-1][0], most

    def _last_position(self) -> int:
        """Return the position of the newest run, if known: there is nothing to find after it."""
        try:
            return self._backend.manifest().created
        except Damaged:
            return _MOST_MISSES

    def _unreachable(self) -> None:
        """Count the chunks left when all runs were checked. With damage the references are incomplete, so the count is 0."""
        for family in self._families:
            if family not in self._settled:
                self._settle(family)
        if not self._proof.certain:
            self._report.unreachable = self._report.unreachable_bytes = 0

    def _alone(self, row: RunRow) -> bool:
        """Whether no other run belongs to the same family, so that its chunk proofs can be dropped."""
        return row.family == row.key and not self._backend.runs(Query(parent=row.id, limit=1))

    def _settle(self, family: bytes) -> None:
        """Count the chunks that nothing refers to: not a fault, but they are checked against their digests like all others."""
        self._settled.add(family)
        chunks = self._proof.chunks(family)
        left = chunks.unreachable()
        if chunks.certain:
            self._report.unreachable += len(left)
            self._report.unreachable_bytes += sum(left.values())
        for error in chunks.prove_alone(left):
            self._report.add([Problem(error.code, f"chunks of family {family.hex()[:16]}", f"{error.message}; nothing refers to it")])
        self._report.chunks += chunks.count + len(left)
        del self._proof.families[family]

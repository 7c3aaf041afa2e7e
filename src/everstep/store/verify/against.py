"""Compare a store with signed heads: was it rolled back or replaced, and was any run changed, cut off, removed or made again?

Relies on `heads` for a file whose signature was verified, and on `verify` for the chains: the digest of a record proves those before it only
if the chain is intact. Walks the file and the runs side by side, both in the order of creation, so memory does not grow with the store.

    a run of the heads    is there         its record with that seq has that digest; later records are growth
                          was deleted      it has a tombstone that is not older than the head, or its position is listed as deleted
                          neither          a problem
    a run without a head  newer            created later
                          not newer        a problem: it did not exist then, or it was deleted, and is back

Others may write meanwhile: what looks wrong is read again. Writes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from everstep.backends.contract.core import Backend, Query
from everstep.backends.deleted_pks import block_of, name_of, unpack
from everstep.clock import iso
from everstep.errors import Damaged, NotAsSigned
from everstep.fields import Shape, field
from everstep.records import RunRow, Tombstone
from everstep.store.progress import Pace
from everstep.store.verify.heads import Head, HeadsFile, identities, origin_of
from everstep.store.verify.report import Problem

CODE = NotAsSigned.code
_AT_ONCE = 2_000
_NAMED = 1_000
_LOOKS = 3


class DeletedRun(Shape, frozen=True):
    """A run of the heads that was deleted since. `at` is None if its tombstone was dropped."""

    run: str
    at: str | None

    def __str__(self) -> str:
        return f"run {self.run}: deleted" + (f" at {self.at}" if self.at else "; its tombstone was dropped since")


class Compared(Shape):
    """A store compared with signed heads. The problems are also those of the report."""

    at: str
    """When the heads were written."""
    runs: int = 0
    """How many runs of the heads were compared."""
    unchanged: int = 0
    grown: int = 0
    created: int = 0
    """How many runs were created since."""
    deleted: list[DeletedRun] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    complete: bool = False
    _unnamed: int = 0

    def found(self, where: str, what: str) -> None:
        """Add a problem. Of very many, only the first ones are named."""
        if len(self.problems) < _NAMED:
            self.problems.append(Problem(CODE, where, what))
        else:
            self._unnamed += 1

    def close(self) -> None:
        if self._unnamed:
            self.problems.append(Problem(CODE, "store", f"{self._unnamed:,} more runs differ from the signed heads"))
            self._unnamed = 0

    def __str__(self) -> str:
        same = f"{self.unchanged:,} unchanged, {self.grown:,} grown, {len(self.deleted):,} deleted, {self.created:,} created since"
        return f"compared with heads of {self.at}: {self.runs:,} runs: {same}"


def compare(backend: Backend, file: HeadsFile, pace: Pace, into: Compared) -> None:
    """Compare a store with signed heads. Raises `UntrustedHeads` if the file changes meanwhile, `TimeOver` if the time is over."""
    header = file.header
    if header.store not in identities(backend):
        into.found(
            "store", f"it does not have the identity {header.store:.32} of the signed heads: it was replaced, it is older than the first heads, or the heads are of another store",
        )  # fmt: skip
        into.complete = True
        return
    manifest = backend.manifest()
    if manifest.created < header.created or manifest.writes < header.writes:
        into.found(
            "store",
            f"it is older than the signed heads: it was written {manifest.writes:,} times and {manifest.created:,} runs were created, "
            f"and when the heads were written, {header.writes:,} times and {header.created:,} runs",
        )
    _Walk(backend, file, pace, into).all()
    into.close()
    into.complete = True


class _Walk:
    def __init__(self, backend: Backend, file: HeadsFile, pace: Pace, into: Compared):
        self._backend, self._file, self._pace, self._into = backend, file, pace, into
        self._block = -1
        self._forgotten: list[range] = []

    def all(self) -> None:
        rows = self._rows()
        row = next(rows, None)
        for head in self._file.heads():
            while row is not None and row[0] < head.position:
                self._without_head(*row)
                row = next(rows, None)
            if row is not None and row[0] == head.position:
                self._compare(head, row[1])
                row = next(rows, None)
            else:
                self._missing(head)
            self._into.runs += 1
            self._pace.on(0, f"head of {head.run}")
        while row is not None:
            self._without_head(*row)
            row = next(rows, None)

    def _rows(self) -> Iterator[tuple[int, RunRow]]:
        after = 0
        while True:
            rows = self._backend.runs(Query(oldest_first=True, after=after, limit=_AT_ONCE))
            yield from rows
            if len(rows) < _AT_ONCE:
                return
            after = rows[-1][0]

    def _without_head(self, position: int, row: RunRow) -> None:
        if position > self._file.header.created:
            self._into.created += 1
        elif self._backend.run(row.id) is not None:
            self._into.found(f"run {row.id}", "it did not exist when the heads were signed, or was deleted by then, and is there now")

    def _compare(self, head: Head, row: RunRow) -> None:
        fault: str | None = None
        for _ in range(_LOOKS):
            fault = self._fault(head, row)
            if fault is None:
                if row.head_seq == head.seq:
                    self._into.unchanged += 1
                else:
                    self._into.grown += 1
                return
            again = self._backend.run(row.id)  # it may have been deleted meanwhile, or have grown
            if again is None:
                self._missing(head)
                return
            row = again
        self._into.found(f"run {head.run}", fault or "")

    def _fault(self, head: Head, row: RunRow) -> str | None:
        if row.key != head.key:
            return f"it was made again: run {row.id!r} in its position has another key"
        if row.id != head.run:
            return f"its id is {row.id!r} now"
        if row.head_seq < head.seq:
            return f"it was cut off or rolled back: it ends at record {row.head_seq}, and ended at record {head.seq} when the heads were signed"
        digest = row.head_digest if row.head_seq == head.seq else self._backend.digests(row.id, [head.seq]).get(head.seq)
        if digest != head.digest:
            return f"its history was changed: record {head.seq} is not the one of the signed heads"
        if origin_of(row) != head.origin:
            return "its workflow, session, parent or time of creation was changed"
        return None

    def _missing(self, head: Head) -> None:
        """Tell a deleted run from one that vanished."""
        stones = self._backend.tombstones(head.position - 1, 1)
        if stones and stones[0].pk == head.position:
            fault = self._unlike(stones[0], head)
            if fault is None:
                self._into.deleted.append(DeletedRun(head.run, iso(stones[0].at)))
            else:
                self._into.found(f"run {head.run}", fault)
        elif self._is_forgotten(head.position):
            self._into.deleted.append(DeletedRun(head.run, None))
        else:
            self._into.found(f"run {head.run}", "it is gone, and there is no tombstone: it was not deleted by Everstep")

    def _unlike(self, stone: Tombstone, head: Head) -> str | None:
        if stone.digest(self._backend.seal) != stone.check:
            return "it is gone, and its tombstone does not match its digest"
        if not stone.id:
            return "it is gone: a repair could not recover it"
        if stone.key != head.key or stone.head_seq < head.seq or (stone.head_seq == head.seq and stone.head_digest != head.digest):
            return "it is gone, and its tombstone is of another history: the run was cut off, changed or made again before it was deleted"
        return None

    def _is_forgotten(self, position: int) -> bool:
        """Return whether a position is listed as that of a deleted run whose tombstone was dropped."""
        block = block_of(position)
        if block != self._block:
            try:
                self._forgotten = unpack(self._backend.get_property(name_of(block)))
            except ValueError as error:
                raise Damaged(f"the property {name_of(block)!r} does not list positions") from error
            self._block = block
        return any(position in part for part in self._forgotten)

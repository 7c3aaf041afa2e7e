"""Check one run: its row, its side rows, its chain, and at full depth every body and everything that it refers to.

Other processes may write, prune, sweep and delete meanwhile. Only pruning changes records, so a run that looks wrong is checked again until
no process has pruned it in between. It is not a problem if the run has a tombstone by then. Reads only; reports, never repairs.
"""

from __future__ import annotations

from collections.abc import Iterator

from everstep.backends.contract.core import Backend
from everstep.codec.values import Decoder
from everstep.errors import Damaged, EverstepError, MissingKey, StoreClosed
from everstep.fields import Shape, field
from everstep.records import ZERO, Kind, Pruned, Record, RunRow, Seal, record_fault
from everstep.snapshot.saver import NO_DELTA
from everstep.store.encryption.frames import content_of_base, frames_of
from everstep.store.journal.attached import number_in
from everstep.store.journal.values import contents
from everstep.store.no_collection import no_collection
from everstep.store.progress import Pace
from everstep.store.read_ahead import Ahead
from everstep.store.verify.chunks import Allowance, Chunks, Recent
from everstep.store.verify.replayed_state import Mirror
from everstep.store.verify.report import Depth, Problem
from everstep.store.verify.side_rows import Beside

_AT_ONCE = 500
_LOOKS = 5
_SHORT = 64  # a frame that says "no delta" is shorter than this, whatever its codec
_CHECKPOINT, _BASE = Kind.CHECKPOINT.value, Kind.BASE.value


class RunProof(Shape):
    """Checks one run after the other; remembers what it has proved about the chunks of their families."""

    backend: Backend
    depth: Depth
    pace: Pace
    ahead: Ahead | None = None
    """The same backend, if it reads ahead."""
    records: int = 0
    families: dict[bytes, Chunks] = field(default_factory=dict)
    """Families that are being checked; the caller removes a family when it is done with it."""
    certain: bool = True
    """Whether no damage was met that could hide further references."""
    _allowance: Allowance = field(default_factory=Allowance)
    _recent: Recent = field(default_factory=Recent)

    def problems(self, pk: int, row: RunRow) -> list[Problem]:
        """Return the confirmed problems of a run."""
        counted = self.records
        always: list[Problem] | None = None
        seen: list[Problem] = []
        beside: Beside | None = None
        for look in range(_LOOKS):
            self.records = counted
            beside, seen = self._try(row, again=look > 0)
            if not seen or self._deleted(pk):
                return []
            always = seen if always is None else [problem for problem in always if problem in seen]
            if look and beside is not None and beside.pruning() == Beside.of(self.backend, row.id).pruning():
                always = seen  # no process pruned it meanwhile: all of these are real
                break
        self.certain = False
        # Problems whose words differ from look to look are real, too, if the rows that tell of pruning could not even be read.
        return always or (seen if beside is None else [])

    def _try(self, row: RunRow, again: bool) -> tuple[Beside | None, list[Problem]]:
        """Check once. The row is read after the side rows, which may be about its newest checkpoint, and after the chunks were listed,
        which may include its newest; only a first check at a lower depth uses the row as it was.
        """
        beside = None
        if again and self.ahead is not None:
            self.ahead.forget(row.id)
        try:
            beside = Beside.of(self.backend, row.id)
            if self.depth == "full":
                self.chunks(row.family)
            now = self.backend.run(row.id) if again or self.depth == "full" else row
            return beside, list(dict.fromkeys(self._look(now, beside) if now is not None else _vanished(row)))
        except StoreClosed:
            raise
        except EverstepError as error:
            return beside, [Problem(error.code, f"run {row.id}", error.message)]

    def _deleted(self, pk: int) -> bool:
        return any(tombstone.pk == pk for tombstone in self.backend.tombstones(pk - 1, 1))

    def _look(self, row: RunRow, beside: Beside) -> Iterator[Problem]:
        if row.digest(self.backend.seal) != row.check:
            yield Problem("E503", f"run {row.id}", "its row does not match its digest")
            return
        yield from beside.problems(row, opening=self.depth == "full", backend=self.backend)
        if self.depth == "quick":
            yield from self._head(row)
        else:
            yield from self._chain(row, beside)

    def _head(self, row: RunRow) -> Iterator[Problem]:
        found = self.backend.records(row.id, row.head_seq, row.head_seq + 1)
        if not any(r.seq == row.head_seq and r.digest == row.head_digest for r in found) and row.head_seq:
            yield Problem("E504", f"run {row.id}", "its newest record is not the one named in its row")
        if any(r.seq > row.head_seq for r in found):
            yield from self._beyond(row)

    def _beyond(self, row: RunRow) -> Iterator[Problem]:
        """Tell whether a record after the head is newer than the row that was read, or is there without one."""
        now = self.backend.run(row.id)
        if now is not None and now.head_seq <= row.head_seq:
            yield Problem("E504", f"run {row.id}", "it has records after the one named as newest in its row")

    def _chain(self, row: RunRow, beside: Beside) -> Iterator[Problem]:
        before, seq, number = ZERO, 0, 0
        mark, loadable = beside.mark, _Loadable(beside)
        frames = frames_of(self.backend, row)
        bodies = _Bodies(self.chunks(row.family), beside) if self.depth == "full" else None
        while seq < row.head_seq:
            start = seq
            batch = self.backend.records(row.id, seq + 1, min(seq + _AT_ONCE, row.head_seq))
            if not batch:
                yield Problem("E504", f"run {row.id}", f"records {seq + 1} to {row.head_seq} are missing")
                return
            with no_collection():
                for record in batch:
                    number += record.kind == _CHECKPOINT
                    record.opener = frames
                    fault = _fault(record, before, seq, number, row.key, self.backend.seal) or _unlike_mark(record, mark)
                    if fault is not None:
                        yield Problem("E501", f"run {row.id}, record {record.seq}", fault)
                        if bodies is not None:
                            bodies.lost()
                    elif bodies is not None and (found := bodies.problems(record)):
                        yield from found
                    if (fault := loadable.take(record)) is not None:
                        yield Problem("E501", f"run {row.id}", fault)
                    before, seq = record.digest, record.seq
            self.records += len(batch)
            self._gone_on(row, batch)
            if seq <= start:
                yield Problem("E501", f"run {row.id}", f"its records repeat after record {start}")
                return
        if before != row.head_digest or number != row.checkpoints:
            yield Problem("E504", f"run {row.id}", "its records do not end where its row says")
        elif fault := loadable.end():
            yield Problem("E501", f"run {row.id}", fault)
        if self.backend.records(row.id, row.head_seq + 1, row.head_seq + 1):
            yield from self._beyond(row)

    def _gone_on(self, row: RunRow, batch: list[Record]) -> None:
        size = sum(len(record.body) for record in batch if record.body is not None)
        self._allowance.earn(size)
        self.pace.on(size, f"run {row.id}")

    def chunks(self, family: bytes) -> Chunks:
        if family not in self.families:
            self.families[family] = Chunks(self.backend, family, self.pace, self._allowance, self._recent)
        return self.families[family]


class _Bodies:
    """The bodies of one run, in the order of its records."""

    def __init__(self, chunks: Chunks, beside: Beside):
        self._chunks = chunks
        self._added = {base.number: base for base in beside.bases}
        self._mirror = Mirror(chunks)
        self._decoder = Decoder()

    def lost(self) -> None:
        """Note that a record was skipped: the state is unknown from here on."""
        self._mirror.lost()

    def problems(self, record: Record) -> list[Problem] | None:
        try:
            faults = self._look(record)
        except StoreClosed:
            raise
        except EverstepError as error:
            self._mirror.lost()
            faults = [(error.code, error.message)]
        return [Problem(code, f"run {record.run}, record {record.seq}", what) for code, what in faults] if faults else None

    def _look(self, record: Record) -> list[tuple[str, str]]:
        kind = record.kind
        if kind == _CHECKPOINT:
            if record.body is None:
                self._mirror.lost()
            else:
                self._mirror.delta(record.content())
            added = self._added.get(record.number)
            return (
                [] if added is None else self._base(content_of_base(record.opener, added), f"the added base for checkpoint {record.number}")
            )
        if kind == _BASE:
            return [] if record.body is None else self._base(record.content(), f"the base for checkpoint {record.number}")
        if kind == Kind.ATTACHED and record.body is None:
            return []
        values, roots = contents(record)
        for value in values:
            self._decoder.decode(value)
        return [(fault.code, f"its content: {fault.message}") for root in roots for fault in self._chunks.prove(root)]

    def _base(self, content: bytes, name: str) -> list[tuple[str, str]]:
        faults = self._chunks.prove(content)
        if faults:
            self._mirror.lost()
            return [(fault.code, f"{name}: {fault.message}") for fault in faults]
        return [] if self._mirror.base(content) else [("E500", f"{name} differs from the state that the deltas give")]


def _vanished(row: RunRow) -> Iterator[Problem]:
    yield Problem("E503", f"run {row.id}", "it is listed but cannot be found by its id")


def _fault(record: Record, before: bytes, seq: int, number: int, key: bytes, seal: Seal) -> str | None:
    if record.seq != seq + 1:
        return f"records {seq + 1} to {record.seq - 1} before it are missing"
    if record.number != number:
        return f"it counts {record.number} checkpoints, there are {number}"
    return record_fault(before, record, key, seal)


def _unlike_mark(record: Record, mark: Pruned | None) -> str | None:
    """Compare a record with the prune mark: a body must be missing exactly where the mark says so, and never in the journal."""
    if record.kind == Kind.ATTACHED:
        dropped = record.body is None and not (mark is not None and not mark.has_state(number_in(record)))
        return "its body is missing although its checkpoint was not dropped" if dropped else None
    pruned = mark is not None and not mark.has_body(record.seq) and record.kind in (_CHECKPOINT, _BASE)
    if record.body is None and not pruned:
        return "its body is missing although it was not pruned"
    if record.body is not None and pruned:
        return "its body is present although it was pruned"
    return None


class _Loadable:
    """Whether each checkpoint either has what a load needs (a base and all deltas after it) or was pruned."""

    def __init__(self, beside: Beside):
        self._mark = beside.mark
        self._added = {base.number for base in beside.bases}
        self._number = 0
        self._can = True  # before checkpoint 1 there is nothing to load

    def take(self, record: Record) -> str | None:
        """Take the next record; return a fault if the checkpoint before it cannot be loaded."""
        if record.kind == _BASE and record.body is not None:
            self._can = True
        if record.kind != _CHECKPOINT:
            return None
        fault = self.end()
        self._can = record.number in self._added or (self._can and record.body is not None and not _says_nothing(record))
        self._number = record.number
        return fault

    def end(self) -> str | None:
        """Return a fault if the newest checkpoint cannot be loaded."""
        if self._can or (self._mark is not None and not self._mark.has_state(self._number)):
            return None
        return f"checkpoint {self._number} cannot be loaded although it was not pruned"


def _says_nothing(record: Record) -> bool:
    """Whether a checkpoint has no delta because a base follows it."""
    try:
        return record.body is not None and len(record.body) < _SHORT and record.content() == NO_DELTA
    except (Damaged, MissingKey):
        return False

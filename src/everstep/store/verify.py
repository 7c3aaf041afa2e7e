"""Proves a store whole, in three depths. Reads only; reports, never repairs.

quick      every run row, tag and letter against its digest, all of them against the manifest, every head present
records    also every record of every run against the chain
full       also every delta applied and every base with all its chunks decoded, each base equal to what the deltas say, every
           letter opened, and the engine's own check

Others may write meanwhile: what looks wrong is looked at again before it is reported.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

from everstep.backends.base import Backend, Manifest, Query
from everstep.codec.frame import unwrap
from everstep.codec.values import Decoder, encode
from everstep.errors import Damaged, EverstepError, InvalidArgument, StoreClosed
from everstep.records import ZERO, Kind, Record, RunRow, record_fault, shift
from everstep.snapshot.delta import apply
from everstep.snapshot.saver import NO_DELTA
from everstep.snapshot.tree import Loader

Depth = Literal["quick", "records", "full"]
_AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong, and where."""

    code: str
    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what} [{self.code}]"


@dataclass(slots=True)
class Report:
    """What was looked at and what is wrong with it."""

    depth: Depth
    problems: list[Problem] = field(default_factory=list)
    runs: int = 0
    records: int = 0
    chunks: int = 0

    @property
    def ok(self) -> bool:
        return not self.problems

    def __str__(self) -> str:
        head = f"verify {self.depth}: {self.runs} runs, {self.records} records, {self.chunks} chunks: "
        return head + ("all good" if self.ok else "\n".join([f"{len(self.problems)} problems", *map(str, self.problems)]))


def verify(backend: Backend, depth: Depth) -> Report:
    if depth not in ("quick", "records", "full"):
        raise InvalidArgument(f"{depth!r} is no depth", remedy="Use quick, records or full.")
    report = Report(depth)
    _Check(backend, report).all()
    return report


class _Check:
    def __init__(self, backend: Backend, report: Report):
        self._backend = backend
        self._report = report
        self._reached: dict[bytes, set[bytes]] = {}
        self._value: object = None  # the state up to the record that is looked at, while it is known
        self._known = True

    def all(self) -> None:
        try:
            self._runs()
        except StoreClosed:
            raise
        except EverstepError as error:
            self._add(error, "store")
        if self._report.depth == "full":
            self._report.problems.extend(Problem("E400", "engine", sentence) for sentence in self._backend.check())

    def _add(self, error: EverstepError, where: str) -> None:
        self._report.problems.append(Problem(error.code, where, error.message))

    def _guard(self, where: str, look: Callable[[], object]) -> None:
        try:
            look()
        except EverstepError as error:
            self._add(error, where)

    def _runs(self) -> None:
        before = self._backend.manifest()
        total, after = ZERO, None
        while True:
            rows = self._backend.runs(Query(oldest_first=True, after=after, limit=_AT_ONCE))
            for after, row in rows:  # noqa: B007 -- the last one is the cursor
                total = shift(total, (), [row.check])
                total = shift(total, (), self._tags(row))
                total = shift(total, (), self._letters(row))
                self._report.runs += 1
                self._guard(f"run {row.id}", lambda row=row: self._run(row))  # type: ignore[misc]
            if len(rows) < _AT_ONCE:
                break
        manifest = self._backend.manifest()
        if manifest != before:  # somebody wrote: compare in a quick pass, while nobody does
            manifest, total, self._report.runs = self._quiet_pass(manifest, total)
        if manifest.runs != self._report.runs:
            self._report.problems.append(Problem("E500", "manifest", f"it counts {manifest.runs} runs, {self._report.runs} are there"))
        elif manifest.total != total:
            self._report.problems.append(Problem("E500", "manifest", "the runs, tags and letters are not those that it was made of"))

    def _quiet_pass(self, manifest: Manifest, total: bytes) -> tuple[Manifest, bytes, int]:
        """The manifest, and what it should be, at a moment when both are still; if there is none, it is taken as it is."""
        for _ in range(20):
            before = self._backend.manifest()
            rows = [row for _, row in self._backend.runs(Query(oldest_first=True))]
            tags = [tag.check for row in rows for tag in self._backend.tags(row.id)]
            letters = [letter.check for row in rows for letter in self._backend.letters(row.id)]
            if self._backend.manifest() == before:
                return before, shift(ZERO, (), [*(row.check for row in rows), *tags, *letters]), len(rows)
        return manifest, manifest.total, manifest.runs

    def _tags(self, row: RunRow) -> list[bytes]:
        tags = self._backend.tags(row.id)
        newest = self._backend.run(row.id) or row
        row = newest if newest.key == row.key else row
        for tag in tags:
            if tag.digest() != tag.check or tag.key != row.key or not 1 <= tag.number <= row.checkpoints:
                self._report.problems.append(Problem("E501", f"run {row.id}", f"tag {tag.name!r} does not match its digest"))
        return [tag.check for tag in tags]

    def _letters(self, row: RunRow) -> list[bytes]:
        letters = self._backend.letters(row.id)
        now = self._backend.run(row.id)
        same = now is None or now.key == row.key  # else the run was replaced meanwhile, and these are letters to its successor
        for letter in letters:
            where = f"run {row.id}, letter {letter.name}"
            if letter.digest() != letter.check or (same and letter.key != row.key):
                self._report.problems.append(Problem("E501", where, "it does not match its digest"))
            elif self._report.depth == "full":
                self._guard(where, partial(unwrap, letter.body))
        return [letter.check for letter in letters]

    def _run(self, row: RunRow) -> None:
        """Look at one run, and again if it moved on meanwhile and something looked wrong."""
        for _ in range(5):
            known = len(self._report.problems)
            self._look(row)
            now = self._backend.run(row.id)
            if len(self._report.problems) == known or (now is not None and now.check == row.check):
                return
            del self._report.problems[known:]
            if now is None:
                return  # it was deleted
            row = now

    def _look(self, row: RunRow) -> None:
        if row.digest() != row.check:
            self._report.problems.append(Problem("E503", f"run {row.id}", "its row does not match its digest"))
        elif self._report.depth == "quick":
            self._head(row)
        else:
            self._records(row)

    def _head(self, row: RunRow) -> None:
        found = self._backend.records(row.id, row.head_seq, row.head_seq + 1)
        if [r.seq for r in found] != [row.head_seq] or found[0].digest != row.head_digest:
            self._report.problems.append(Problem("E504", f"run {row.id}", "its newest record is not the one that the row names"))

    def _records(self, row: RunRow) -> None:
        before, seq, number = ZERO, 0, 0
        self._value, self._known = None, True
        while seq < row.head_seq:
            batch = self._backend.records(row.id, seq + 1, min(seq + _AT_ONCE, row.head_seq))
            if not batch:
                self._report.problems.append(Problem("E504", f"run {row.id}", f"records {seq + 1} to {row.head_seq} are gone"))
                return
            for record in batch:
                number += record.kind == Kind.CHECKPOINT
                fault = self._fault(record, before, seq, number)
                if fault:
                    self._report.problems.append(Problem("E501", f"run {row.id}, record {record.seq}", fault))
                self._report.records += 1
                before, seq = record.digest, record.seq
                if self._report.depth == "full" and not fault:
                    self._guard(f"run {row.id}, record {seq}", lambda r=record: self._body(row, r))  # type: ignore[misc]
        if before != row.head_digest or number != row.checkpoints or self._backend.records(row.id, row.head_seq + 1, row.head_seq + 1):
            self._report.problems.append(Problem("E504", f"run {row.id}", "its records do not end where the row says"))

    def _fault(self, record: Record, before: bytes, seq: int, number: int) -> str | None:
        if record.seq != seq + 1:
            return f"records {seq + 1} to {record.seq - 1} before it are gone"
        if record.number != number:
            return f"it counts {record.number} checkpoints where there are {number}"
        return record_fault(before, record)

    def _body(self, row: RunRow, record: Record) -> None:
        if record.body is None:
            self._known = False
            return
        content = unwrap(record.body)
        if record.kind == Kind.CHECKPOINT:
            self._known = self._known and content != NO_DELTA
            ops = Decoder().decode(content)
            if self._known:
                self._value = apply(self._value, ops)
        elif record.kind == Kind.BASE:
            seen = self._reached.setdefault(row.family, set())
            loader = Loader(lambda digests: self._fetch(row.family, digests, seen), unwrap)
            try:
                value = loader.load(content)
            except Damaged as error:
                raise Damaged(f"the base for checkpoint {record.number}: {error.message}") from error
            if self._known and encode(value) != encode(self._value):
                raise Damaged(f"the base for checkpoint {record.number} is not what the deltas before it say")
            self._value, self._known = value, True

    def _fetch(self, family: bytes, digests: object, seen: set[bytes]) -> dict[bytes, bytes]:
        frames = self._backend.chunks(family, digests)  # type: ignore[arg-type]
        self._report.chunks += len(set(frames) - seen)
        seen.update(frames)
        return frames

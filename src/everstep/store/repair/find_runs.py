"""Find one run in a damaged store: its row or a substitute, its records, and everything that belongs to it. Relies on a damaged store.

Only data that its digest proves is used. Data older than the current store counts only for a run that the current store still knows:
otherwise a deleted run would come back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from hashlib import sha256
from typing import TypeVar

from everstep.backends.contract.recovery import DamagedStore, Feed
from everstep.errors import Damaged
from everstep.fields import Shape, field, replace
from everstep.records import ZERO, Base, Frames, Message, Pruned, Record, RunRow, Status, Tag
from everstep.store.journal.entries import said_in
from everstep.store.repair.bit_flips import Checked, Healer
from everstep.store.repair.chain_evidence import prove
from everstep.store.repair.reassemble import RecoveredRun
from everstep.store.repair.report import Loss

_LEASES = 1000
_MOST_LOST, _MOST_TIMES = 10_000, 1000  # reject a run that claims more records than 10,000 plus 1000 times those found


T = TypeVar("T", bound=Checked)


class Beside(Shape):
    """The side rows of a run, proved except for which run they belong to."""

    tags: list[Tag]
    messages: list[Message]
    marks: list[Pruned]
    bases: list[Base]

    def of(self, key: bytes) -> Beside:
        """Select the side rows of the run with this key."""
        tags, messages = [tag for tag in self.tags if tag.key == key], [message for message in self.messages if message.key == key]
        return Beside(tags, messages, [mark for mark in self.marks if mark.key == key], [base for base in self.bases if base.key == key])

    def all(self) -> list[Checked]:
        return [*self.tags, *self.messages, *self.marks, *self.bases]


class Found(Shape):
    """A run, and what the manifest counted of it."""

    recovered: RecoveredRun
    row: RunRow | None
    """The row, if it is proved to be the newest."""
    beside: Beside

    def checks(self) -> list[bytes]:
        """Return what this run adds to the manifest, except its tags."""
        rows = [self.row.check] if self.row is not None else []
        return rows + [thing.check for thing in replace(self.beside, tags=[]).all()]


class Finder(Shape):
    """Finds runs. `deep`: also search beyond what the engine finds."""

    source: DamagedStore
    feed: Feed
    deep: bool
    healer: Healer
    families: Sequence[bytes] = ()
    """The families that have a stored key; none in a store that is not encrypted."""
    _frames: dict[bytes, bytes | None] = field(default_factory=dict)
    """The corrected frames of damaged chunks."""

    def find(self, pk: int) -> Found | None:
        """Find the run at a position; None if there is none, or if nothing of it can be proved."""
        row, sure = self._row(pk)
        if row is None and not (self.deep and self.source.alive(pk)):
            return None
        beside = self._beside(pk)
        if row is not None:
            return self._gathered(pk, row.id, row, sure, beside)
        for name in self.source.names(pk):
            found = self._gathered(pk, name, None, False, beside)
            if found is not None:  # its first record proves its id; the name of a damaged row proves nothing
                told = found.recovered.row.id
                return found if told == name else self._gathered(pk, told, None, False, beside)
        return None

    def _row(self, pk: int) -> tuple[RunRow | None, bool]:
        """Return the newest row that its digest proves, and whether it is the current one of the store."""
        found = self.source.rows(pk, self.deep)
        rows = [(row, live) for row, live in found if row.digest(self.healer.seal) == row.check]
        if not any(live for _, live in rows):
            damaged = {row.check: row for row, live in found if live}
            healed = (self.healer.row(row) for row in damaged.values())
            rows += [(row, True) for row in healed if row is not None]
        rows.sort(key=lambda pair: not pair[1])
        if not rows or not (rows[0][1] or self.source.alive(pk)):
            return None, False
        return rows[0]

    def _beside(self, pk: int) -> Beside:
        source, deep = self.source, self.deep
        return Beside(
            self._proven(source.tags(pk, deep), lambda tag: (tag.name, tag.number)),
            self._proven(source.messages(pk, deep), lambda message: message.name),
            self._proven(source.pruned(pk, deep), lambda _: 0),
            self._proven(source.bases(pk, deep), lambda base: base.number),
        )

    def _proven(self, things: Iterable[T], name: Callable[[T], object]) -> list[T]:
        """Return the rows that match their digests, one of each name."""
        found: dict[object, T] = {}
        for thing in things:
            good = thing if thing.digest(self.healer.seal) == thing.check else self.healer.row(thing)
            if good is not None:
                found.setdefault(name(good), good)
        return list(found.values())

    def _gathered(self, pk: int, run: str, row: RunRow | None, live: bool, beside: Beside) -> Found | None:
        heads = {row.head_seq: row.head_digest} if row is not None and row.head_seq else {}
        end = self.feed.ends.get(pk, 0)
        candidates = self.source.records(pk, run, self.deep)
        key, records = self._proved(candidates, heads, row, beside)
        last = max([*heads, end, *records], default=0)
        if len(records) < last and not self.deep:
            candidates = self.source.records(pk, run, True)
            key, records = self._proved(candidates, heads, row, beside)
            last = max([*heads, end, *records], default=0)
        if not last or (row is None and 1 not in records) or last > _MOST_LOST + _MOST_TIMES * len(records):
            return None
        sure = live and row is not None and last == row.head_seq
        made = row if row is not None and sure else _newer_row(row, run, key, records)
        counted = row.checkpoints if row is not None and last == row.head_seq else records[last].number if last in records else None
        beside = beside.of(made.key)
        hints = {seq: options[0].kind for seq, options in candidates.items() if seq not in records}
        recovered = RecoveredRun(
            made, sure, last, counted, sure or end == last, records, hints, list(beside.tags), list(beside.messages),
            beside.marks[0] if beside.marks else None, list(beside.bases), self.source.tag_names(pk) if self.deep else [], self.healer.seal,
        )  # fmt: skip
        recovered.losses += _losses(run, row, sure)
        return Found(recovered, row if sure else None, beside)

    def _holds(self, frames: Frames, digest: bytes, frame: bytes) -> bool:
        try:
            inner = frames.open_chunk(frames.chunk_name(digest), frame)
            return sha256(self.healer.framer.inner.unwrap(inner)).digest() == digest
        except Damaged:
            return False

    def _proved(
        self, candidates: Mapping[int, Sequence[Record]], heads: Mapping[int, bytes], row: RunRow | None, beside: Beside
    ) -> tuple[bytes, dict[int, Record]]:
        """Return the key of a run, and the records that it proves. If the row is lost, the first record or a side row gives the key."""
        keys = [row.key] if row is not None else [*self._told_keys(candidates), *(thing.key for thing in beside.all())]
        best: tuple[bytes, dict[int, Record]] = (b"", {})
        for key in dict.fromkeys(keys):
            found = prove(candidates, heads, key, self.healer.seal, partial(self.healer.record, key))
            if len(found) > len(best[1]):
                best = key, found
        frames = self._frames_of(best[0], row, best[1].get(1)) if best[1] else None
        if frames is None:
            return b"", {}
        for record in best[1].values():
            record.opener = frames
        return best

    def _frames_of(self, key: bytes, row: RunRow | None, first: Record | None) -> Frames | None:
        """Return the frames of a run; if its row is lost and the store is encrypted, those that open its first record, if any do."""
        if row is not None or not self.healer.framer.encrypted:
            return self.healer.framer.of(key if row is None else row.family, key)
        for family in (key, *self.families):
            with suppress(Damaged):
                frames = self.healer.framer.of(family, key)
                if first is not None:
                    first.opened_by(frames).content()
                    return frames
        return None

    def _told_keys(self, candidates: Mapping[int, Sequence[Record]]) -> Iterator[bytes]:
        """Yield the keys that first records give for their run. The chain has to confirm them.

        In an encrypted store a first record can be opened only with the key of the run, which is known for the first run of each family.
        """
        for record in candidates.get(1, ()):
            for guess in self.families or (b"",):
                with suppress(Damaged):
                    key = said_in(record.opened_by(self.healer.framer.of(guess, guess))).get("key")
                    if key is not None:
                        yield key

    def chunks(self, family: bytes, digests: Sequence[bytes]) -> dict[bytes, bytes]:
        """Return inner frames of chunks whose content matches their digest."""
        frames = self.healer.framer.of(family, family)
        found = {digest: self.stored(family, digest) for digest in digests}
        return {digest: frames.open_chunk(frames.chunk_name(digest), frame) for digest, frame in found.items() if frame is not None}

    def stored(self, family: bytes, digest: bytes) -> bytes | None:
        """Return the stored frame of the chunk with this content, if it is there and undamaged."""
        if digest in self._frames:
            return self._frames[digest]
        frames = self.healer.framer.of(family, family)
        holds = partial(self._holds, frames, digest)
        damaged: dict[bytes, None] = {}
        for frame in self.source.chunk(family, frames.chunk_name(digest)):
            if holds(frame):
                return frame
            damaged[frame] = None
        healed = (self.healer.frame(frame, holds) for frame in damaged)
        self._frames[digest] = next((frame for frame in healed if frame is not None), None)
        return self._frames[digest]


def _newer_row(row: RunRow | None, run: str, key: bytes, records: dict[int, Record]) -> RunRow:
    """Make a row to replace a lost one. Its epoch is far above all known ones: leases without a record may have raised it."""
    epoch = max([r.epoch for r in records.values()] + ([row.epoch] if row is not None else []), default=0) + _LEASES
    newest = max((r.at for r in records.values()), default=0)
    if row is not None:
        return replace(row, epoch=epoch, worker=None, since=0, updated_at=max(newest, row.updated_at))
    said = said_in(records[1])
    return RunRow(
        said.get("id") or run, key, said.get("family", key), said.get("workflow"), None, (), None, None, said.get("parent"), said.get("number", 0), records[1].at,
        Status.RUNNING.value, newest, 0, ZERO, 0, sum(len(r.body or b"") for r in records.values()), epoch, None, 0,
    )  # fmt: skip


def _losses(run: str, row: RunRow | None, sure: bool) -> Iterable[Loss]:
    if row is None:
        yield Loss(run, "row", "it was rebuilt from the records: session, tags, note and meta of the run are lost")
    elif not sure:
        yield Loss(run, "row", "only an older one was found: session, tags, note and meta may be outdated")

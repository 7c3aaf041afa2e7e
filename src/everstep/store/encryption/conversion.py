"""Writes everything that is in a plain store into a new encrypted one. Reads the source; makes every record, row and digest again.

Ids, keys of runs, positions, numbers, times, epochs and the order of all commits stay as they are. Digests cannot stay: the
records of the new store are chained under its keyed seal. A body that was pruned keeps only a keyed hash of its digest, because a plain
digest would confirm a guess of its content. Relies on a source that was verified; never repairs anything.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Iterator
from hashlib import sha256
from typing import Any

from ormsgpack import packb

from everstep.backends.contract.core import Backend, Query
from everstep.backends.contract.recovery import Builder, Entry
from everstep.errors import Damaged
from everstep.fields import replace
from everstep.records import ENCRYPTION, SEALED, ZERO, Base, Frames, Kind, Message, Pruned, Record, RunRow, Seal, Tag, chain
from everstep.store.encryption.framing import EncryptedFraming
from everstep.store.encryption.labels import RunFrames
from everstep.store.journal.entries import said_in
from everstep.store.progress import Pace
from everstep.store.refs import stored_tags, verified
from everstep.store.retention.run_survey import bases_of, mark_of, proved

_AT_ONCE = 500
_CHUNKS = 100
_START, _CHECKPOINT = Kind.START.value, Kind.CHECKPOINT.value
_SCHEDULE, _FIRED = "schedule:", "fired:"
_LEFT_OUT = (ENCRYPTION, SEALED)
_ABOUT_THE_FILE = ("verify.",)


class Conversion:
    """Copies one store."""

    def __init__(self, source: Backend, builder: Builder, framing: EncryptedFraming, keys: dict[bytes, bytes], seal: Seal, pace: Pace):
        self._source, self._builder, self._framing, self._keys, self._seal, self._pace = source, builder, framing, keys, seal, pace
        self._pks: dict[str, int] = {}
        self._wanted: set[tuple[str, int]] = set()
        """The checkpoints from which runs were forked: a fork names the digest of its checkpoint."""
        self._digests: dict[bytes, bytes] = {}

    def all(self) -> int:
        """Copy everything; return the number of runs."""
        manifest = self._source.manifest()
        self._pace.total += manifest.runs
        for pk, row in self._rows():
            self._pks[row.id] = pk
            if row.parent is not None and row.parent_number > 0:
                self._wanted.add((row.parent, row.parent_number))
        for pk, row in self._rows():
            self._run(pk, verified(row, self._source.seal))
            self._pace.on(1, "runs")
        self._tombstones()
        self._properties()
        last = None if manifest.last is None else self._pks.get(manifest.last)
        self._builder.finish(manifest.created, last, self._feed())
        return len(self._pks)

    def _rows(self) -> Iterator[tuple[int, RunRow]]:
        """Yield all runs, in the order of their creation."""
        after = None
        while page := self._source.runs(Query(oldest_first=True, after=after, limit=_AT_ONCE)):
            after = page[-1][0]
            yield from page

    def _run(self, pk: int, row: RunRow) -> None:
        if row.family not in self._keys:
            self._keys[row.family] = self._framing.new_family(row.family)
            self._builder.add_key(row.family, self._keys[row.family])
            self._chunks(row.family)
        source, seal, frames = self._source, self._seal, self._framing.of(row.family, row.key)
        records, grown = self._records(row, frames)
        note, names, meta = frames.seal_labels((row.note, row.tags, row.meta), ("labels",))
        made = row.sealed(seal, note=note, tags=names, meta=meta, head_digest=records[-1].digest, stored=row.stored + grown)
        mark = mark_of(source, row)
        entry = source.queue_entry(row.id)
        self._builder.run(
            pk, made, records, self._tags(row, records), [self._message(row, frames, one) for one in source.messages(row.id)],
            None if mark is None else Pruned.make(row.key, mark.ranges, mark.freed, mark.at, mark.numbers, seal),
            [self._base(frames, base) for base in bases_of(source, row)], None if entry is None else entry.task,
        )  # fmt: skip

    def _chunks(self, family: bytes) -> None:
        digests = sorted(self._source.chunk_sizes(family))
        frames = self._framing.of(family, family)
        for at in range(0, len(digests), _CHUNKS):
            found = self._source.chunks(family, digests[at : at + _CHUNKS])
            for name, frame in frames.stored(list(found.items())):
                self._builder.chunk(family, name, frame)

    def _records(self, row: RunRow, frames: RunFrames) -> tuple[list[Record], int]:
        """Return the records, chained again, and by how much their bodies have grown."""
        before, grown = ZERO, 0
        out: list[Record] = []
        for old in proved(self._source, row):
            body, digest = None, self._seal(b"pruned" + old.body_digest)
            if old.body is not None:
                body = frames.wrap(self._content(old), ("record", old.seq, old.kind))
                digest = sha256(body).digest()
                grown += len(body) - len(old.body)
            note, names, meta = old.note, old.tags, old.meta
            if old.kind == _CHECKPOINT:
                note, names, meta = frames.seal_labels((note, names, meta), ("labels", old.seq))
            one = replace(old, body=body, body_digest=digest, note=note, tags=names, meta=meta)
            one.digest = before = chain(before, row.key, one, self._seal)
            if old.kind == _CHECKPOINT and (row.id, old.number) in self._wanted:
                self._digests[old.digest] = before
            out.append(one.opened_by(frames))
        if not out:
            raise Damaged(f"run {row.id!r} has no records")
        return out, grown

    def _content(self, old: Record) -> bytes:
        """Return the content of a body; in that of a fork's first record, the digest of the checkpoint is the new one."""
        content = old.content()
        if old.kind == _START:
            said = said_in(old)
            digest = self._digests.get(said.get("digest", b""))
            if digest is not None:
                return packb({**said, "digest": digest})
        return content

    def _tags(self, row: RunRow, records: list[Record]) -> list[Tag]:
        """Return the tags of checkpoints. One that was added later has a second row with its name."""
        frames, index, seal = self._framing.of(row.family, row.family), self._framing.index, self._seal
        own = {(name, record.number) for record in records if record.kind == _CHECKPOINT for name in record.tags}
        made = []
        for tag in stored_tags(self._source, row):
            hashed = index.tag(tag.name)
            made.append(Tag.make(row.key, hashed, tag.number, tag.at, seal))
            if (hashed, tag.number) not in own and hashed != tag.name:
                made.append(Tag.make(row.key, frames.companion(tag.name, tag.number), tag.number, tag.at, seal))
        return made

    def _message(self, row: RunRow, frames: Frames, old: Message) -> Message:
        if old.digest(self._source.seal) != old.check or old.key != row.key:
            raise Damaged(f"the message {old.name!r} of run {row.id!r} does not match its digest")
        body = frames.wrap(self._plain(row).unwrap(old.body, ("message", old.name)), ("message", old.name))
        return Message.make(row.key, old.name, old.due, old.at, body, self._seal)

    def _base(self, frames: Frames, old: Base) -> Base:
        content = self._source.framer.store().unwrap(old.body, ("base", old.number))
        return Base.make(old.key, old.number, old.at, frames.wrap(content, ("base", old.number)), self._seal)

    def _plain(self, row: RunRow) -> Frames:
        return self._source.framer.of(row.family, row.key)

    def _tombstones(self) -> None:
        after = 0
        while page := self._source.tombstones(after, _AT_ONCE):
            after = page[-1].pk
            for old in page:
                if old.digest(self._source.seal) != old.check:
                    raise Damaged(f"the tombstone of run {old.id!r} does not match its digest")
                one = replace(old, head_digest=self._seal(b"deleted" + old.head_digest))
                self._builder.tombstone(replace(one, check=one.digest(self._seal)))

    def _properties(self) -> None:
        """Copy settings and schedules. The time of the last verify is about the old file."""
        found = self._source.properties()
        schedules = {name: self._schedule(name, text) for name, text in found.items() if name.startswith(_SCHEDULE)}
        for name, text in found.items():
            if name in _LEFT_OUT or name.startswith(_ABOUT_THE_FILE):
                continue
            of = _SCHEDULE + name.removeprefix(_FIRED)
            if name in schedules:
                text = schedules[name]
            elif name.startswith(_FIRED) and of in schedules and text.partition(" ")[0] == _identity(found[of]):
                text = f"{_identity(schedules[of])} {text.partition(' ')[2]}"
            self._builder.add_property(name, text)
        self._builder.add_property(ENCRYPTION, self._framing.ring.header.text())

    def _schedule(self, name: str, text: str) -> str:
        """Return a schedule with its input encrypted: `queues.schedules` has the format. One that cannot be read stays as it is."""
        place = ("schedule", name.removeprefix(_SCHEDULE))
        try:
            said: dict[str, Any] = json.loads(text)
            content = self._source.framer.store().unwrap(b64decode(said["input"]), place)
        except (ValueError, TypeError, KeyError):
            raise Damaged(f"the {name.replace(':', ' ', 1)} cannot be read", remedy="Set it again, or remove it.") from None
        return json.dumps({**said, "input": b64encode(self._framing.store().wrap(content, place)).decode()})

    def _feed(self) -> Iterator[Entry]:
        """Yield the order of all commits, with gaps where runs were deleted: every position stays."""
        position, end = 0, self._source.feed_end()
        entry: list[int] = []
        while page := self._source.feed(position, _AT_ONCE):
            for at, record in page:
                pk = self._pks[record.run]
                if entry and at == position + 1 and entry[0] == pk and entry[1] + entry[2] == record.seq:
                    entry[2] += 1
                else:
                    if entry:
                        yield entry[0], entry[1], entry[2]
                    if at > position + 1:
                        yield 0, 1, at - position - 1
                    entry = [pk, record.seq, 1]
                position = at
        if entry:
            yield entry[0], entry[1], entry[2]
        if end > position:
            yield 0, 1, end - position


def _identity(schedule: str) -> str:
    """Return the identity of a schedule, which the record of its last firing names."""
    return sha256(schedule.encode()).hexdigest()[:32]

"""Rebuild one run from its proved parts: its chain without holes, its row and its side rows.

A hole is filled so that no number and no seq changes its meaning: a lost checkpoint stays a checkpoint without a state; any other lost
record becomes an event that says so. The chain is new from the first hole on. A run that may have lost steps or answers is paused, so that
it does not repeat finished work without being asked. Relies on `states` for which checkpoints load. No I/O except through its arguments.
"""

from __future__ import annotations

import os
from hashlib import sha256

from ormsgpack import packb

from everstep.clock import clock
from everstep.codec.values import encode
from everstep.errors import Damaged
from everstep.fields import Shape, field, replace
from everstep.records import (
    SALT_BYTES,
    ZERO,
    Base,
    Frames,
    Framing,
    Kind,
    Message,
    Pruned,
    Record,
    RunRow,
    Seal,
    Status,
    Tag,
    chain,
    make_record,
)
from everstep.snapshot.loader import Fetch
from everstep.store.chain import Chain, Entry
from everstep.store.journal.entries import EventEntry, pack, said_in
from everstep.store.repair.report import Loss
from everstep.store.repair.states import States
from everstep.store.retention.reachable import Reach, contents_of
from everstep.store.views import from_meta, own_text

_CHECKPOINT, _EVENT, _START, _STATUS = (k.value for k in (Kind.CHECKPOINT, Kind.EVENT, Kind.START, Kind.STATUS))
_OVER = (Status.SUCCEEDED.value, Status.FAILED.value, Status.CANCELLED.value)
_LOST = "lost"
PAUSE = "pause"


class RecoveredRun(Shape):
    """The known parts of one run. `row` is proved if `sure`, otherwise older or rebuilt; `last` is the seq of its newest record."""

    row: RunRow
    sure: bool
    last: int
    checkpoints: int | None
    """The number of checkpoints; None if unknown."""
    ended: bool
    """Whether `last` is proved to be the newest record."""
    records: dict[int, Record]
    hints: dict[int, str]
    """The likely kinds of lost records."""
    tags: list[Tag]
    messages: list[Message]
    mark: Pruned | None
    bases: list[Base]
    tag_names: list[tuple[str, int]]
    """The tags that an index names: enough to list lost ones."""
    seal: Seal
    losses: list[Loss] = field(default_factory=list)
    chain: list[Record] = field(default_factory=list)
    needed: set[bytes] = field(default_factory=set)
    made: dict[bytes, bytes] = field(default_factory=dict)
    good: set[int] = field(default_factory=set)
    paused: bool = False
    _lost_numbers: dict[int, str] = field(default_factory=dict)
    _lost_seqs: set[int] = field(default_factory=set)

    def rebuild(self, framer: Framing, fetch: Fetch) -> None:
        """Build chain, row, tags and mark for the new store. Raises `Damaged` if the run is inconsistent."""
        _refuse_bad_meta(self.row)
        reach, frames = Reach(fetch, framer), framer.of(self.row.family, self.row.key)
        self._journal(reach, frames)
        filled = self._filled(frames)
        states = States(self.row, filled, self.bases, self.mark, self._lost_numbers, fetch, frames, framer.inner, self.seal)
        now = clock.now_us()
        states.settle(now, reach)
        self.chain = _chained(states.records, self.row.key, self.seal, frames)
        self.bases, self.mark, self.good, self.made = states.bases, states.mark, states.good, states.made
        self.needed |= states.needed
        self.losses += states.losses
        self._row(framer)
        self._tags()

    def _journal(self, reach: Reach, frames: Frames) -> None:
        """Drop entries whose results are lost: they refer to missing chunks."""
        for seq, record in list(self.records.items()):
            try:
                self.needed |= reach.of(contents_of(record)) if record.kind != Kind.BASE else set()
            except Damaged as error:
                reason = f"data that it refers to is lost: {error.message}"
                self.losses.append(Loss(self.row.id, record.kind, reason, seq=seq, name=record.note))
                if record.kind == _START:
                    self.records[seq] = _without_input(record, self.row.key, frames, self.seal)
                else:
                    del self.records[seq]
                    self.hints[seq] = record.kind
                self._lost_seqs.add(seq)

    def _filled(self, frames: Frames) -> list[Record]:
        """Return all records from the first to the newest, with a substitute for each lost one."""
        out: list[Record] = []
        seq = 1
        while seq <= self.last:
            if seq in self.records:
                out.append(self.records[seq])
                seq += 1
                continue
            end = next((s for s in range(seq, self.last + 1) if s in self.records), self.last + 1)
            number = out[-1].number if out else 0
            count = self._checkpoints_before(end, number, end - seq)
            if 0 <= count <= end - seq:
                out += self._fill(seq, end, count, out[-1] if out else None, frames)
                seq = end
            elif end in self.records:  # its number contradicts the others
                del self.records[end]
            else:
                out += self._fill(seq, end, min(max(count, 0), end - seq), out[-1] if out else None, frames)
                seq = end
        return out

    def _checkpoints_before(self, end: int, number: int, most: int) -> int:
        """Count the checkpoints lost in a hole that ends before a record. At the end of the chain, each lost record may have been one."""
        following = self.records.get(end)
        if following is not None:
            return following.number - (following.kind == _CHECKPOINT) - number
        return most if self.checkpoints is None else self.checkpoints - number

    def _fill(self, first: int, end: int, count: int, before: Record | None, frames: Frames) -> list[Record]:
        following = self.records.get(end)
        sure = end - 1 if following is not None and following.kind == Kind.BASE else 0  # a base directly follows its checkpoint
        likely = sorted(range(max(first, 2), end), key=lambda seq: (seq != sure, self.hints.get(seq, _CHECKPOINT) != _CHECKPOINT, seq))
        chosen = set(likely[:count])
        number, epoch, at = (before.number, before.epoch, before.at) if before is not None else (0, 0, self.row.created_at)
        out: list[Record] = []
        for seq in range(first, end):
            number += seq in chosen
            out.append(self._stand_in(seq, seq in chosen, number, epoch, at, frames))
        return out

    def _stand_in(self, seq: int, checkpoint: bool, number: int, epoch: int, at: int, frames: Frames) -> Record:
        """Make a substitute for a lost record."""
        known = seq in self._lost_seqs  # this loss has been listed already
        reason = "its record is lost"
        if checkpoint:
            self._lost_numbers[number] = reason
            # A loop must not silently resume from an older state, so this stays a checkpoint that it would resume from. A workflow must
            # not mistake it for one of its own saves.
            header = {"kind": "automatic", "trigger": _LOST} if self._is_workflow() else {"trigger": _LOST}
            note, salt = "lost: its state could not be repaired", os.urandom(SALT_BYTES)
            own = own_text(header)
            return Record(self.row.id, seq, _CHECKPOINT, epoch, at, number, note, (), None, own, salt, None, sha256(b"").digest(), ZERO)
        if not known:
            self.losses.append(Loss(self.row.id, _START if seq == 1 else "record", reason, seq=seq))
            self._lost_seqs.add(seq)
        if seq == 1:
            body = frames.wrap(packb({"key": self.row.key}), ("record", seq, _START))
            return make_record(ZERO, self.row.id, self.row.key, seq, _START, epoch, at, number, body, seal=self.seal).opened_by(frames)
        body = frames.wrap(pack(EventEntry.of(_LOST, {"seq": seq, "kind": self.hints.get(seq)})), ("record", seq, _EVENT))
        return make_record(ZERO, self.row.id, self.row.key, seq, _EVENT, epoch, at, number, body, seal=self.seal).opened_by(frames)

    def _is_workflow(self) -> bool:
        return 1 in self.records and "workflow" in said_in(self.records[1])

    def _row(self, framer: Framing) -> None:
        head = self.chain[-1]
        row = replace(self.row, head_seq=head.seq, head_digest=head.digest, checkpoints=head.number)
        doubt = [f"{len(self._lost_seqs)} records of its journal are lost"] if self._lost_seqs else []
        if not self.ended:
            doubt.append("records at its end may be lost")
            self.losses.append(Loss(row.id, "end", "its newest record is not proved: later ones may be lost", seq=head.seq))
        status, settled = self._status()
        row.status = status
        if doubt and not settled:
            row = self._paused(row, " and ".join(doubt), framer)
        self.row = row.sealed(self.seal)

    def _status(self) -> tuple[str, bool]:
        """Return the status of the run, and whether its outcome is known, so that no work is repeated."""
        newest = max((r.seq for r in self.chain if r.kind == _STATUS), default=0)
        said = said_in(self.chain[newest - 1]).get("status") if newest else None
        status = self.row.status if self.sure else said or Status.RUNNING.value
        hidden = any(seq > newest for seq in self._lost_seqs)
        if status == Status.CANCELLED:
            return status, True
        if status == said and status in _OVER and not hidden:
            return status, status == Status.SUCCEEDED
        return (Status.RUNNING.value if status == Status.SUCCEEDED else status), False

    def _paused(self, row: RunRow, reason: str, framer: Framing) -> RunRow:
        """Pause the run as an operator would: it continues when someone resumes it."""
        self.paused = True
        reason = f"repaired: {reason}"
        if all(message.name != PAUSE for message in self.messages):
            self.messages.append(
                Message.make(
                    row.key, PAUSE, None, clock.now_us(), framer.of(row.family, row.key).wrap(encode(reason), ("message", PAUSE)), self.seal
                )
            )
        if row.status == Status.FAILED:  # no process runs it, and the message keeps it from being woken up
            return row
        more = Chain(framer, row, row, self.seal)
        if row.worker is not None or not self.sure:
            more.entries([Entry(_EVENT, pack(EventEntry.of("taken_over", {})), None)])
        more.status(Status.WAITING, reason=f"{PAUSE}: {reason}")
        commit = more.commit(worker=None, since=0)
        self.chain += commit.records
        return commit.run

    def _tags(self) -> None:
        """Collect the tags that their digests prove, and those in the records."""
        row = self.row
        found = {(tag.name, tag.number): tag for tag in self.tags if 1 <= tag.number <= row.checkpoints}
        for record in self.chain:
            for name in record.tags if record.kind == _CHECKPOINT else ():
                found.setdefault((name, record.number), Tag.make(row.key, name, record.number, record.at, self.seal))
        self.tags = [found[key] for key in sorted(found)]
        for name, number in self.tag_names:
            if (name, number) not in found:
                self.losses.append(Loss(row.id, "tag", "its row is lost", number, name=name))


def _refuse_bad_meta(row: RunRow) -> None:
    try:
        from_meta(row.meta)
    except (ValueError, AttributeError, TypeError) as error:
        raise Damaged(f"the meta of run {row.id!r} is not a JSON object") from error


def _without_input(record: Record, key: bytes, frames: Frames, seal: Seal) -> Record:
    """Return a first record without its input."""
    said = {name: value for name, value in said_in(record).items() if name not in ("input", "edits")}
    r = record
    body = frames.wrap(packb(said), ("record", r.seq, r.kind))
    return make_record(ZERO, r.run, key, r.seq, r.kind, r.epoch, r.at, r.number, body, r.note, seal=seal).opened_by(frames)


def _chained(records: list[Record], key: bytes, seal: Seal, frames: Frames) -> list[Record]:
    """Return the records with their digests; those before the first substitute keep theirs."""
    out: list[Record] = []
    before = ZERO
    for r in records:
        before = chain(before, key, r, seal)
        out.append(replace(r, digest=before).opened_by(frames))
    return out

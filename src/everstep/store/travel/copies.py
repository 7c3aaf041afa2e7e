"""Copies of a run: its whole history under a new id, in the same family. Records are made again for the new run's key; chunks are shared.

Times, labels and bodies stay as they are. A pruned body stays pruned, with the same digest, so that the copy has the same prune mark.
Messages, the queue entry and the lease are not copied: they belong to the run that was copied.
"""

from __future__ import annotations

from hashlib import sha256

from ormsgpack import packb

from everstep.backends.contract.core import Backend, Commit
from everstep.backends.contract.types import Cut
from everstep.clock import clock, iso
from everstep.errors import Conflict, LeaseHeld, RunDeleted
from everstep.fields import replace
from everstep.ids import check_id, new_id
from everstep.records import ZERO, Base, Framing, Kind, Pruned, Record, RunRow, Status, Tag, chain
from everstep.store.chain import new_row
from everstep.store.encryption.frames import content_of_base, frames_of, new_base, sealed_row, shown_row
from everstep.store.journal.attached import address_of, number_in
from everstep.store.journal.entries import AttachedEntry, open_as, said_in
from everstep.store.refs import stored_tags, verified
from everstep.store.retention.run_survey import bases_of, mark_of, proved

_ATTACHED, _START, _CHECKPOINT = Kind.ATTACHED.value, Kind.START.value, Kind.CHECKPOINT.value
_TRIES = 5


def copy(backend: Backend, framer: Framing, row: RunRow, id: str | None) -> RunRow:
    """Create a run with all records of another one. It waits, if that one has not ended; a run that a live process drives is refused."""
    holder = backend.holder(row)
    if holder is not None:
        raise LeaseHeld(row.id, holder.host, holder.pid, iso(row.since), iso(holder.expires_at))
    name = check_id(id) if id is not None else f"{row.id[:180]}-{new_id(6)}"
    for _ in range(_TRIES):
        mark, bases, tags = mark_of(backend, row), bases_of(backend, row), stored_tags(backend, row)
        given = shown_row(backend, row)
        made = new_row(
            name, row.family, workflow=row.workflow, session=row.session, tags=given.tags, note=given.note, meta=given.meta, parent=row.id,
            parent_number=0,
        )  # fmt: skip
        made = sealed_row(framer, made)
        records = list(_records(backend, framer, row, made))
        if mark_of(backend, row) == mark and _is_there(backend, row):
            return _written(backend, row, made, records, mark, bases, tags)
    raise Conflict(f"another process is pruning run {row.id!r}", remedy="Try again when it has finished.")


def _is_there(backend: Backend, row: RunRow) -> bool:
    now = backend.run(row.id)
    if now is None or now.key != row.key:
        raise RunDeleted(row.id)
    return True


def _records(backend: Backend, framer: Framing, row: RunRow, made: RunRow) -> list[Record]:
    """Return the records of a run, chained again for its copy."""
    before, frames = ZERO, framer.of(made.family, made.key)
    out: list[Record] = []
    for record in proved(backend, verified(row, backend.seal)):
        one = replace(record, run=made.id)
        if record.kind == _START:
            about = {"key": made.key, "id": made.id, "family": made.family, "parent": row.id, "parent_key": row.key}
            body = frames.wrap(packb({**said_in(record), **about}), ("record", record.seq, _START))
            one = replace(one, body=body, body_digest=sha256(body).digest())
        elif framer.encrypted and record.body is not None:  # a frame is bound to its run
            body = frames.wrap(record.content(), ("record", record.seq, record.kind))
            one = replace(one, body=body, body_digest=sha256(body).digest())
        if record.kind == _ATTACHED and record.body is not None:
            one = replace(one, note=address_of(made.key, number_in(record), open_as(record, AttachedEntry).name))
        if framer.encrypted and record.kind == _CHECKPOINT:
            note, names, meta = frames.seal_labels(record.shown(), ("labels", record.seq))
            one = replace(one, note=note, tags=names, meta=meta)
        one = replace(one, digest=chain(before, made.key, one, backend.seal))
        before = one.digest
        out.append(one)
    return out


def _base(backend: Backend, row: RunRow, made: RunRow, base: Base) -> Base:
    """Return an added base for the copy."""
    if not backend.framer.encrypted:
        return Base.make(made.key, base.number, base.at, base.body, backend.seal)
    return new_base(backend, made, base.number, base.at, content_of_base(frames_of(backend, row), base))


def _written(
    backend: Backend, row: RunRow, made: RunRow, records: list[Record], mark: Pruned | None, bases: list[Base], tags: list[Tag]
) -> RunRow:
    """Write the copy: in one commit, unless its prune mark has to be there before the records without bodies."""
    ended = row.status in (Status.SUCCEEDED, Status.FAILED, Status.CANCELLED)
    seal, status = backend.seal, row.status if ended else Status.WAITING.value
    done = made.sealed(
        seal, status=status, head_seq=len(records), checkpoints=row.checkpoints, head_digest=records[-1].digest, stored=row.stored,
        epoch=row.epoch, updated_at=clock.now_us(),
    )  # fmt: skip
    was = None
    if mark is not None:
        was = made.sealed(
            seal, status=status, head_seq=1, head_digest=records[0].digest, epoch=row.epoch, stored=len(records[0].body or b"")
        )
        backend.commit(Commit(was, None, records[:1]))
        now = Pruned.make(made.key, mark.ranges, mark.freed, mark.at, mark.numbers, seal)
        backend.prune(Cut(made.id, None, now, bases=[_base(backend, row, made, base) for base in bases]))
    backend.commit(Commit(done, was, records if was is None else records[1:]))
    own = {(tag, record.number) for record in records if record.kind == _CHECKPOINT for tag in record.tags}
    for tag in tags:
        if (tag.name, tag.number) not in own:
            backend.tag(Tag.make(made.key, tag.name, tag.number, tag.at, seal), made.id)
    return done

"""Brings a live state up to date by the deltas that others have appended since, instead of loading it again. Reads only."""

from __future__ import annotations

from everstep.backends.contract.core import Backend
from everstep.codec.values import Decoder
from everstep.errors import Damaged
from everstep.records import Kind, RunRow
from everstep.snapshot.delta import Op
from everstep.snapshot.saver import NO_DELTA, Saver
from everstep.store.load import checked

_MOST = 256  # beyond this many records, loading is as fast


def caught_up(backend: Backend, saver: Saver, before: RunRow, now: RunRow) -> bool:
    """Apply the deltas between two rows of a run to a live state. Return False if it has to be loaded: too much has happened, or the
    program has changed the state.
    """
    if not 0 < now.head_seq - before.head_seq <= _MOST:
        return False
    try:
        records = checked(backend, now, before.head_seq, now.head_seq)
    except Damaged:
        return False  # loading names the damage
    if records[0].digest != before.head_digest:
        return False  # the store was restored from a backup
    decoder = Decoder()
    deltas: list[list[Op]] = []
    size, since_base = 0, -1
    for record in records[1:]:
        if record.kind == Kind.BASE:
            size, since_base = 0, len(deltas)
        if record.kind != Kind.CHECKPOINT:
            continue
        content = NO_DELTA if record.body is None else record.content()
        ops = None if content == NO_DELTA else decoder.decode(content)
        if not isinstance(ops, list) or decoder.objects:
            return False
        deltas.append(ops)
        size += len(content)
    return saver.follow(deltas, size, None if since_base < 0 else len(deltas) - since_base)

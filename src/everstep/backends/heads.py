"""Whether a run row is the newest one: the newest record of the run tells. For backends that keep rows and records apart. No I/O."""

from __future__ import annotations

from everstep.errors import DamagedRun, MissingHead
from everstep.records import RunRow


def refuse_stale(row: RunRow, newest: int | None) -> None:
    """Refuse a row that is older than its records: a disk that lost a write leaves one that is good in itself.

    `newest` is the seq of the newest record that is stored, read in the same snapshot as the row.
    """
    if newest is None and row.head_seq:
        raise MissingHead(f"run {row.id!r} has no records, but its row names record {row.head_seq} as the newest")
    if newest is not None and newest > row.head_seq:
        raise DamagedRun(
            f"the row of run {row.id!r} is older than its records: it names record {row.head_seq} as the newest, but record {newest} is stored",
            remedy="Restore a backup, or save what is good into a new store: everstep repair OLD NEW.",
        )

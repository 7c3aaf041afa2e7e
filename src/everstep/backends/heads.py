"""Checks that a run row is the newest version, by the run's newest record. For backends that keep rows and records separately. No I/O."""

from __future__ import annotations

from everstep.errors import DamagedRun, MissingHead
from everstep.records import RunRow


def refuse_stale(row: RunRow, newest: int | None) -> None:
    """Refuse a row that is older than its records: after a lost write of the disk, an old row is left that matches its own digest.

    `newest` is the seq of the newest record that is stored, read in the same snapshot as the row.
    """
    if newest is None and row.head_seq:
        raise MissingHead(f"run {row.id!r} has no records, but its row names record {row.head_seq} as the newest")
    if newest is not None and newest > row.head_seq:
        raise DamagedRun(
            f"the row of run {row.id!r} is older than its records: it names record {row.head_seq} as the newest, but record {newest} is stored",
            remedy="Restore a backup, or save the undamaged data to a new store: everstep repair OLD NEW.",
        )

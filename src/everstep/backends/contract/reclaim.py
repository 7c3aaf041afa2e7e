"""Deleting, pruning and sweeping: how a store is kept small. The docstrings are the contract.

Nothing here needs a lease or keeps readers out. Each call is one short transaction: a caller that has much to do calls often, so that writers never
wait long.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from everstep.backends.contract.types import Cut
from everstep.records import Base, Pruned, RunRow


class Reclaim(Protocol):
    """Frees what is not kept any more."""

    def delete(self, row: RunRow) -> None:
        """Remove a run with its records, tags, letters, prune mark and added bases, and the family's chunks if it was the last of its
        family. A tombstone takes its place.

        Refused with `LeaseHeld` while it is open for writing, with `Conflict` if it has moved on since `row`.
        """

    def delete_many(self, rows: Sequence[RunRow]) -> set[bytes]:
        """Delete those of the runs that are still as in their rows and that nobody holds, as `delete` does, in one transaction.

        Gives their keys. Who has many to delete calls often, so that writers never wait long.
        """

    def pruned(self, run: str) -> Pruned | None:
        """The prune mark of a run; None if it was never pruned or is not there."""

    def bases(self, run: str, upto: int | None = None) -> list[Base]:
        """The bases that prune added to a run, by number; with `upto`, only the newest at or before that checkpoint, if any."""

    def prune(self, cut: Cut) -> None:
        """Drop bodies of a run."""

    def families(self) -> list[bytes]:
        """Every family that has a chunk or a run."""

    def chunk_sizes(self, family: bytes) -> dict[bytes, int]:
        """The digest of every chunk of a family, with the bytes of its frame."""

    def sweep(self, family: bytes, digests: Sequence[bytes], stamp: int) -> int:
        """Remove those of the chunks that were not written since `stamp` (a `Manifest.writes`); gives the bytes of their frames.

        A chunk that a commit wrote after the caller looked for what is reachable has a newer stamp and stays.
        """

    def shrink(self, most: int) -> int:
        """Give up to about `most` bytes of free space back to the system; gives how many. 0: there is nothing to give, or it cannot."""

    def compact(self) -> int:
        """Rebuild the store without its free space; gives the bytes saved. Keeps writers out meanwhile. 0 where there is nothing to do."""

    def forget(self, block: int, before: int) -> int:
        """Drop the tombstones of a block that are older than a time (µs); its fact keeps their places (`deleted_places`). Gives how many went."""

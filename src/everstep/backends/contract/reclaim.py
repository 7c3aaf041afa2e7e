"""Deleting, pruning and sweeping, which keep a store small. The docstrings are the contract.

Nothing here needs a lease or blocks readers. Each call is one short transaction: a caller with much to delete makes many calls, so that
writers never wait long.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from everstep.backends.contract.types import Cut
from everstep.records import Base, Pruned, RunRow


class Reclaim(Protocol):
    """Frees data that is no longer kept."""

    def delete(self, row: RunRow) -> None:
        """Remove a run with its records, tags, messages, prune mark and added bases, and the family's chunks if it was the last of its
        family. A tombstone remains.

        Raises `LeaseHeld` while the run is open for writing, `Conflict` if it has changed since `row`.
        """

    def delete_many(self, rows: Sequence[RunRow]) -> set[bytes]:
        """Delete, in one transaction, those of the runs that are unchanged since their rows were read and that no worker holds.

        Each is deleted as by `delete`. Returns their keys. A caller with many runs makes many calls, so that writers never wait long.
        """

    def pruned(self, run: str) -> Pruned | None:
        """Return the prune mark of a run; None if it was never pruned or does not exist."""

    def bases(self, run: str, upto: int | None = None) -> list[Base]:
        """Return the bases that prune added to a run, by number; with `upto`, only the newest at or before that checkpoint, if any."""

    def prune(self, cut: Cut) -> None:
        """Drop bodies of a run."""

    def families(self) -> list[bytes]:
        """Return every family that has a chunk or a run."""

    def chunk_sizes(self, family: bytes) -> dict[bytes, int]:
        """Return the digest of every chunk of a family, with the bytes of its frame."""

    def sweep(self, family: bytes, digests: Sequence[bytes], stamp: int) -> int:
        """Remove those of the chunks that were not written since `stamp` (a `Manifest.writes`); return the bytes of their frames.

        A chunk that a commit wrote after the caller looked for reachable chunks has a newer stamp and stays.
        """

    def shrink(self, most: int) -> int:
        """Return up to about `most` bytes of free space to the system; return how many. 0: there is none, or the engine cannot do it."""

    def compact(self) -> int:
        """Rebuild the store without its free space; return the bytes saved, 0 if there was nothing to do. Blocks writers meanwhile."""

    def forget(self, block: int, before: int) -> int:
        """Drop the tombstones of a block that are older than a time (µs); return how many. The block's property keeps their positions
        (`deleted_pks`)."""

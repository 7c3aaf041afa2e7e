"""The part of a backend's contract that keeps a store small and tells of its past: pruning, sweeping, tombstones, facts.

Nothing here needs a lease or keeps readers out. Each call is one short transaction: who has much to do calls often, so that writers
never wait long. The docstrings are the contract, as in `core`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from everstep.fields import Shape, field
from everstep.records import Base, Letter, Pruned, Record, RunRow, Tag, Tombstone


class Cut(Shape):
    """One atomic step of pruning one run.

    `was` is the run's prune mark as the caller knows it, `now` as it shall be. Refused with `Conflict` if the stored mark is another
    one, with `NotFound` if the run is gone or another one has its id (its key is not `now.key`). `bodies` are (seq, digest of the body): these
    bodies are dropped, their digests kept; one that is dropped already is no fault. `bases` are added, those of `gone` (numbers of
    checkpoints) removed, `chunks` stored as by a commit. The run row, the chain and the feed stay as they are.
    """

    run: str
    was: Pruned | None
    now: Pruned
    bodies: Sequence[tuple[int, bytes]] = ()
    bases: Sequence[Base] = ()
    gone: Sequence[int] = ()
    chunks: Sequence[tuple[bytes, bytes]] = ()


class Census(Shape, frozen=True):
    """The manifest as it is recorded, and what is there at the same moment: so a busy store can be compared with it, too.

    `places` are the runs that were ever created. The sum that was found is that of all stored checks: of run rows, tags, letters, prune
    marks, added bases, tombstones and facts. Whether each of these fits its own check is another question. `tombstones` also counts the deleted
    runs of which only the place is remembered.
    """

    total: bytes
    runs: int
    places: int
    found_total: bytes
    found_runs: int
    tombstones: int


class Gathered(Shape):
    """What a store holds of some runs, by id. `rows` names those that were gathered; the chunks are by family.

    A backend that pays a round trip for each read may have a method `gather(page, heads) -> Gathered`, where a page is a list of places and rows.
    With `heads` it reads what a quick proof needs: of the records the newest and what is behind it, and no chunks.
    """

    rows: dict[str, RunRow] = field(default_factory=dict)
    tags: dict[str, list[Tag]] = field(default_factory=dict)
    letters: dict[str, list[Letter]] = field(default_factory=dict)
    marks: dict[str, Pruned] = field(default_factory=dict)
    bases: dict[str, list[Base]] = field(default_factory=dict)
    records: dict[str, list[Record]] = field(default_factory=dict)
    """All records, of runs that have few; or only the newest."""
    sizes: dict[bytes, dict[bytes, int]] = field(default_factory=dict)
    frames: dict[bytes, dict[bytes, bytes]] = field(default_factory=dict)
    parents: set[str] = field(default_factory=set)
    """Those that another run was forked from or called by."""


class Upkeep(Protocol):
    """What pruning, gc, verify and doctor need besides reading and writing."""

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

    def tombstones(self, after: int = 0, limit: int | None = None) -> list[Tombstone]:
        """Tombstones by place, those beyond a place."""

    def forget(self, block: int, before: int) -> int:
        """Drop the tombstones of a block that are older than a time (µs); its fact keeps their places (`deleted_places`). Gives how many went."""

    def fact(self, name: str) -> str | None:
        """What the store was told to remember under a name: when it was last verified, what is to be kept."""

    def facts(self, prefix: str = "") -> dict[str, str]:
        """All facts whose names begin so, by name."""

    def set_fact(self, name: str, value: str | None) -> None:
        """Remember a fact, durably; None forgets it. Counts in the manifest with its `fact_check`."""

    def census(self) -> Census:
        """Count all runs and tombstones and add up all checks, in one snapshot."""

    def health(self) -> dict[str, object]:
        """What `Store.doctor` looks at; a backend gives those of these facts that it has:

        engine, version; path; read_only (why it cannot be written, or None); journal_mode; synchronous (off, normal, full, extra); page_size,
        pages, free_pages; wal_bytes; file_mode and folder_mode (permission bits); disk_free (bytes); file_system (its type), network
        (other machines may have it open), volatile (gone when the machine is switched off); writes (`Manifest.writes`), seen (the most
        writes that this machine has noted, or None); sync_remedy and write_remedy (what to do where these are not as they should be). Of a server: full_page_writes,
        checksums, autovacuum; connections and most_connections; oldest_seconds (of the oldest transaction); encrypted (the wire, or it stays
        on the machine); clock_ahead_us (its clock before ours); live_rows, dead_rows.
        """

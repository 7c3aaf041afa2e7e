"""Proving a store whole, and what it tells about itself. The docstrings are the contract."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from everstep.backends.contract.types import Census, Manifest
from everstep.records import Tombstone


class Audit(Protocol):
    """Keeps a sum of all that is stored, and says how the store is."""

    def manifest(self) -> Manifest:
        """The manifest as recorded (not computed)."""

    def census(self) -> Census:
        """Count all runs and tombstones and add up all checks, in one snapshot."""

    def tombstones(self, after: int = 0, limit: int | None = None) -> list[Tombstone]:
        """Tombstones by place, those beyond a place."""

    def check(self, stop: Callable[[], bool] | None = None) -> list[str] | None:
        """The engine's own integrity check: sentences, empty if all is well. `stop` is asked now and then whether there is no more time
        for it; then it gives None."""

    def stats(self) -> dict[str, int]:
        """Counts and bytes: runs, records, chunks, letters, record_bytes, chunk_bytes, file_bytes."""

    def health(self) -> dict[str, object]:
        """What `Store.doctor` looks at; a backend gives those of these facts that it has:

        engine, version; path; read_only (why it cannot be written, or None); journal_mode; synchronous (off, normal, full, extra); page_size,
        pages, free_pages; wal_bytes; file_mode and folder_mode (permission bits); disk_free (bytes); file_system (its type), network
        (other machines may have it open), volatile (gone when the machine is switched off); writes (`Manifest.writes`), seen (the most
        writes that this machine has noted, or None); sync_remedy and write_remedy (what to do where these are not as they should be). Of a server: full_page_writes,
        checksums, autovacuum; connections and most_connections; oldest_seconds (of the oldest transaction); encrypted (the wire, or it stays
        on the machine); clock_ahead_us (its clock before ours); live_rows, dead_rows.
        """

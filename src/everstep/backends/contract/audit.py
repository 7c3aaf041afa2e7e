"""Checks that a store is complete, and figures about it. The docstrings are the contract."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from everstep.backends.contract.types import Census, Manifest
from everstep.records import Tombstone


class Audit(Protocol):
    """Keeps a sum of all stored rows, and reports the condition of the store."""

    def manifest(self) -> Manifest:
        """Return the manifest as recorded (not computed)."""

    def census(self) -> Census:
        """Count all runs and tombstones and add up all checks, in one snapshot."""

    def tombstones(self, after: int = 0, limit: int | None = None) -> list[Tombstone]:
        """Return tombstones in order of position, those beyond position `after`."""

    def check(self, stop: Callable[[], bool] | None = None) -> list[str] | None:
        """Run the engine's own integrity check; return the faults as sentences, an empty list if there are none.

        The backend calls `stop` from time to time; when that returns True, the check ends and returns None.
        """

    def stats(self) -> dict[str, int]:
        """Return counts and bytes: runs, records, chunks, messages, record_bytes, chunk_bytes, file_bytes."""

    def health(self) -> dict[str, object]:
        """Return the values that `Store.doctor` checks. A backend returns those of the following that it has:

        engine, version; path; read_only (why it cannot be written, or None); journal_mode; synchronous (off, normal, full, extra);
        page_size, pages, free_pages; wal_bytes; file_mode and folder_mode (permission bits); disk_free (bytes); file_system (its type),
        network (other machines may have it open), volatile (lost when the machine is switched off); writes (`Manifest.writes`), seen (the
        most writes that this machine has recorded, or None); sync_remedy and write_remedy (what to do if a setting is unsafe). Of a
        server: full_page_writes, checksums, autovacuum; connections and most_connections; oldest_seconds (age of the oldest
        transaction); encrypted (the connection is); local (it comes from the server's own machine); clock_ahead_us (how
        far its clock is ahead of ours); live_rows, dead_rows.
        """

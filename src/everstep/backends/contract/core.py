"""The contract between the store and its storage. The docstrings are the contract.

A backend keeps rows, records, chunks and messages exactly as given, orders commits, and fences writers by epoch.
It never interprets a body or a chunk and never decides what is valid. It computes a digest only where it
changes a row by itself (lease, release). All methods may be called from any thread. Reads never wait for
a writer and need no lease. Every method raises only errors of `everstep.errors`.

`everstep.testing.conformance` holds the suite that every backend must pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from everstep.backends.contract.audit import Audit
from everstep.backends.contract.feed import Feed
from everstep.backends.contract.index import Index
from everstep.backends.contract.keys import Keys
from everstep.backends.contract.mailbox import Mailbox
from everstep.backends.contract.properties import Properties
from everstep.backends.contract.queues import Queues
from everstep.backends.contract.reclaim import Reclaim
from everstep.backends.contract.types import MAX_SEQ, Commit, Committed, Done, Located, Manifest, Outcome, Query
from everstep.errors import EverstepError
from everstep.records import Framing, Record, RunRow, Seal, Worker

__all__ = ["MAX_SEQ", "Backend", "Commit", "Committed", "Core", "Done", "Located", "Manifest", "Outcome", "Query", "submit"]


class Core(Protocol):
    """The methods that every backend has. They are enough to create, save, load, resume, fork and compare runs."""

    url: str
    durable: bool
    framer: Framing
    """Makes and opens the frames of this store, for code that reads through the backend. The store sets it; a backend itself never opens a frame."""
    seal: Seal
    """Makes and verifies the digests of records and the checks of rows: `records.unkeyed` unless the store was opened with a key."""

    def commit(self, commit: Commit, *others: Commit) -> Committed:
        """Make a commit durable; return when it is. All commits that wait at the same time share one fsync.

        Afterwards either all of it is visible or none. An error says in `written` whether the commit happened.
        Commits of one run take effect in the order of their calls.

        `others` are commits of other runs that belong to it: a child and its caller, a session and its index. Either all of them are
        made, in this order, or none: if one is refused, its error is raised. One of them may be a fork of a run that an earlier one
        creates.
        """

    def run(self, run: str) -> RunRow | None:
        """Return the row of one run, without checking its digest. None only if the backend is certain that there is no such run.

        A backend that keeps rows and records separately raises `DamagedRun` if a record beyond the row's head is stored: the row is then
        an older version. It reads the row and the newest record in one snapshot, so that a concurrent commit does not look like damage.
        The same holds for `runs` and `acquire`.
        """

    def runs(self, query: Query) -> list[tuple[int, RunRow]]:
        """Return matching rows, each with its cursor; newest created first unless `oldest_first` is set."""

    def records(self, run: str, first: int, last: int, kinds: Sequence[str] | None = None, newest: int | None = None) -> list[Record]:
        """Return records `first`..`last` (inclusive) in order of seq, with bodies.

        With `kinds`, only records of those kinds; with `newest`, only the last `newest` of the remaining ones.
        """

    def locate(self, run: str, number: int, upto: int | None = None) -> Located | None:
        """Find the records of checkpoint `number`; None if it is not found. Reads one snapshot, or as close to that as the engine allows.

        With `upto`, returns also the records that its state is made of, and those after it up to that seq (0: none), so that a load
        takes two calls. With `upto` above 0 it should also count the run's messages (`waiting`): a run is being opened.
        """

    def chunks(self, family: bytes, digests: Sequence[bytes]) -> dict[bytes, bytes]:
        """Return the frames of those chunks that exist, in one read transaction."""

    def acquire(self, run: str, worker: Worker) -> RunRow:
        """Give the lease of a run to a worker and return the new row, with epoch + 1.

        Raises `LeaseHeld` while another worker, or this one, holds it and is alive. Takes over from a holder whose process is known to be
        dead, whose machine was rebooted, or whose lease has expired. Raises NotFound if there is no such run. Registers the worker with
        its expiry.
        """

    def introduce(self, worker: Worker) -> None:
        """Register a worker with its expiry, as `acquire` does. From then on, runs can be created with a lease of this worker."""

    def holder(self, row: RunRow) -> Worker | None:
        """Return the worker that holds the lease of a run and is alive, as far as is known without taking the lease; None if there is none."""

    def renew(self, worker: Worker) -> None:
        """Store the worker's new expiry: one statement for all the leases that it holds."""

    def release(self, row: RunRow) -> None:
        """Give a lease back (worker None, epoch kept). Does nothing if the epoch has changed."""

    def close(self) -> None:
        """Write everything that was submitted, stop threads, close files. Idempotent; later calls raise StoreClosed."""


class Backend(Core, Mailbox, Index, Feed, Audit, Reclaim, Properties, Queues, Keys, Protocol):
    """A backend with every capability except those that need a database of the caller (`outbox`, `transactions`)."""

    def submit(self, commit: Commit, done: Done) -> None:
        """Commit one run without waiting: any thread calls `done(committed)` or `done(error)` when the commit is settled.

        `done` is called once. It is called again only if it raised a MemoryError, or if Ctrl-C interrupted the calling thread during the
        call or right after it. It must not wait for the backend: other threads may be blocked while it runs.
        """


def submit(backend: Core, commit: Commit, done: Done) -> None:
    """Submit a commit without waiting if the backend can do that; otherwise commit now."""
    hand_over = getattr(backend, "submit", None)
    if hand_over is not None:
        hand_over(commit, done)
        return
    try:
        committed = backend.commit(commit)
    except EverstepError as error:
        done(error)
    else:
        done(committed)

"""The contract between the store and what keeps its bytes. The docstrings are the contract.

A backend keeps rows, records, chunks and letters exactly as given, orders commits, and fences writers by epoch.
It never interprets a body or a chunk, never decides what is valid, and computes a digest only where it
changes a row by itself (lease, release). All methods may be called from any thread. Reads never wait for
a writer and need no lease. Every method raises only errors of `everstep.errors`.

`everstep.testing.conformance` holds the suite that every backend passes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from everstep.backends.contract.audit import Audit
from everstep.backends.contract.facts import Facts
from everstep.backends.contract.feed import Feed
from everstep.backends.contract.index import Index
from everstep.backends.contract.mailbox import Mailbox
from everstep.backends.contract.queues import Queues
from everstep.backends.contract.reclaim import Reclaim
from everstep.backends.contract.types import MAX_SEQ, Commit, Committed, Done, Located, Manifest, Outcome, Query
from everstep.errors import EverstepError
from everstep.records import Opener, Record, RunRow, Seal, Worker

__all__ = ["MAX_SEQ", "Backend", "Commit", "Committed", "Core", "Done", "Located", "Manifest", "Outcome", "Query", "submit"]


class Core(Protocol):
    """What every backend does. With this alone runs are created, saved, loaded, resumed, forked and compared."""

    url: str
    durable: bool
    framer: Opener
    """What opens the frames of this store, for whoever reads through the backend. The store sets it; a backend itself never opens a frame."""
    seal: Seal
    """What makes and proves the digests of records and the checks of rows: `records.unkeyed` unless the store was opened with another one."""

    def commit(self, commit: Commit, *others: Commit) -> Committed:
        """Make a commit durable; return when it is. One fsync for all commits that wait at the same time.

        Either all of it is visible afterwards or none. An error says in `written` whether it happened.
        Commits of one run take effect in the order of their calls.

        `others` are commits of other runs that belong to it: a child and its caller, a session and its index. All of them are made, in this
        order, or none: where one is refused, its error is raised. One of them may be a fork of a run that an earlier one creates.
        """

    def run(self, run: str) -> RunRow | None:
        """The row of one run; its digest is not checked here. None only if the backend is certain that there is no such run.

        A backend that keeps rows and records apart refuses a row with `DamagedRun` if a record beyond its head is stored: then the row is
        an older one. Row and newest record are read in one snapshot, so that a commit in between is no damage. The same holds for `runs` and `acquire`.
        """

    def runs(self, query: Query) -> list[tuple[int, RunRow]]:
        """Rows that fit, newest created first unless told otherwise, each with its cursor."""

    def records(self, run: str, first: int, last: int, kinds: Sequence[str] | None = None, newest: int | None = None) -> list[Record]:
        """Records `first`..`last` (inclusive) in order of seq, with bodies. With `kinds`, only those kinds; with `newest`, only the last so many of what is left."""

    def locate(self, run: str, number: int, upto: int | None = None) -> Located | None:
        """Where checkpoint `number` stands; None if it is not found. One snapshot, or as near to that as the engine comes.

        With `upto`, the records that its state is made of come with it, and those behind it up to that seq (0: none): so a load takes two calls.
        """

    def chunks(self, family: bytes, digests: Sequence[bytes]) -> dict[bytes, bytes]:
        """The frames of those chunks that exist, in one read transaction."""

    def acquire(self, run: str, worker: Worker) -> RunRow:
        """Give the lease of a run to a worker and return the new row, with epoch + 1.

        Refused with `LeaseHeld` while another worker, or this one, holds it alive; a holder whose process is known to be dead, whose machine
        was booted anew, or whose lease ended is overtaken. NotFound if there is no such run. Makes the worker known with its expiry.
        """

    def introduce(self, worker: Worker) -> None:
        """Make a worker known with its expiry, as `acquire` does: from then on runs can be created that it holds."""

    def holder(self, row: RunRow) -> Worker | None:
        """The worker that holds the lease of a run and is alive, as far as can be told without asking for the lease; None if nobody does."""

    def renew(self, worker: Worker) -> None:
        """Store the worker's new expiry: one statement for all the leases that it holds."""

    def release(self, row: RunRow) -> None:
        """Give a lease back (worker None, epoch kept); silently nothing if the epoch has moved on."""

    def close(self) -> None:
        """Make known what was submitted, stop threads, let go of files. Idempotent; later calls raise StoreClosed."""


class Backend(Core, Mailbox, Index, Feed, Audit, Reclaim, Facts, Queues, Protocol):
    """A backend with every capability but those that need a database of the caller's (`outbox`, `transactions`)."""

    def submit(self, commit: Commit, done: Done) -> None:
        """Like `commit` of one run, without waiting: `done(committed)` or `done(error)` is called from any thread, when it is settled.

        Called once; again only if it raised a MemoryError, or if Ctrl-C interrupted the thread that called it, in the call or right after it.
        It must not wait for the backend: others may be kept out while it is called.
        """


def submit(backend: Core, commit: Commit, done: Done) -> None:
    """Hand a commit over without waiting, where the backend can; otherwise make it now."""
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

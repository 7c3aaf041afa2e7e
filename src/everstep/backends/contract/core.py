"""The contract between the store and what keeps its bytes. The docstrings are the contract.

A backend keeps rows, records, chunks and letters exactly as given, orders commits, and fences writers by epoch.
It never interprets a body or a chunk, never decides what is valid, and computes a digest only where it
changes a row by itself (lease, release). All methods may be called from any thread. Reads never wait for
a writer and need no lease. Every method raises only errors of `everstep.errors`.

`everstep.testing.conformance` holds the suite that every backend passes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from everstep.backends.contract.queues import Queues, Task
from everstep.backends.contract.upkeep import Upkeep
from everstep.codec.frame import Framer
from everstep.fields import Shape, field
from everstep.records import Letter, Record, RunRow, Seal, Tag, Worker

Done = Callable[[BaseException | None], None]
MAX_SEQ = 2**31 - 1


class Commit(Shape):
    """One atomic step of one run.

    `was` is the row as the writer knows it (None: the run is created by this commit); `run` is the row as it
    shall be, sealed. The commit is refused with `LostLease` if the stored epoch is not `was.epoch` or the run is
    gone, with `Conflict` if the stored head_seq or check is not that of `was`, with `RunExists` if a run that shall be
    created exists, with `NotFound` if it shall be created as a fork (its family is not its key) and its parent is gone. `records` follow `was.head_seq` without a gap. `chunks` are (digest, frame) pairs of the run's family;
    one that is stored already is replaced, which heals it if it was damaged, unless the new frame is shorter. The tags of checkpoint records become tag rows.
    `read` names letters of this run that are removed (one that is not there is no fault); then `letters` are posted to it, as `post` does.
    `task` gives the run a place in a queue; refused with `AlreadyQueued` if the run is created by this commit and another one of the
    queue that has not ended is its double. `waiting` is set by the backend: how many letters the run has after this commit.
    """

    run: RunRow
    was: RunRow | None
    records: Sequence[Record] = ()
    chunks: Sequence[tuple[bytes, bytes]] = ()
    letters: Sequence[Letter] = ()
    read: Sequence[str] = ()
    task: Task | None = None
    waiting: int = 0


class Query(Shape):
    """What to list. Every given field narrows; `after` is the cursor: rows strictly beyond it in the listing's order.

    Runs are ordered by creation (their cursor is `cursor_of(row)`), checkpoints by number. `tags`: all of them.
    `note`: a part of the note, letter case ignored for ASCII. `meta`: each key equal to a JSON scalar. Times are µs, inclusive since, exclusive until.
    """

    status: str | None = None
    workflow: str | None = None
    session: str | None = None
    parent: str | None = None
    prefix: str | None = None
    tags: tuple[str, ...] = ()
    note: str | None = None
    meta: dict[str, Any] = field(default_factory=dict)
    since: int | None = None
    until: int | None = None
    oldest_first: bool = False
    after: int | None = None
    limit: int | None = None


class Manifest(Shape):
    """The recorded sum of all checks, how many runs there are, and which run was committed to last.

    `places` counts the runs that were ever created: each of them is there or has a tombstone. `writes` counts the transactions that
    changed anything of this; a chunk is stamped with it when it is written, also when it is written again.
    """

    total: bytes
    runs: int
    last: str | None
    places: int = 0
    writes: int = 0


class Backend(Upkeep, Queues, Protocol):
    """What a backend does: some twenty methods of plain storage here, those of `Upkeep` and of `Queues`. All the rest of Everstep is functions over them."""

    url: str
    durable: bool
    framer: Framer
    """What opens the frames of this store, for whoever reads through the backend. The store sets it; a backend itself never opens a frame."""
    seal: Seal
    """What makes and proves the digests of records and the checks of rows: `records.unkeyed` unless the store was opened with another one."""

    def commit(self, commit: Commit) -> None:
        """Make one commit durable; return when it is. One fsync for all commits that wait at the same time.

        Either all of it is visible afterwards or none. An error says in `written` whether it happened.
        Commits of one run take effect in the order of their calls.
        """

    def submit(self, commit: Commit, done: Done) -> None:
        """Like `commit`, without waiting: `done(None)` or `done(error)` is called from any thread, when it is settled.

        Called once; again only if it raised a MemoryError, or if Ctrl-C interrupted the thread that called it, in the call or right after it.
        It must not wait for the backend: others may be kept out while it is called.
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

    def checkpoints(self, run: str, query: Query) -> list[Record]:
        """Checkpoint records that fit, without bodies (body None, body_digest kept), newest first unless told otherwise. Where tags are asked for, tag rows count, also those given later; `tags` are those of the record itself."""

    def digests(self, run: str, seqs: Sequence[int]) -> dict[int, bytes]:
        """The digests of those records that exist, by seq."""

    def chunks(self, family: bytes, digests: Sequence[bytes]) -> dict[bytes, bytes]:
        """The frames of those chunks that exist, in one read transaction."""

    def tags(self, run: str, first: int | None = None, last: int | None = None) -> list[Tag]:
        """All tags of a run, or those of checkpoints `first`..`last`, by (name, number)."""

    def tag(self, tag: Tag, run: str) -> None:
        """Add a tag to a checkpoint; one that is there already is left alone. Needs no lease. NotFound if the run is gone."""

    def post(self, letter: Letter, run: str) -> bool:
        """Add a letter to a run; False, and nothing changed, if it has one of that name: the first wins. Needs no lease.

        NotFound if the run is gone, also if another one has its id by now (the letter's key is not the run's).
        """

    def letters(self, run: str) -> list[Letter]:
        """All letters of a run, by name; none for a run that is not there. Damaged if the backend can tell that one may be missing or old."""

    def due(self, now: int, limit: int | None = None, outside: bool = False) -> list[str]:
        """Ids of the runs to wake: status waiting or failed, a letter with `due` <= `now`, and none named "pause"; with `outside`, only those that
        have no place in a queue.

        The one with the earliest such letter first; where two are equal, the one that was created first.
        """

    def feed(self, after: int, limit: int) -> list[tuple[int, Record]]:
        """Records of all runs, with bodies, in the order in which they were committed: the first `limit` of those beyond position `after`.

        Positions count the records of the store from 1 and are never used again: those of a run that was deleted stay empty, and its
        records are left out. One snapshot: a record never shows up later at a position at or before one that was handed out.
        """

    def feed_end(self) -> int:
        """The newest position that was given, 0 if there is none. Asked for before a feed that comes back short, it is where to go on from."""

    def acquire(self, run: str, worker: Worker) -> RunRow:
        """Give the lease of a run to a worker and return the new row, with epoch + 1.

        Refused with `LeaseHeld` while another worker, or this one, holds it alive; a holder whose process is known to be dead, whose machine
        was booted anew, or whose lease ended is overtaken. NotFound if there is no such run. Makes the worker known with its expiry.
        """

    def introduce(self, worker: Worker) -> None:
        """Make a worker known with its expiry, as `acquire` does: from then on runs can be created that it holds."""

    def holder(self, row: RunRow) -> Worker | None:
        """The worker that holds the lease of a run and is alive, as far as can be told without asking for the lease; None if nobody does."""

    def living(self) -> list[Worker]:
        """The workers that are alive, as `holder` can tell, by the time at which they started."""

    def release(self, row: RunRow) -> None:
        """Give a lease back (worker None, epoch kept); silently nothing if the epoch has moved on."""

    def renew(self, worker: Worker) -> None:
        """Store the worker's new expiry: one statement for all the leases that it holds."""

    def delete(self, row: RunRow) -> None:
        """Remove a run with its records, tags, letters, prune mark and added bases, and the family's chunks if it was the last of its
        family. A tombstone takes its place.

        Refused with `LeaseHeld` while it is open for writing, with `Conflict` if it has moved on since `row`.
        """

    def delete_many(self, rows: Sequence[RunRow]) -> set[bytes]:
        """Delete those of the runs that are still as in their rows and that nobody holds, as `delete` does, in one transaction.

        Gives their keys. Who has many to delete calls often, so that writers never wait long.
        """

    def manifest(self) -> Manifest:
        """The manifest as recorded (not computed)."""

    def stats(self) -> dict[str, int]:
        """Counts and bytes: runs, records, chunks, letters, record_bytes, chunk_bytes, file_bytes."""

    def check(self, stop: Callable[[], bool] | None = None) -> list[str] | None:
        """The engine's own integrity check: sentences, empty if all is well. `stop` is asked now and then whether there is no more time
        for it; then it gives None."""

    def close(self) -> None:
        """Make known what was submitted, stop threads, let go of files. Idempotent; later calls raise StoreClosed."""

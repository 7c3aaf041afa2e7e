"""What the store and a backend say to each other: commits, queries, places, counts. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from everstep.backends.contract.queues import Task
from everstep.fields import Shape, field
from everstep.records import Base, Letter, Pruned, Record, RunRow, Tag

MAX_SEQ = 2**31 - 1


class Committed(NamedTuple):
    """What a commit found out: how many letters its run has afterwards, and the same for the runs that were committed with it."""

    waiting: int
    others: tuple[int, ...] = ()


Outcome = Committed | BaseException
"""What became of a commit: what it found out, or why it was not made."""
Done = Callable[[Outcome], None]


class Commit(Shape):
    """One atomic step of one run.

    `was` is the row as the writer knows it (None: the run is created by this commit); `run` is the row as it
    shall be, sealed. The commit is refused with `LostLease` if the stored epoch is not `was.epoch` or the run is
    gone, with `Conflict` if the stored head_seq or check is not that of `was`, with `RunExists` if a run that shall be
    created exists, with `NotFound` if it shall be created as a fork (its family is not its key) and its parent is gone. `records` follow `was.head_seq` without a gap. `chunks` are (digest, frame) pairs of the run's family;
    one that is stored already is replaced, which heals it if it was damaged, unless the new frame is shorter. The tags of checkpoint records become tag rows.
    `read` names letters of this run that are removed (one that is not there is no fault); then `letters` are posted to it, as `post` does.
    `task` gives the run a place in a queue; refused with `AlreadyQueued` if the run is created by this commit and another one of the
    queue that has not ended is its double.
    """

    run: RunRow
    was: RunRow | None
    records: Sequence[Record] = ()
    chunks: Sequence[tuple[bytes, bytes]] = ()
    letters: Sequence[Letter] = ()
    read: Sequence[str] = ()
    task: Task | None = None


class Located(NamedTuple):
    """Where a checkpoint stands in its run: the seq of its record and that of the newest base for it or an earlier one, 0 if there is none.

    `mark` is what was pruned of the run, `added` the newest base that prune added at or before the checkpoint; None where a backend does not prune.
    `records` are there if they were asked for: those of the base (or all from the first, where there is none) to the checkpoint, with the one before
    them, which the chain is proved from.
    """

    seq: int
    base: int
    mark: Pruned | None = None
    added: Base | None = None
    records: Sequence[Record] = ()

    @property
    def first(self) -> int:
        """Where `records` begin: a base follows right behind the first checkpoint that it stands for."""
        return max(1, min(self.base, self.seq) - 1)

    def last(self, upto: int) -> int:
        return max(self.seq, self.base, upto)


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

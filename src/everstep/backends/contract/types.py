"""The types that the store and a backend exchange: commits, queries, positions, counts. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from everstep.backends.contract.queues import Task
from everstep.fields import Shape, field
from everstep.records import Base, Message, Pruned, Record, RunRow, Tag

MAX_SEQ = 2**31 - 1


class Committed(NamedTuple):
    """The result of a commit: how many messages its run has afterwards, and the same for the runs that were committed with it."""

    waiting: int
    others: tuple[int, ...] = ()


Outcome = Committed | BaseException
"""The outcome of a commit: its result, or the error because of which it was not made."""
Done = Callable[[Outcome], None]


class Commit(Shape):
    """One atomic step of one run.

    `was` is the row as the writer knows it (None: this commit creates the run); `run` is the new row, sealed. `records` follow
    `was.head_seq` without a gap. `chunks` are (digest, frame) pairs of the run's family; a chunk that is already stored is replaced, which
    heals it if it was damaged, unless the new frame is shorter. The tags of checkpoint records become tag rows. `read` names messages of this
    run that are removed (a missing one is not an error); then `messages` are posted to it, as by `post`. `task` creates a queue entry.

    The commit is refused
    - with `LostLease` if the stored epoch is not `was.epoch` or the run was deleted,
    - with `Conflict` if the stored head_seq or check is not that of `was`,
    - with `RunExists` if it creates a run that exists,
    - with `NotFound` if it creates a fork (its family is not its key) and its parent was deleted,
    - with `AlreadyQueued` if it creates a run with a `task` and the queue has a duplicate that has not ended.
    """

    run: RunRow
    was: RunRow | None
    records: Sequence[Record] = ()
    chunks: Sequence[tuple[bytes, bytes]] = ()
    messages: Sequence[Message] = ()
    read: Sequence[str] = ()
    task: Task | None = None
    family_key: bytes | None = None
    """The wrapped key of the family that this commit creates, in an encrypted store."""


class Located(NamedTuple):
    """The records of a checkpoint: the seq of its own record, and that of the newest base for it or an earlier one, 0 if there is none.

    `mark` is the prune mark of the run, `added` the newest base that prune added at or before the checkpoint; None in a backend that does
    not prune. `records` are present if they were asked for: those from the base (or from the first record, if there is no base) to the
    checkpoint, and the one before them, from which the chain is verified. `waiting` is the number of the run's messages, if the backend
    counted them in the same read: with 0, opening a run does not ask for them.
    """

    seq: int
    base: int
    mark: Pruned | None = None
    added: Base | None = None
    records: Sequence[Record] = ()
    waiting: int | None = None

    @property
    def first(self) -> int:
        """The seq of the first of `records`: a base directly follows the first checkpoint that it is for."""
        return max(1, min(self.base, self.seq) - 1)

    def last(self, upto: int) -> int:
        return max(self.seq, self.base, upto)


class Query(Shape):
    """The filter of a listing. Every given field narrows it; `after` is the cursor: only rows strictly beyond it in the listing's order.

    Runs are ordered by creation (their cursor is `cursor_of(row)`), checkpoints by number. `tags`: all of them must be present.
    `note`: a part of the note, ignoring case for ASCII. `meta`: each key must equal a JSON scalar. Times are µs; `since` is inclusive,
    `until` exclusive.
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
    """The recorded sum of all checks, the number of runs, and the run that was committed to last.

    `created` counts the runs that were ever created: each of them exists or has a tombstone. `writes` counts the transactions that
    changed any of this; a chunk is stamped with it when it is written, also when it is written again.
    """

    total: bytes
    runs: int
    last: str | None
    created: int = 0
    writes: int = 0


class Cut(Shape):
    """One atomic step of pruning one run.

    `was` is the run's prune mark as the caller knows it, `now` the new one. Refused with `Conflict` if the stored mark differs from `was`,
    with `NotFound` if the run was deleted or another run has its id (its key is not `now.key`). `bodies` are (seq, digest of the body):
    these bodies are dropped and their digests kept; one that is already dropped is not an error. `bases` are added, those of `gone`
    (numbers of checkpoints) removed, `chunks` stored as by a commit. `labels` are (seq, digest) of checkpoints that lose note, tags and
    metadata, with the digest that remains of them, None if there were none; they are not found by them any more, and their tag rows are removed. The run row, the
    chain and the feed do not change.
    """

    run: str
    was: Pruned | None
    now: Pruned
    bodies: Sequence[tuple[int, bytes]] = ()
    bases: Sequence[Base] = ()
    gone: Sequence[int] = ()
    chunks: Sequence[tuple[bytes, bytes]] = ()
    labels: Sequence[tuple[int, bytes | None]] = ()


class Census(Shape, frozen=True):
    """The recorded manifest, and the counts and sum of all rows at the same moment, so that a busy store can be compared, too.

    `created` is the number of runs ever created. The sum that was found is that of all stored checks: of run rows, tags, messages, prune
    marks, added bases, tombstones and properties. It does not show whether each row matches its own check. `tombstones` also counts the
    deleted runs of which only the position is kept.
    """

    total: bytes
    runs: int
    created: int
    found_total: bytes
    found_runs: int
    tombstones: int


class Gathered(Shape):
    """The rows of some runs, by id. `rows` has the runs that were read; the chunks are by family.

    A backend that pays a round trip for each read may have a method `gather(page, heads) -> Gathered`, where a page is a list of positions
    and rows. With `heads` it reads the data of a quick verify: of the records the newest and those after it, and no chunks.
    """

    rows: dict[str, RunRow] = field(default_factory=dict)
    tags: dict[str, list[Tag]] = field(default_factory=dict)
    messages: dict[str, list[Message]] = field(default_factory=dict)
    marks: dict[str, Pruned] = field(default_factory=dict)
    bases: dict[str, list[Base]] = field(default_factory=dict)
    records: dict[str, list[Record]] = field(default_factory=dict)
    """All records, of runs that have few; or only the newest."""
    sizes: dict[bytes, dict[bytes, int]] = field(default_factory=dict)
    frames: dict[bytes, dict[bytes, bytes]] = field(default_factory=dict)
    parents: set[str] = field(default_factory=set)
    """The runs that another run was forked from or called by."""

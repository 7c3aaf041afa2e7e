"""The audit of a run: who did what when, in the order of its records, and a proof that nothing of it is missing. Reads only.

The records of a run are a chain. The audit verifies it from record 1 to the head, so an entry from a record was not changed, and none is
missing. Entries without a record are known from other rows, which have a digest of their own each: tags that were added later, forks and
child runs, the last pruning, messages that the run has not read yet, and the deletion of the run. They are placed by their times.

`who` is a claim of the process that wrote the record: a worker is `host:pid`, a person is the setting `user`
(by default login@host) or the `by` of an answer. Prunings and deletions have no name.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from everstep.backends.contract.audit import Audit
from everstep.backends.contract.capability import need
from everstep.backends.contract.core import Backend, Query
from everstep.errors import Damaged, DamagedRecord, DamagedRun
from everstep.fields import Shape, field
from everstep.ids import check_id
from everstep.records import CHILD, Kind, Message, Record, RunRow, Status, Tombstone
from everstep.store.encryption.frames import content_of_message
from everstep.store.events.feed import event_of
from everstep.store.journal.attached import number_in
from everstep.store.journal.entries import AnswerEntry, EventEntry, StepEntry, open_entry, said_in
from everstep.store.load import checked, checkpoint_record
from everstep.store.refs import find_run, tags_of, verified
from everstep.store.retention.run_survey import mark_of, proved, refuse_vanished
from everstep.store.views import when

if TYPE_CHECKING:
    from everstep.store.store import BaseStore

_AT_ONCE = 500
_CHECKED_AT_ONCE = 10_000
_ORDERS = {
    "answer": "answer_sent",
    "again": "retry_requested",
    "skip": "skip_requested",
    "pause": "pause_requested",
    "cancel": "cancel_requested",
}


class Entry(Shape, frozen=True):
    """Something that was done to a run. `seq` is that of its record; None: it has none. `at` is in µs."""

    what: str
    at: int
    who: str | None = None
    seq: int | None = None
    attempt: int | None = None
    data: dict[str, Any] = field(default_factory=dict)


class Proof(Shape):
    """The records that the audit of a run was verified against. `whole`: every record since the first one is there and was verified."""

    run: str
    key: str = ""
    status: str = ""
    records: int = 0
    head_digest: str = ""
    checkpoints: int = 0
    entries: int = 0
    deleted: bool = False
    """Whether the run was deleted: its tombstone names its newest record, and nothing else remains to verify."""
    lost: int = 0
    """How many records a repair could not recover. Each has an event `lost` in its place."""
    pruned: int = 0
    """How many records lost their bodies by pruning: the states of checkpoints. Their digests were verified."""
    pruned_checkpoints: tuple[tuple[int, int], ...] = ()
    """The checkpoints without a state, as ranges."""
    dropped: int = 0
    """How many checkpoints lost their note, tags and metadata, which `store.drop` removes."""
    origin: str | None = None
    """Of a fork: whether the checkpoint that it names is the parent's: `confirmed`, `deleted` (the parent is gone) or `differs`."""

    @property
    def whole(self) -> bool:
        return not self.deleted and not self.lost and self.origin != "differs"


class Deletions(Shape, frozen=True):
    """How many runs were ever created, are there, and were deleted; `unnamed` deletions are known only by their positions.

    `whole`: each run that was ever created is there or was deleted, and the sum of all rows is that of the manifest.
    """

    whole: bool
    created: int
    runs: int
    deleted: int
    unnamed: int


def audit(backend: Backend, run: str) -> Iterator[Entry | Proof]:
    """Return the audit of a run in order; last its proof. Reading on raises `Damaged` if a record does not match the chain."""
    row = backend.run(check_id(run))
    stones = [stone for stone in _tombstones(backend) if stone.id == run]
    if row is None and not stones:
        row = find_run(backend, run)  # raises the error that names similar ids
    return _with_earlier(backend, run, row, stones)


def _with_earlier(backend: Backend, run: str, row: RunRow | None, stones: list[Tombstone]) -> Iterator[Entry | Proof]:
    """Yield what is known of deleted runs with this id, then the audit of the one that is there."""
    for stone in stones:
        yield Entry("run_created", stone.created_at)
        yield deletion(stone)
    if row is None:
        stone = stones[-1]
        yield Proof(
            run, stone.key.hex(), "deleted", stone.head_seq, stone.head_digest.hex(), stone.checkpoints, 2 * len(stones), deleted=True
        )
        return
    yield from _Audit(backend, verified(row, backend.seal), 2 * len(stones)).all()


def deletion(stone: Tombstone) -> Entry:
    return Entry("run_deleted", stone.at, data={"run": stone.id, "records": stone.head_seq, "checkpoints": stone.checkpoints})


def deletions(store: BaseStore) -> Iterator[Entry | Deletions]:
    """Yield the deletions of all runs whose tombstones are kept, in the order in which the runs were created; last what they add up to."""
    need(store.backend, Audit)
    named = 0
    for stone in _tombstones(store.backend):
        named += bool(stone.id)
        yield deletion(stone) if stone.id else Entry("run_lost", stone.at, data={"position": stone.pk})
    found = store.backend.census()
    adds_up = (found.total, found.runs, found.created) == (found.found_total, found.found_runs, found.found_runs + found.tombstones)
    yield Deletions(adds_up, found.created, found.found_runs, found.tombstones, found.tombstones - named)


def _tombstones(backend: Backend) -> Iterator[Tombstone]:
    after = 0
    while found := backend.tombstones(after, _AT_ONCE):
        for stone in found:
            if stone.digest(backend.seal) != stone.check:
                raise Damaged(f"the tombstone of position {stone.pk} does not match its digest")
            yield stone
        after = found[-1].pk


class _Audit:
    """Walks the chain of one run, and puts what has no record where its time belongs."""

    def __init__(self, backend: Backend, row: RunRow, before: int):
        self._backend, self._row = backend, row
        self._proof = Proof(row.id, row.key.hex(), row.status, row.head_seq, row.head_digest.hex(), row.checkpoints, before)
        self._worker: tuple[int, str | None] = (0, None)  # of the current attempt
        self._own_tags: set[tuple[str, int]] = set()
        self._number = 0
        self._answered: set[str] = set()
        self._stopped_at = 0
        self._copying = False  # until a fork's first status
        self._without_body: list[tuple[int, str]] = []
        self._detached: list[tuple[int, int]] = []  # attached entries without a body, with their checkpoints

    def all(self) -> Iterator[Entry | Proof]:
        beside = deque(sorted((*self._tags(), *self._runs(), *self._pruning()), key=lambda entry: entry.at))
        for record in proved(self._backend, self._row):
            while beside and beside[0].at < record.at and beside[0].data.get("number", 0) <= self._number:
                yield from self._given(beside.popleft())
            self._number = record.number
            yield from self._given(self._of(record))
        self._check_bodies()
        for entry in sorted((*beside, *self._orders()), key=lambda entry: entry.at):
            yield from self._given(entry)
        mark = mark_of(self._backend, self._row)
        self._proof.pruned_checkpoints = mark.numbers if mark is not None else ()
        yield self._proof

    def _given(self, entry: Entry | None) -> Iterator[Entry]:
        """Count an entry. A tag that the checkpoint got when it was made is in its record."""
        if entry is None or (entry.what == "checkpoint_tagged" and (entry.data["tag"], entry.data["number"]) in self._own_tags):
            return
        self._proof.entries += 1
        yield entry

    def _of(self, record: Record) -> Entry | None:
        if record.body is None:
            self._proof.pruned += 1
            if record.kind == Kind.ATTACHED:
                self._detached.append((record.seq, number_in(record)))
            else:
                self._without_body.append((record.seq, record.kind))
            if len(self._without_body) + len(self._detached) >= _CHECKED_AT_ONCE:
                self._check_bodies()
        if record.epoch != self._worker[0]:
            self._worker = (record.epoch, None)
        who = self._who(record)
        event = event_of(record.seq, record)
        data = dict(event.data)
        self._note(record, event.name, data)
        if record.kind == Kind.STATUS:
            self._copying = False
        elif self._copying and record.kind not in (Kind.START, Kind.CHECKPOINT):
            data["copied"] = True  # it was done in the run that this one was forked from
        if record.kind == Kind.BASE:  # the state in another form, which is not an act of its own
            return None
        return Entry(event.name, record.at, who, record.seq, record.epoch, data)

    def _who(self, record: Record) -> str | None:
        """Return who made a record: the user who gave the order, or the worker of the attempt."""
        kind, user, worker = record.kind, None, None
        if record.body is None or kind not in (Kind.START, Kind.STATUS, Kind.STEP, Kind.ANSWER, Kind.EVENT):
            return self._worker[1]
        if kind in (Kind.START, Kind.STATUS):
            said = said_in(record)
            user, worker = said.get("user"), said.get("worker")
        else:
            match open_entry(record):
                case StepEntry() as step:
                    user, worker = step.flags.get("user"), step.worker
                case AnswerEntry() as answer:
                    user = _both(answer.by, answer.flags.get("user"))
                case EventEntry() as event:
                    user = event.said().get("user")
        if isinstance(worker, str) and worker:
            self._worker = (record.epoch, worker)
        if kind == Kind.START:
            return user if isinstance(user, str) else None
        return user if isinstance(user, str) and user else self._worker[1]

    def _note(self, record: Record, name: str, data: dict[str, Any]) -> None:
        """Note what the end of the audit needs, and add what events leave out."""
        if record.kind == Kind.START:
            said = said_in(record) if record.body is not None else {}
            if said.get("parent"):
                self._copying = True
                data["edited"] = bool(said.get("edited") or said.get("state_edited"))
                data["origin"] = self._proof.origin = self._origin(said)
        elif record.kind == Kind.CHECKPOINT:
            self._own_tags.update((tag, record.number) for tag in record.shown()[1])
            self._proof.dropped += record.labels is not None and record.note is None and record.meta is None and not record.tags
        elif record.kind == Kind.ANSWER:
            self._answered.add(record.note or "")
        elif record.kind == Kind.STATUS:
            self._stopped_at = record.at
            pause = said_in(record).get("pause") if record.body is not None else None
            if isinstance(pause, dict) and isinstance(pause.get("at"), int):
                data["pause"] = {"at": when(pause["at"]), "reason": pause.get("reason"), "user": pause.get("user")}
        elif name == "lost":
            self._proof.lost += 1

    def _origin(self, said: dict[str, Any]) -> str | None:
        """Compare the checkpoint that a fork names with its parent."""
        number, digest = said.get("number"), said.get("digest")
        if not isinstance(number, int) or not isinstance(digest, bytes):
            return None
        parent = self._backend.run(str(said["parent"]))
        if parent is None or parent.key != said.get("parent_key"):
            return "deleted"
        verified(parent, self._backend.seal)
        fits = number <= parent.checkpoints and checkpoint_record(self._backend, parent, number).digest == digest
        return "confirmed" if fits else "differs"

    def _check_bodies(self) -> None:
        """A body may be missing only where the prune mark says so. The mark is read after the records."""
        mark = mark_of(self._backend, self._row)
        refuse_vanished(self._row, self._without_body, mark)
        for seq, number in self._detached:
            if mark is None or mark.has_state(number):
                raise DamagedRecord(self._row.id, seq, "its body is missing although its checkpoint was not dropped")
        self._without_body, self._detached = [], []

    def _tags(self) -> Iterator[Entry]:
        for tag in tags_of(self._backend, self._row):
            yield Entry("checkpoint_tagged", tag.at, data={"number": tag.number, "tag": tag.name})

    def _runs(self) -> Iterator[Entry]:
        """Yield the forks of this run, and the child runs that it called."""
        after = 0
        while True:
            rows = self._backend.runs(Query(parent=self._row.id, oldest_first=True, after=after, limit=_AT_ONCE))
            for _, row in rows:
                verified(row, self._backend.seal)
                said = said_in(checked(self._backend, row, 1, 1)[0]) if row.head_seq else {}
                if row.parent_number == CHILD:
                    if row.created_at >= self._row.created_at:
                        yield Entry("child_run_created", row.created_at, data={"run": row.id})
                elif said.get("parent_key", self._row.key) == self._row.key:
                    user = said.get("user")
                    about = {"run": row.id, "at": row.parent_number, "edited": bool(said.get("edited") or said.get("state_edited"))}
                    yield Entry("fork_created", row.created_at, user if isinstance(user, str) else None, data=about)
            if len(rows) < _AT_ONCE:
                return
            after = rows[-1][0]

    def _pruning(self) -> Iterator[Entry]:
        mark = mark_of(self._backend, self._row)
        if mark is not None:
            yield Entry("states_pruned", mark.at, data={"checkpoints": [list(pair) for pair in mark.numbers], "bytes": mark.freed})

    def _orders(self) -> Iterator[Entry]:
        """Yield the orders of people that the run has not obeyed yet."""
        for message in self._backend.messages(self._row.id):
            if message.digest(self._backend.seal) != message.check or message.key != self._row.key:
                raise DamagedRun(f"the message {message.name!r} to run {self._row.id!r} does not match its digest")
            kind, _, address = message.name.partition(":")
            obeyed = address in self._answered if kind == "answer" else kind in ("pause", "cancel") and message.at <= self._stopped_at
            if kind in _ORDERS and not obeyed and self._row.status != Status.CANCELLED:
                yield self._order(message, _ORDERS[kind], address)

    def _order(self, message: Message, what: str, address: str) -> Entry:
        said = content_of_message(self._backend, self._row, message)
        said = said if isinstance(said, dict) else {}
        about = {"gate" if what == "answer_sent" else "step": address} if address else {}
        about |= {name: said[name] for name in ("value", "reason", "result") if said.get(name) is not None}
        return Entry(what, message.at, _both(said.get("by"), said.get("user")), data=about)


def _both(by: Any, user: Any) -> str | None:
    """Return the name that an answer gives, and the user whose process sent it."""
    names = [name for name in (by, user) if isinstance(name, str) and name]
    return f"{names[0]} ({names[1]})" if len(names) == 2 and names[0] != names[1] else names[0] if names else None

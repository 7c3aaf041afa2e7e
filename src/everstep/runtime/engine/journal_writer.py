"""Writes the commits of one attempt: builds them, hands them over in order, and takes them back if they were not made.

Holds the journal entries that wait for the next commit, and the commits in flight (`async` and `exit`). Keeps the attempt's row and live state
equal to what should be stored. Relies on the backend to order and fence. One thread at a time saves the state; journal entries may come
from any. Decides nothing: `Saves`, `steps.record` and `finish` decide what to write.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from threading import get_ident
from typing import TYPE_CHECKING, Any, Literal, cast

from everstep.backends.contract.core import Commit, Committed, Outcome, submit
from everstep.errors import (
    Conflict,
    EverstepError,
    InvalidArgument,
    LostLease,
    Reentered,
    RunBusy,
)
from everstep.records import Kind, Record, RunRow
from everstep.runtime.engine.in_flight import Underway
from everstep.store.chain import Chain, Entry
from everstep.store.journal.entries import StepEntry, open_as
from everstep.store.query import check_note, check_tags, to_meta
from everstep.store.store import checkpoint_commit
from everstep.store.views import own_text
from everstep.threads.guard import RUN, Guard, interrupts

if TYPE_CHECKING:
    from everstep.runtime.engine.attempt import Attempt

Durability = Literal["sync", "async", "exit"]
MOST_BEHIND = 64
MOST_KEPT = 1000
_CHECKPOINT, _STEP = Kind.CHECKPOINT.value, Kind.STEP.value
_WORDS = frozenset({Kind.GATE.value, Kind.ANSWER.value, Kind.TIMER.value, Kind.EVENT.value})


class JournalWriter:
    """The writing part of an attempt."""

    def __init__(self, attempt: Attempt):
        self._attempt = attempt
        self._store = attempt.store
        self.is_sync = attempt.durability == "sync"  # a commit is durable when the call that makes it returns
        self._keeps = attempt.durability == "exit"  # commits are kept back until the run is closed
        self.lock = Guard(RUN)  # commits of one run are built and handed over in one order
        self.entries: list[Entry] = []
        self.stale = False  # a checkpoint was made that the live state's list of changes does not know
        self.message_count: int | None = None  # how many messages there were after the newest commit
        self._counted_at = 0  # the sequence number of that commit
        self._behind: deque[Commit] = deque()
        self._underway = Underway()
        self._user: int | None = None  # the thread that is building a checkpoint

    def put(self, kind: str, content: bytes, address: str | None, chunks: Any = ()) -> None:
        """Add an entry to the next commit."""
        with self.lock:  # otherwise a commit that another thread is building could drop the entry
            self.entries.append(Entry(kind, content, address, chunks))

    # Building.

    def refuse_second_saver(self) -> None:
        if self._user not in (None, get_ident()):
            raise RunBusy(f"another thread is saving run {self._attempt.id!r} through the same handle")

    def prepare(
        self, note: str | None, tags: Iterable[str] | str, meta: Mapping[str, Any] | None, state: Any, header: dict[str, Any]
    ) -> Commit:
        """Build the commit of a checkpoint and treat it as done; `undo` takes that back."""
        self.refuse_second_saver()
        try:
            self._user = get_ident()
            attempt = self._attempt
            row, saver = attempt.live()
            attempt.refuse_broken()
            mask = attempt.mask
            if mask is not None:
                note, meta = mask.text(note), mask.meta(meta)
            checked = check_note(note), check_tags(tags), to_meta(meta), own_text(header)
            if self.stale:
                saver.lost()
                self.stale = False
            if state is not None:
                saver.hand_in(state)
            entries = self.entries
            commit = checkpoint_commit(self._store, row, saver, *checked, entries)
            self.entries = []
            attempt.row = commit.run
            return attempt.messages.carry(commit)
        finally:
            self._user = None

    def note(self) -> Commit:
        """Build a commit of journal entries only."""
        attempt = self._attempt
        row, _ = attempt.live()
        attempt.refuse_broken()
        chain = Chain(self._store.framer, row, row, self._store.backend.seal)
        chain.entries(self.entries)
        commit = chain.commit()
        self.entries = []
        attempt.row = commit.run
        return attempt.messages.carry(commit)

    # Handing over.

    def commit(self, build: Callable[[], Commit], hand_over: Callable[[Commit], None] | None = None) -> Commit:
        """Build a commit and hand it over, by default until it is as durable as this run requires. If that raises, take it back."""
        self.lock.check()
        commit = None
        with self.lock:
            before = self._attempt.row
            try:
                commit = build()
                (hand_over or self.make_durable)(commit)
            except BaseException as error:
                self.take_back(commit, before, error)
                self._attempt.met(error)
                raise
        return commit

    def make_durable(self, commit: Commit) -> None:
        if self.is_sync:
            self.note_messages(commit, self._store.backend.commit(commit))
        else:
            self.defer(commit)

    def note_messages(self, commit: Commit, committed: Committed) -> None:
        """Note how many messages there are after a commit. Outcomes may arrive late from other threads: the newest commit counts."""
        if commit.run.head_seq >= self._counted_at:
            self._counted_at, self.message_count = commit.run.head_seq, committed.waiting

    def write_entries(self) -> None:
        """Make the pending entries durable, without a checkpoint."""
        self.commit(self.note)
        self._attempt.messages.look_after_commit()

    def flush(self) -> None:
        """Return when all pending entries are durable; raise if something could not be saved."""
        self.lock.check()
        self._attempt.live()
        if self.entries:  # otherwise they wait for the next commit, and a kill before it loses them
            self.write_entries()
        self.catch_up()

    def is_full(self) -> bool:
        """Whether the next save will have to wait for earlier ones."""
        return self._underway.count >= MOST_BEHIND or len(self._behind) + 1 >= MOST_KEPT

    def make_room(self) -> None:
        """Wait until another save can be deferred."""
        if self._keeps:
            with self.lock:
                self.catch_up()
        self._underway.wait(MOST_BEHIND - 1)

    def defer(self, commit: Commit) -> None:
        """Accept a commit that need not be durable yet."""
        if self._keeps:
            if len(self._behind) >= MOST_KEPT:
                self.catch_up()  # before this one is accepted: if the disk is full, this one was not made, and the others still wait
            self._behind.append(commit)
            return
        self._underway.wait(MOST_BEHIND - 1)
        sent = object()
        try:
            self._underway.sent(sent)
            submit(self._store.backend, commit, lambda outcome: self._settle(commit, sent, outcome))
        except BaseException as error:
            self._underway.settled(sent)  # no other thread does it
            self._settle(commit, sent, error)
            raise

    def _settle(self, commit: Commit, sent: object, outcome: Outcome) -> None:
        """Settle a commit, possibly twice if memory was short. The failure is stored before the commit counts as settled."""
        if not isinstance(outcome, BaseException):
            self.note_messages(commit, outcome)
        elif self._attempt.failure is None:
            self._attempt.broken_by(outcome if isinstance(outcome, EverstepError) else EverstepError(str(outcome), written="unknown"))
        self._underway.settled(sent)

    def catch_up(self) -> None:
        """Return when every accepted commit is durable; raise if one could not be saved."""
        attempt = self._attempt
        attempt.live()
        if self._behind:
            joined = _joined(self._behind)
            try:
                self.note_messages(joined, self._store.backend.commit(joined))
            except BaseException as error:
                if _is_answer(error) or not self._happened(joined):
                    attempt.met(error)
                    raise
            self._behind.clear()
        self._underway.wait(0)
        attempt.refuse_broken()

    # Taking back.

    def take_back(self, commit: Commit | None, before: RunRow | None, error: BaseException) -> None:
        """Restore the state before a commit that was not made, or may not have been; it may not even have been built."""
        saver = self._attempt.saver
        if commit is not None:
            self.undo(commit, error)
        elif saver is not None and not _is_answer(error):  # Ctrl-C between building the commit and returning it
            self._attempt.row = before
            saver.lost()

    def undo(self, commit: Commit, error: BaseException) -> None:
        """Restore row and state as they were before a commit that was not made, or whose outcome is unknown."""
        attempt = self._attempt
        if attempt.saver is None:
            return  # a task was cancelled while it waited, and the run was closed since
        with self.lock:
            row, saver = attempt.live()
            if not _is_answer(error) and self._happened(commit):
                return  # Ctrl-C came after the commit
            if commit.was is not None and row.head_seq >= commit.run.head_seq:
                attempt.row = commit.was
            if any(record.kind == _CHECKPOINT for record in commit.records):
                saver.lost()
            if self._behind and self._behind[-1] is commit:
                return  # Ctrl-C came after it was accepted
            self.entries[:0] = [Entry(r.kind, r.content(), r.note) for r in commit.records if r.body and _was_seen(r)]
            attempt.messages.put_back(commit)
            if isinstance(error, EverstepError) and (error.written != "no" or isinstance(error, (LostLease, Conflict))):
                attempt.broken_by(error)  # fenced, or the disk failed: this handle must not write any more

    def _happened(self, commit: Commit) -> bool:
        """Find out an unknown outcome: the check of the row identifies this commit."""
        stored = self._store.backend.run(commit.run.id)
        return stored is not None and stored.check == commit.run.check


def _joined(commits: deque[Commit]) -> Commit:
    """Return one commit with the content of several in a row."""
    return Commit(
        commits[-1].run, commits[0].was, [r for c in commits for r in c.records], [c for b in commits for c in b.chunks],
        [x for c in commits for x in c.messages], [n for c in commits for n in c.read],
    )  # fmt: skip


def _is_answer(error: BaseException) -> bool:
    """Whether an error tells the outcome of a save. Ctrl-C does not, nor an error that a signal handler raised in the middle of it."""
    return isinstance(error, EverstepError) and not isinstance(error, Reentered) and not interrupts(error)


def check_durability(durability: Any) -> Durability:
    if durability not in ("sync", "async", "exit"):
        raise InvalidArgument(f"durability must be sync, async or exit, got {durability!r:.60}", remedy="Use sync, async or exit.")
    return cast(Durability, durability)


def _was_seen(record: Record) -> bool:
    """Whether the program relies on an entry already. Not on the end of a step: its call raises that it could not be recorded."""
    if record.kind == _STEP:
        flags = open_as(record, StepEntry).flags
        return bool(flags.get("value") or flags.get("why"))
    return record.kind in _WORDS

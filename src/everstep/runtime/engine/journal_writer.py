"""What one run writes: commits, built and handed over in one order, and taken back when they were not made.

Holds the row and the state as they are believed to be stored, the journal entries and letters that wait for the next commit, and the
commits that are on their way (`async` and `exit`). Relies on the backend to order and fence. One thread at a time saves the state; journal
entries may come from any.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from threading import get_ident
from typing import Any, Literal, cast

from everstep.backends.contract.core import Commit
from everstep.errors import (
    AttemptLost,
    Conflict,
    EverstepError,
    InvalidArgument,
    LostLease,
    Reentered,
    RunBusy,
    RunClosed,
    StoreError,
    TransactionUnknown,
)
from everstep.records import Kind, Letter, Record, RunRow
from everstep.runtime.engine.in_flight import Underway
from everstep.snapshot.saver import Saver
from everstep.store.chain import Chain, Entry
from everstep.store.journal.entries import StepEntry, open_as
from everstep.store.query import check_note, check_tags, to_meta
from everstep.store.store import BaseStore
from everstep.store.views import own_text
from everstep.threads.guard import RUN, Guard, interrupts

Durability = Literal["sync", "async", "exit"]
MOST_BEHIND = 64
MOST_KEPT = 1000
_CHECKPOINT, _STEP = Kind.CHECKPOINT.value, Kind.STEP.value
TROUBLE = (StoreError, LostLease, Conflict, TransactionUnknown)
"""Errors of the store itself. No failure of a run is made of them, whatever its program does with them."""
_WORDS = frozenset({Kind.GATE.value, Kind.ANSWER.value, Kind.TIMER.value, Kind.EVENT.value})


class Recorder:
    """The writing half of a run. `_replays`: its program is run again from its beginning, so that an attempt can be given up at any call."""

    _replays = False

    def __init__(self, store: BaseStore, durability: Durability):
        self._store = store
        self._durability = check_durability(durability)
        self._row: RunRow | None = None
        self._saver: Saver | None = None
        self._failure: EverstepError | None = None  # the store failed under this attempt: it records nothing more, not even its end
        self._behind: deque[Commit] = deque()
        self._underway = Underway()
        self._user: int | None = None  # the thread that is building a checkpoint
        self._lock = Guard(RUN)  # commits of one run are built and handed over in one order
        self._forget()

    @property
    def id(self) -> str:
        """The id of the run, which never changes."""
        if self._row is None:
            raise RunClosed("the run is not open yet")
        return self._row.id

    def _forget(self) -> None:
        """Nothing waits for a commit."""
        self._mask = self._store._mask  # a run that is open keeps what it was opened with
        self._entries: list[Entry] = []
        self._read: list[str] = []
        self._outgoing: list[Letter] = []
        self._heard: int | None = None  # how many letters there were when a commit on its way was made
        self._trouble: EverstepError | None = None  # the newest error of the store that the program was told
        self._unwritten: set[str] = set()  # steps that ran and whose end could not be recorded
        self._stale = False  # a checkpoint was made that the live state's account of its changes knows nothing of

    def _open(self) -> tuple[RunRow, Saver]:
        if self._row is None or self._saver is None:
            raise RunClosed("the run is not open", remedy="Use it inside its block: with store.run(id) as run: ...")
        return self._row, self._saver

    def _refuse_broken(self) -> None:
        """Raise what ended this attempt, if anything did. A workflow must not be able to take that for an error of its own."""
        if self._failure is not None:
            raise AttemptLost(self.id, self._failure) if self._replays else self._failure

    def _met(self, error: BaseException, step: bool = False) -> None:
        """Before an error is raised that a commit or a read of this run met: the store's own trouble ends the attempt of a workflow, which is
        told by AttemptLost. In a loop of one's own it does so after a `step`, whose result is missing; a checkpoint can be saved again."""
        if not isinstance(error, TROUBLE):
            return
        self._trouble = error
        if step or self._replays:
            self._failure = self._failure or error
        if self._replays:
            raise AttemptLost(self.id, self._failure or error) from error

    def _error_body(self, error: BaseException) -> dict[str, Any]:
        """What is kept of an error in this store."""
        from everstep.store.journal.failures import error_body  # only when something failed

        mask = self._mask
        return error_body(error) if mask is None else mask.error(error_body(error, mask.redactor.text))

    def _refuse_second_saver(self) -> None:
        if self._user not in (None, get_ident()):
            raise RunBusy(f"another thread is saving run {self.id!r} through the same handle")

    def _prepare(
        self, note: str | None, tags: Iterable[str] | str, meta: Mapping[str, Any] | None, state: Any, header: dict[str, Any]
    ) -> Commit:
        """Build the commit of a checkpoint and take it as done; `_undo` takes that back."""
        self._refuse_second_saver()
        try:
            self._user = get_ident()
            row, saver = self._open()
            self._refuse_broken()
            mask = self._mask
            if mask is not None:
                note, meta = mask.text(note), mask.meta(meta)
            checked = check_note(note), check_tags(tags), to_meta(meta), own_text(header)
            if self._stale:
                saver.lost()
                self._stale = False
            if state is not None:
                saver.hand_in(state)
            entries = self._entries
            commit = self._store.commit(row, saver, *checked, entries)
            self._entries = []
            self._row = commit.run
            return self._carry(commit)
        finally:
            self._user = None

    def _carry(self, commit: Commit) -> Commit:
        """Give a commit the letters that go with it."""
        if self._outgoing or self._read:
            commit.letters, self._outgoing = self._outgoing, []
            commit.read, self._read = self._read, []
        return commit

    def _take_back(self, commit: Commit | None, before: RunRow | None, error: BaseException) -> None:
        if commit is not None:
            self._undo(commit, error)
        elif self._saver is not None and not _is_answer(error):  # Ctrl-C between building and knowing it
            self._row = before
            self._saver.lost()

    def _undo(self, commit: Commit, error: BaseException) -> None:
        """A commit was not made, or nobody knows: what is believed to be stored goes back to before it."""
        if self._saver is None:
            return  # a task was cancelled while it waited, and has left the run since
        with self._lock:
            row, saver = self._open()
            if not _is_answer(error) and self._happened(commit):
                return  # Ctrl-C came after the commit
            if commit.was is not None and row.head_seq >= commit.run.head_seq:
                self._row = commit.was
            if any(record.kind == _CHECKPOINT for record in commit.records):
                saver.lost()
            if self._behind and self._behind[-1] is commit:
                return  # Ctrl-C came when it was on its way
            self._entries[:0] = [Entry(r.kind, r.content(), r.note) for r in commit.records if r.body and _was_seen(r)]
            self._read[:0] = commit.read
            self._outgoing[:0] = commit.letters
            if isinstance(error, EverstepError) and (error.written != "no" or isinstance(error, (LostLease, Conflict))):
                self._failure = self._failure or error  # fenced, or the disk failed: this handle writes no more

    def _happened(self, commit: Commit) -> bool:
        """Settle an unknown outcome: the check of the row tells this commit from any other."""
        stored = self._store.backend.run(commit.run.id)
        return stored is not None and stored.check == commit.run.check

    def _durable(self, commit: Commit) -> None:
        if self._durability == "sync":
            self._store.backend.commit(commit)
        else:
            self._defer(commit)

    def _commit(self, build: Callable[[], Commit], hand_over: Callable[[Commit], None] | None = None) -> Commit:
        """Build a commit and hand it over, by default until it is as durable as this run is; one that is not even taken was not made."""
        self._lock.check()
        commit = None
        with self._lock:
            before = self._row
            try:
                commit = build()
                (hand_over or self._durable)(commit)
            except BaseException as error:
                self._take_back(commit, before, error)
                self._met(error)
                raise
        return commit

    def _full(self) -> bool:
        """Whether the next save will have to wait for earlier ones."""
        return self._underway.count >= MOST_BEHIND or len(self._behind) + 1 >= MOST_KEPT

    def _make_room(self) -> None:
        """Wait until another save can be deferred."""
        if self._durability == "exit":
            with self._lock:
                self._catch_up()
        self._underway.wait(MOST_BEHIND - 1)

    def _defer(self, commit: Commit) -> None:
        """Take a commit that need not be durable yet."""
        if self._durability == "exit":
            if len(self._behind) >= MOST_KEPT:
                self._catch_up()  # before this one is taken: if the disk is full, this one was not made, and the others still wait
            self._behind.append(commit)
            return
        self._underway.wait(MOST_BEHIND - 1)
        sent = object()
        try:
            self._underway.sent(sent)
            self._store.backend.submit(commit, lambda error: self._settle(commit, sent, error))
        except BaseException as error:
            self._underway.settled(sent)  # nobody else will
            self._settle(commit, sent, error)
            raise

    def _settle(self, commit: Commit, sent: object, error: BaseException | None) -> None:
        """Once, or again if there was no memory: what failed is known before it is taken for settled."""
        if error is None:
            self._heard = commit.waiting
        elif self._failure is None:
            self._failure = error if isinstance(error, EverstepError) else EverstepError(str(error), written="unknown")
        self._underway.settled(sent)

    def _catch_up(self) -> None:
        """Return when every commit that was handed over is durable; raise if one could not be made so."""
        self._open()
        if self._behind:
            first, last = self._behind[0], self._behind[-1]
            joined = Commit(
                last.run, first.was, [r for c in self._behind for r in c.records], [c for b in self._behind for c in b.chunks],
                [x for c in self._behind for x in c.letters], [n for c in self._behind for n in c.read],
            )  # fmt: skip
            try:
                self._store.backend.commit(joined)
            except BaseException as error:
                if _is_answer(error) or not self._happened(joined):
                    self._met(error)
                    raise
            self._behind.clear()
            self._heard = joined.waiting
        self._underway.wait(0)
        self._refuse_broken()

    def _note(self) -> Commit:
        """A commit of journal entries alone."""
        row, _ = self._open()
        self._refuse_broken()
        chain = Chain(self._store.framer, row, row, self._store.backend.seal)
        chain.entries(self._entries)
        commit = chain.commit()
        self._entries = []
        self._row = commit.run
        return self._carry(commit)

    def _put(self, kind: str, content: bytes, address: str | None, chunks: Any = ()) -> None:
        with self._lock:  # otherwise a commit that another thread is building could throw the entry away
            self._entries.append(Entry(kind, content, address, chunks))


def _is_answer(error: BaseException) -> bool:
    """Whether an error says what became of a save. One that a signal handler raised in the middle of it does not, nor does Ctrl-C."""
    return isinstance(error, EverstepError) and not isinstance(error, Reentered) and not interrupts(error)


def check_durability(durability: Any) -> Durability:
    if durability not in ("sync", "async", "exit"):
        raise InvalidArgument(f"{durability!r} is no durability", remedy="Use sync, async or exit.")
    return cast(Durability, durability)


def _was_seen(record: Record) -> bool:
    """Whether the program relies on an entry already. The end of a step is not: it is raised there that it could not be recorded."""
    if record.kind == _STEP:
        flags = open_as(record, StepEntry).flags
        return bool(flags.get("value") or flags.get("why"))
    return record.kind in _WORDS

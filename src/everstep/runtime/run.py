"""The handle with which a program writes one run: its live state and its checkpoints.

`with store.run(id) as run` takes the run's lease and goes on from its head; leaving the block gives it back and records how it
ended. Nothing is saved but by `checkpoint`. One handle belongs to one thread or task at a time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import suppress
from threading import Condition, get_ident
from types import TracebackType
from typing import Any, Literal

from everstep.backends.base import Commit
from everstep.codec.values import decode, encode
from everstep.errors import Conflict, EverstepError, InvalidArgument, LostLease, RunBusy, RunClosed
from everstep.records import Record, RunRow, Status
from everstep.runtime.lease import Keeper
from everstep.snapshot.saver import Saver
from everstep.store.model import Checkpoint
from everstep.store.query import check_note, check_tags, to_meta
from everstep.store.reading import load
from everstep.store.refs import verified
from everstep.store.store import BaseStore
from everstep.store.writing import Chain

Durability = Literal["sync", "async", "exit"]
MOST_BEHIND = 64
MOST_KEPT = 1000


class Run:
    """One run, open for writing."""

    def __init__(self, store: BaseStore, keeper: Keeper, id: str | None, state: Any, durability: Durability, fields: dict[str, Any]):
        if durability not in ("sync", "async", "exit"):
            raise InvalidArgument(f"{durability!r} is no durability", remedy="Use sync, async or exit.")
        self._store = store
        self._keeper = keeper
        self._given = (id, state, fields)
        self._durability = durability
        self._row: RunRow | None = None
        self._saver: Saver | None = None
        self._failure: EverstepError | None = None
        self._behind: deque[Commit] = deque()
        self._settled = Condition()
        self._pending = 0
        self._user: int | None = None  # the thread that is building a checkpoint

    @property
    def id(self) -> str:
        if self._row is None:
            raise RunClosed("the run is not open yet")
        return self._row.id

    def __repr__(self) -> str:
        name = self._row.id if self._row else self._given[0]
        return f"<everstep.Run {name!r}{'' if self._saver else ', not open'}>"

    @property
    def state(self) -> Any:
        """The live state. Change it as you like; `checkpoint` saves what changed."""
        return self._open()[1].state

    @state.setter
    def state(self, value: Any) -> None:
        self._open()[1].state = value

    @property
    def number(self) -> int:
        """The number of the newest checkpoint, 0 if there is none yet."""
        return self._open()[0].checkpoints

    def _open(self) -> tuple[RunRow, Saver]:
        if self._row is None or self._saver is None:
            raise RunClosed("the run is not open", remedy="Use it inside its block: with store.run(id) as run: ...")
        return self._row, self._saver

    def __enter__(self) -> Run:
        if self._saver is not None:
            raise InvalidArgument(f"run {self.id!r} is open already")
        id, state, fields = self._given
        first = self._store.open_row(id, state, fields)
        row = verified(self._keeper.acquire(first.id))
        try:
            saver = self._store.saver()
            if row.checkpoints:
                self._go_on(row, saver)
            else:
                saver.begin({} if state is None else decode(encode(state)))
            if row.status != Status.RUNNING:
                chain = Chain(self._store.framer, row, row)
                chain.status(Status.RUNNING)
                commit = chain.commit()
                self._store.backend.commit(commit)
                row = commit.run
        except BaseException:
            self._keeper.released()
            self._store.backend.release(row)
            raise
        self._row, self._saver, self._failure = row, saver, None
        return self

    def _abandon(self) -> None:
        """Let go of a run that was opened and never used."""
        row, _ = self._open()
        self._saver = None
        self._keeper.released()
        self._store.backend.release(row)

    def _go_on(self, row: RunRow, saver: Saver) -> None:
        loaded = load(self._store.backend, row, row.checkpoints)
        saver.go_on(loaded.revived(), loaded.deltas, loaded.delta_bytes)

    def checkpoint(
        self, note: str | None = None, tags: Iterable[str] | str = (), meta: Mapping[str, Any] | None = None, state: Any = None
    ) -> Checkpoint:
        """Save the state; when this returns, it is durable (unless the run was opened with another durability).

        `state` hands in an object of your own, which is compared with the last checkpoint and becomes `run.state`.
        """
        commit, before = None, self._row
        try:
            commit = self._prepare(note, tags, meta, state)
            if self._durability == "sync":
                self._store.backend.commit(commit)
            else:
                self._defer(commit)
            return self._made(commit)
        except BaseException as error:
            if commit is not None:
                self._undo(commit, error)
            elif self._saver is not None and not isinstance(error, EverstepError):  # Ctrl-C between building and knowing it
                self._row = before
                self._saver.lost()
            raise

    def _prepare(self, note: str | None, tags: Iterable[str] | str, meta: Mapping[str, Any] | None, state: Any) -> Commit:
        """Build the commit and take it as done; `_undo` takes that back."""
        me = get_ident()
        if self._user not in (None, me):
            raise RunBusy(f"another thread is saving run {self.id!r} through the same handle")
        try:
            self._user = me
            row, saver = self._open()
            if self._failure is not None:
                raise self._failure
            checked = check_note(note), check_tags(tags), to_meta(meta)
            if state is not None:
                saver.hand_in(state)
            commit = self._store.commit(row, saver, *checked)
            self._row = commit.run
            return commit
        finally:
            self._user = None

    def _undo(self, commit: Commit, error: BaseException) -> None:
        """A commit was not made, or nobody knows: what is believed to be stored goes back to before it."""
        if self._saver is None:
            return  # a task was cancelled while it waited, and has left the run since
        row, saver = self._open()
        if not isinstance(error, EverstepError) and self._happened(commit):
            return  # Ctrl-C came after the commit
        if commit.was is not None and row.head_seq >= commit.run.head_seq:
            self._row = commit.was
        saver.lost()
        if isinstance(error, EverstepError) and (error.written != "no" or isinstance(error, (LostLease, Conflict))):
            self._failure = error  # fenced, or the disk failed: this handle writes no more

    def _happened(self, commit: Commit) -> bool:
        """Settle an unknown outcome: the check of the row tells this commit from any other."""
        stored = self._store.backend.run(commit.run.id)
        return stored is not None and stored.check == commit.run.check

    @staticmethod
    def _made(commit: Commit) -> Checkpoint:
        record: Record = commit.records[0]  # a base, if there is one, follows it
        return Checkpoint(record)

    def _full(self) -> bool:
        """Whether the next save will have to wait for earlier ones."""
        return self._pending >= MOST_BEHIND or len(self._behind) + 1 >= MOST_KEPT

    def _defer(self, commit: Commit) -> None:
        """Take a commit that need not be durable yet."""
        if self._durability == "exit":
            self._behind.append(commit)
            if len(self._behind) >= MOST_KEPT:
                self.flush()
            return
        with self._settled:
            while self._pending >= MOST_BEHIND:
                self._settled.wait()
            self._pending += 1
        try:
            self._store.backend.submit(commit, lambda error: self._settle(commit, error))
        except BaseException as error:
            self._settle(commit, error)
            raise

    def _settle(self, commit: Commit, error: BaseException | None) -> None:
        with self._settled:
            self._pending -= 1
            if error is not None and self._failure is None:
                self._failure = error if isinstance(error, EverstepError) else EverstepError(str(error), written="unknown")
            self._settled.notify_all()

    def flush(self) -> None:
        """Return when all checkpoints up to now are durable; raise if one of them could not be made so."""
        self._open()
        if self._behind:
            first, last = self._behind[0], self._behind[-1]
            joined = Commit(last.run, first.was, [r for c in self._behind for r in c.records], [c for b in self._behind for c in b.chunks])
            try:
                self._store.backend.commit(joined)
            except BaseException as error:
                if isinstance(error, EverstepError) or not self._happened(joined):
                    raise
            self._behind.clear()
        with self._settled:
            while self._pending:
                self._settled.wait()
        if self._failure is not None:
            raise self._failure

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            self._leave(kind, error, trace)
        except EverstepError as trouble:
            with suppress(EverstepError):  # best effort: otherwise the lease ends by itself
                self._store.backend.release(self._open()[0])
            if error is None:
                raise
            error.add_note(f"Everstep could not record how run {self.id!r} ended: {trouble}")
        finally:
            self._saver = None
            self._keeper.released()

    def _leave(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Record how the run ended and give the lease back, in one commit."""
        if self._failure is None or self._durability == "async":
            self.flush()
        row, _ = self._open()
        if self._failure is not None:
            self._store.backend.release(row)
            return
        chain = Chain(self._store.framer, row, row)
        if error is None:
            chain.status(Status.SUCCEEDED)
        elif isinstance(error, Exception):
            import traceback

            text = "".join(traceback.format_exception(kind, error, trace))[-20_000:].encode("utf-8", "replace").decode()
            message = str(error)[:2_000].encode("utf-8", "replace").decode()
            chain.status(Status.FAILED, error={"type": type(error).__qualname__, "message": message, "traceback": text})
        commit = chain.commit(worker=None, since=0)
        self._store.backend.commit(commit)
        self._row = commit.run

    async def __aenter__(self) -> Any:
        from everstep.runtime.aio import AsyncRun

        return await AsyncRun.enter(self)

    async def __aexit__(self, *problem: Any) -> None:
        from everstep.runtime.aio import AsyncRun

        await AsyncRun.leave(self, *problem)

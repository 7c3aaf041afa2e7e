"""The handle with which a program drives one run: its live state, its steps, its checkpoints.

`with store.run(id) as run` takes the run's lease and goes on from its base, the newest checkpoint that the program asked for; leaving
the block saves what is unsaved, records how it ended and gives the lease back. `_entries` holds what waits for the next commit. One
thread at a time saves the state; steps may end in any thread.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from threading import Condition, get_ident
from types import TracebackType
from typing import Any, Literal
from uuid import UUID, uuid4

from everstep.backends.base import Commit
from everstep.clock import clock
from everstep.codec.frame import unwrap
from everstep.codec.values import decode, encode
from everstep.errors import Conflict, EverstepError, Interrupted, InvalidArgument, LostLease, RunBusy, RunClosed, Suspended
from everstep.records import Kind, Letter, Record, RunRow, Status
from everstep.runtime import gates, playback, signals
from everstep.runtime.context import Frame, frame
from everstep.runtime.ending import Ending, ending_of, tell_caller
from everstep.runtime.lease import Keeper
from everstep.runtime.mode import Mode
from everstep.runtime.playback import Playback
from everstep.runtime.report import Difference, Report
from everstep.runtime.steps import ABSENT, Ticket, begin, check_name, drive, value_body
from everstep.runtime.ticker import Ticker
from everstep.snapshot.saver import Saved, Saver
from everstep.store.events import Event
from everstep.store.journal import SUCCEEDED, Recorded, load_result, pack_body, result_body
from everstep.store.model import Checkpoint, asked_for, when, with_header
from everstep.store.query import check_note, check_tags, to_meta
from everstep.store.reading import load
from everstep.store.refs import verified
from everstep.store.store import BaseStore
from everstep.store.writing import Chain, Entry

Durability = Literal["sync", "async", "exit"]
MOST_BEHIND = 64
MOST_KEPT = 1000
MOST_NAMES = 32
_CHECKPOINT, _STEP = Kind.CHECKPOINT.value, Kind.STEP.value


class Run:
    """One run, open for writing."""

    def __init__(
        self, store: BaseStore, keeper: Keeper, id: str | None, state: Any, durability: Durability, fields: dict[str, Any], mode: Mode
    ):
        if durability not in ("sync", "async", "exit"):
            raise InvalidArgument(f"{durability!r} is no durability", remedy="Use sync, async or exit.")
        self._store = store
        self._keeper = keeper
        self._given = (id, state, fields)
        self._durability = durability
        self._mode = mode
        self._hooks = mode.hooks
        self._dry = mode.replay == "validate"
        self._accept = mode.accept
        self._worker = f"{keeper.worker.host}:{keeper.worker.pid}"
        self._row: RunRow | None = None
        self._saver: Saver | None = None
        self._failure: EverstepError | None = None
        self._behind: deque[Commit] = deque()
        self._settled = Condition()
        self._pending = 0
        self._user: int | None = None  # the thread that is building a checkpoint
        self._lock = threading.RLock()  # commits of one run are built and handed over in one order
        self._numbering = threading.Lock()
        self._async = False
        self._reset()

    def _reset(self) -> None:
        self._family = b""
        self._entries: list[Entry] = []
        self._read: list[str] = []
        self._outgoing: list[Letter] = []
        self._letters: dict[str, Letter] = {}
        self._letters_known = 0
        self._played = Playback()
        self._keyed: dict[str, Recorded] | None = None
        self._root = Frame(self, self)
        self._token: Any = None
        self._flight: dict[str, Ticket] = {}
        self._saving = False
        self._unsure = False
        self._stale = False
        self._base = 0
        self._saves = 0
        self._steps_since = 0
        self._saved_at = self._began = time.monotonic()
        self._last_step: str | None = None
        self._progress: tuple[float, float] | None = None
        self._asked: set[str] = set()
        self._result: Any = None
        self._returned: tuple[int, bytes | None, list[tuple[bytes, bytes]]] = (0, None, [])
        self._ticker: Ticker | None = None
        self._owner = 0
        self.report = Report()

    @property
    def id(self) -> str:
        if self._row is None:
            raise RunClosed("the run is not open yet")
        return self._row.id

    def _name(self) -> str:
        return self._row.id if self._row else str(self._given[0])

    def __repr__(self) -> str:
        return f"<everstep.Run {self._name()!r}{'' if self._saver else ', not open'}>"

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

    # opening

    def __enter__(self) -> Run:
        self._enter()
        self._token = frame.set(self._root)
        signals.watch(self)
        return self

    def _enter(self) -> None:
        """All of opening that may be done in another thread."""
        if self._saver is not None:
            raise InvalidArgument(f"run {self.id!r} is open already")
        self._reset()
        self._take()

    def _here(self) -> Frame:
        """Where the calling code stands in this run."""
        here = frame.get()
        return here if here is not None and here.run is self else self._root

    def _take(self) -> None:
        """Get the lease, read what is recorded, and say that the run is running."""
        id, state, fields = self._given
        first = self._store.open_row(id, fields, self._mode.about, self._mode.chunks)
        if self._dry:
            self._ready(verified(first), state)
            return
        row = verified(self._keeper.acquire(first.id))
        self._unsure = first.worker is not None  # its last driver never gave it back
        try:
            self._fire("before_resume" if row.head_seq > 1 else "before_run", row=row)
            self._ready(row, state)
            self._say_running()
        except BaseException:
            self._saver = None
            self._keeper.released()
            self._store.backend.release(row)
            raise
        self._fire("after_resume" if row.head_seq > 1 else "after_run", row=row, replayed=False)

    def _ready(self, row: RunRow, state: Any) -> None:
        backend = self._store.backend
        self._fire("before_load", row=row)
        played = self._played = playback.whole(backend, row) if self._mode.workflow else playback.after_base(backend, row)
        if self._mode.budget is not None or not self._mode.workflow:
            played.count_usage()
        saver = self._store.saver()
        number = 0 if self._mode.workflow else played.number
        if number:
            loaded = load(backend, row, number)
            if number == row.checkpoints:
                saver.go_on(loaded.revived(), loaded.deltas, loaded.delta_bytes)
            else:
                saver.begin(loaded.revived())
        else:
            saver.begin({} if state is None else decode(encode(state)))
        self._row, self._saver, self._failure = row, saver, None
        self._family, self._base, self._owner = row.family, number, get_ident()
        self._root.counts.update(played.counts)
        self._steps_since = played.steps_since
        self.report.run, self.report.attempt = row.id, max(1, row.epoch)
        self._look_at_letters()
        if self._mode.replay == "republish":
            self._republish(played.records)
        self._fire("after_load", row=row)

    def _say_running(self) -> None:
        row, _ = self._open()
        if "cancel" in self._letters:
            self._end(Ending(Status.CANCELLED, reason=_reason(self._letters["cancel"])))
            raise Interrupted(row.id, "it was cancelled")
        self._read += [name for name in self._letters if name in ("pause", "retry") or name.startswith("child:")]
        if row.status == Status.RUNNING and not self._read:
            return
        chain = Chain(self._store.framer, row, row)
        chain.status(Status.RUNNING, worker=self._worker)
        commit = self._carry(chain.commit())
        self._store.backend.commit(commit)
        self._row = commit.run
        for name in commit.read:
            self._letters.pop(name, None)
        self._letters_known = commit.waiting

    def _abandon(self) -> None:
        """Let go of a run that was opened and never used."""
        row, _ = self._open()
        self._close()
        self._store.backend.release(row)

    def _close(self) -> None:
        if self._ticker is not None:
            self._ticker.stop()
        self._saver = None
        signals.unwatch(self)
        if not self._dry:
            self._keeper.released()

    # saving

    def checkpoint(
        self, note: str | None = None, tags: Iterable[str] | str = (), meta: Mapping[str, Any] | None = None, state: Any = None
    ) -> Checkpoint:
        """Save the state; when this returns, it is durable (unless the run was opened with another durability).

        `state` hands in an object of your own, which is compared with the last checkpoint and becomes `run.state`.
        A loop of your own goes on from here when it is resumed.
        """
        done = self._recorded_save(state)
        if done is not None:
            return done
        self._fire("before_checkpoint", kind="manual")
        self._refuse_second_saver()
        commit, before = None, self._row
        with self._lock:
            try:
                commit = self._prepare(note, tags, meta, state)
                if self._durability == "sync":
                    self._store.backend.commit(commit)
                else:
                    self._defer(commit)
            except BaseException as error:
                self._take_back(commit, before, error)
                raise
        return self._made(commit)

    def _refuse_second_saver(self) -> None:
        if self._user not in (None, get_ident()):
            raise RunBusy(f"another thread is saving run {self.id!r} through the same handle")

    def _prepare(
        self, note: str | None, tags: Iterable[str] | str, meta: Mapping[str, Any] | None, state: Any, kind: str = "manual",
        trigger: str | None = None, safe: bool = False,
    ) -> Commit:  # fmt: skip
        """Build the commit of a checkpoint and take it as done; `_undo` takes that back."""
        self._refuse_second_saver()
        try:
            self._user = get_ident()
            row, saver = self._open()
            if self._failure is not None:
                raise self._failure
            checked = check_note(note), check_tags(tags), with_header(to_meta(meta), self._header(kind, trigger, safe))
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

    def _header(self, kind: str, trigger: str | None, safe: bool) -> dict[str, Any]:
        """What a checkpoint says beside the program's metadata; nothing for a plain save of a run without steps."""
        counts = self._root.counts
        base = safe or kind in ("manual", "final")
        if kind == "manual" and not counts and self._progress is None and self._mode.plain:
            return {}
        header: dict[str, Any] = {} if kind == "manual" else {"kind": kind}
        if not base:
            header["base"] = self._base
        if len(counts) <= MOST_NAMES:
            header["counts"] = counts
        else:
            header["many"] = True
        used = self._played.used
        header["used"] = [round(used.seconds + time.monotonic() - self._began, 3), used.steps, used.tokens, used.cost]
        for name, value in (("trigger", trigger), ("safe", safe), ("step", self._last_step), ("progress", self._progress)):
            if value:
                header[name] = value
        return header

    def _recorded_save(self, state: Any) -> Checkpoint | None:
        """A workflow that is played back makes no checkpoint twice: the recorded one, if there is one for this call."""
        if not self._mode.workflow:
            return None
        played, place = self._played, self._saves
        self._saves += 1
        if self._dry or place < played.skip_saves:
            if place == played.skip_saves - 1 and played.start.get("edited"):
                self.state = load(self._store.backend, self._open()[0], 1).revived()
            first = played.saves[0] if played.saves else None
            return Checkpoint(first) if first is not None else self._nothing_saved()
        place -= played.skip_saves
        own = played.saves[1:] if played.start.get("number") else played.saves
        if place >= len(own):
            return None
        if state is not None:
            self.state = state
        return Checkpoint(own[place])

    def _nothing_saved(self) -> Checkpoint:
        row, _ = self._open()
        return Checkpoint(Record(row.id, 0, _CHECKPOINT, row.epoch, clock.now_us(), 0, None, (), None, None, b"", b""))

    def _take_back(self, commit: Commit | None, before: RunRow | None, error: BaseException) -> None:
        if commit is not None:
            self._undo(commit, error)
        elif self._saver is not None and not isinstance(error, EverstepError):  # Ctrl-C between building and knowing it
            self._row = before
            self._saver.lost()

    def _undo(self, commit: Commit, error: BaseException) -> None:
        """A commit was not made, or nobody knows: what is believed to be stored goes back to before it."""
        if self._saver is None:
            return  # a task was cancelled while it waited, and has left the run since
        with self._lock:
            row, saver = self._open()
            if not isinstance(error, EverstepError) and self._happened(commit):
                return  # Ctrl-C came after the commit
            if commit.was is not None and row.head_seq >= commit.run.head_seq:
                self._row = commit.was
            if any(record.kind == _CHECKPOINT for record in commit.records):
                saver.lost()
            self._entries[:0] = [
                Entry(r.kind, unwrap(r.body), r.note, drawn=True) for r in commit.records if r.kind == _STEP and r.body and _was_drawn(r)
            ]
            self._read[:0] = commit.read
            self._outgoing[:0] = commit.letters
            if isinstance(error, EverstepError) and (error.written != "no" or isinstance(error, (LostLease, Conflict))):
                self._failure = error  # fenced, or the disk failed: this handle writes no more

    def _happened(self, commit: Commit) -> bool:
        """Settle an unknown outcome: the check of the row tells this commit from any other."""
        stored = self._store.backend.run(commit.run.id)
        return stored is not None and stored.check == commit.run.check

    def _made(self, commit: Commit) -> Checkpoint:
        """A checkpoint was saved: what follows from that."""
        record: Record = next(r for r in commit.records if r.kind == _CHECKPOINT)
        self._steps_since = 0
        self._saved_at = time.monotonic()
        made = Checkpoint(record)
        if asked_for(record.meta):
            self._base = record.number
        if commit.waiting != self._letters_known:
            self._look_at_letters()
        self._fire("after_checkpoint", checkpoint=made)
        return made

    def _save(self, kind: str, trigger: str | None = None, safe: bool = False, note: str | None = None) -> Checkpoint | None:
        """A checkpoint that the runtime makes by itself, in this thread."""
        self._fire("before_checkpoint", kind=kind)
        commit, before = None, self._row
        with self._lock:
            try:
                commit = self._prepare(note, (), None, None, kind, trigger, safe)
                self._durable(commit)
            except BaseException as error:
                self._take_back(commit, before, error)
                raise
        return self._made(commit)

    def _durable(self, commit: Commit) -> None:
        if self._durability == "sync":
            self._store.backend.commit(commit)
        else:
            self._defer(commit)

    def _full(self) -> bool:
        """Whether the next save will have to wait for earlier ones."""
        return self._pending >= MOST_BEHIND or len(self._behind) + 1 >= MOST_KEPT

    def _make_room(self) -> None:
        """Wait until another save can be deferred."""
        if self._durability == "exit":
            with self._lock:
                self.flush()
        with self._settled:
            while self._pending >= MOST_BEHIND:
                self._settled.wait()

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
        """Return when all that was recorded up to now is durable; raise if something could not be made so."""
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
                if isinstance(error, EverstepError) or not self._happened(joined):
                    raise
            self._behind.clear()
        with self._settled:
            while self._pending:
                self._settled.wait()
        if self._failure is not None:
            raise self._failure

    # steps

    def step(
        self, name: str | Callable[..., Any], function: Any = ABSENT, /, *args: Any, key: Any = None, retry: Any = None,
        timeout: float | None = None, **kwargs: Any,
    ) -> Any:  # fmt: skip
        """Call a function and record its result: `run.step("name", function, *args)` or `run.step(function, *args)`.

        A recorded step is not run again: its result comes from the journal. `key` says what it is known by instead of its input and its
        turn; `retry` and `timeout` are those of this call.
        """
        return drive(begin(self, self._here(), name, function, args, kwargs, options_of(key, retry, timeout)))

    def _called(self, name: Any, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A decorated step or a child workflow was called: all arguments are its own, whatever they are called."""
        return drive(begin(self, self._here(), name, function, args, kwargs, {}))

    def map(self, function: Callable[..., Any], items: Iterable[Any], concurrency: int = 8) -> list[Any]:
        """One step for each item, at most `concurrency` at the same time in threads; results in the order of the items."""
        from everstep.runtime.parallel import drive_all

        return drive_all(self._map(function, items, concurrency), concurrency)

    def _map(self, function: Callable[..., Any], items: Iterable[Any], concurrency: int) -> list[Ticket]:
        if type(concurrency) is not int or concurrency < 1:
            raise InvalidArgument(f"concurrency={concurrency!r:.60} is no whole number from 1 on")
        here = self._here()
        return [begin(self, here, function, ABSENT, (item,), {}, {}) for item in items]

    def _recorded(self, address: str) -> Recorded | None:
        self._asked.add(address)
        found = self._played.entries.get(address)
        if found is None and "@" in address:
            if self._keyed is None:
                self._keyed = playback.keyed(self._store.backend, self._open()[0])
            found = self._keyed.get(address)
        return found

    def _kept(self, ticket: Ticket, body: list[Any]) -> None:
        report = self.report
        report.kept += 1
        report.seconds_saved += (body[8] - body[7]) / 1e6
        report.tokens_saved += body[9]
        report.cost_saved += body[10]
        self._last_step = ticket.address

    def _put(self, kind: str, content: bytes, address: str | None, chunks: Any = ()) -> None:
        self._entries.append(Entry(kind, content, address, chunks))

    def _before_step(self, ticket: Ticket) -> tuple[Any] | None:
        """All that comes before a step is run. Gives (result,) if it need not be run at all."""
        self._open()
        if self._dry:
            self._refuse_unrecorded(ticket)
            return None
        self._boundary()
        if self._letters and f"skip:{ticket.address}" in self._letters:
            return self._skip(ticket)
        if ticket.options.at_most_once:
            instead = gates.begin_once(self, ticket)
            if instead is not None:
                return instead
        policy = self._mode.policy
        if policy.events and "pre_step" in policy.events:
            self._save("pre_step", "on pre_step")
        if policy.seconds is not None and self._ticker is None:
            self._ticker = Ticker(self, policy.seconds)
        if self._hooks.wanted("before_step"):
            self._fire("before_step", step=ticket.address, attempt=ticket.attempt)
        self._flight[ticket.address] = ticket
        return None

    def _skip(self, ticket: Ticket) -> tuple[Any]:
        """An operator said that this step is not to be run."""
        letter = self._letters.pop(f"skip:{ticket.address}")
        result = decode(unwrap(letter.body))
        ticket.started = clock.now_us()
        form, data, chunks = result_body(result, ticket.address, self._store.framer.wrap)
        self._put("step", ticket.body(SUCCEEDED, form, data, None, {"skipped": True}), ticket.address, chunks)
        self._read.append(letter.name)
        self._write_step(ticket, None)
        return (result,)

    def _refuse_unrecorded(self, ticket: Ticket) -> None:
        if ticket.found is None:
            raise Interrupted(self.id, f"the journal ends before {ticket.address}")

    def _compare(self, ticket: Ticket, now: Any) -> None:
        """Validation: what a step gives now against what was recorded."""
        self.report.executed += 1
        found = self._recorded(ticket.address)
        if found is None:
            return
        body = found.body
        if isinstance(now, BaseException) or body[0] != SUCCEEDED:
            recorded = repr((body[6] or {}).get("type")) if body[0] != SUCCEEDED else "a result"
            shown = type(now).__qualname__ if isinstance(now, BaseException) else "a result"
            same = isinstance(now, BaseException) and body[0] != SUCCEEDED and str((body[6] or {}).get("type")).endswith(shown)
        else:
            before = load_result(self._store.backend, self._family, body[4], body[5])
            recorded, shown = f"{before!r:.200}", f"{now!r:.200}"
            same = encode(before) == encode(now, f"result of {ticket.address}")
        if not same:
            self.report.differences.append(Difference(ticket.address, recorded, shown))

    def _write_step(self, ticket: Ticket, error: Exception | None) -> None:
        """Make the end of a step, or of one attempt, durable."""
        if self._dry:
            self._flight.pop(ticket.address, None)
            return
        waiter: _Waiter | None = None
        commit, before = None, self._row
        try:
            with self._lock:
                commit = self._step_commit(ticket, error)
                if len(self._flight) > 1 and self._durability == "sync":
                    waiter = _Waiter()
                    self._store.backend.submit(commit, waiter.done)
                else:
                    self._durable(commit)
            if waiter is not None:
                waiter.wait()
        except BaseException as trouble:
            self._flight.pop(ticket.address, None)
            self._take_back(commit, before, trouble)
            raise
        self._after_step(ticket, error, commit)

    def _step_commit(self, ticket: Ticket, error: Exception | None) -> Commit:
        """The commit that records a step, together with the checkpoint that is due."""
        used = self._played.used
        used.steps += 1
        used.tokens += ticket.tokens
        used.cost += ticket.cost
        self._steps_since += 1
        self._last_step = ticket.address
        if not self._mode.silent:
            policy = self._mode.policy
            trigger = policy.due("error" if error else "step", ticket.kind, self._steps_since, time.monotonic() - self._saved_at)
            if trigger is not None and (self._async or get_ident() == self._owner):
                kind = "error" if error else "post_step" if trigger in ("on step", "on post_step") else "automatic"
                self._fire("before_checkpoint", kind=kind)
                return self._prepare(None, (), None, None, kind, trigger)
        return self._note()

    def _note(self) -> Commit:
        """A commit of journal entries alone."""
        row, _ = self._open()
        if self._failure is not None:
            raise self._failure
        chain = Chain(self._store.framer, row, row)
        chain.entries(self._entries)
        commit = chain.commit()
        self._entries = []
        self._row = commit.run
        return self._carry(commit)

    def _write_entries(self) -> None:
        """Make what was put up durable, without a checkpoint."""
        commit, before = None, self._row
        with self._lock:
            try:
                commit = self._note()
                self._durable(commit)
            except BaseException as error:
                self._take_back(commit, before, error)
                raise
        if commit.waiting != self._letters_known:
            self._look_at_letters()

    def _after_step(self, ticket: Ticket, error: Exception | None, commit: Commit) -> None:
        self._flight.pop(ticket.address, None)
        self.report.executed += 1
        self._unsure = False
        if ticket.options.key is not None:
            self._remember(ticket.address, commit)
        if commit.run.checkpoints != (commit.was.checkpoints if commit.was else 0):
            self._made(commit)
        elif commit.waiting != self._letters_known:
            self._look_at_letters()
        if self._hooks.wanted("after_step") or (error is not None and self._hooks.wanted("error")):
            status = "failed" if error else "succeeded"
            self._fire("after_step", step=ticket.address, status=status, attempt=ticket.attempt, tokens=ticket.tokens, cost=ticket.cost)
            if error is not None:
                self._fire("error", step=ticket.address, error=repr(error))
        self._boundary()

    def _remember(self, address: str, commit: Commit) -> None:
        """A step with a key may be asked for again by the same program."""
        if self._keyed is None:
            self._keyed = playback.keyed(self._store.backend, self._open()[0])
        record = next((r for r in commit.records if r.note == address and r.kind == _STEP), None)
        if record is not None:
            self._keyed[address] = Recorded(record)

    def _break_off(self, ticket: Ticket, error: BaseException) -> None:
        """A step was left without an end. One that waits or was stopped at its own inner step is in order; any other is doubtful."""
        if isinstance(error, Suspended):
            self._flight.pop(ticket.address, None)

    def _nap(self, seconds: float) -> None:
        """Wait in this process, a little at a time, so that a signal or an operator is heard."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            time.sleep(min(left, 0.2))
            if signals.seen() is not None:
                self._boundary()

    def _chance(self) -> float:
        import random

        return random.random()  # noqa: S311 - it spreads retries, it hides nothing

    @property
    def _ticket(self) -> Ticket:
        here = frame.get()
        if here is None or here.run is not self or here.ticket is None:
            raise RunClosed("this code is not inside a step", remedy="Ask inside the function that run.step calls.")
        return here.ticket

    @property
    def step_key(self) -> str:
        """Inside a step: a key that stays the same whenever this step is tried, for the services that it calls."""
        return gates.step_key(self._open()[0], self._ticket.address)

    @property
    def step_attempt(self) -> int:
        """Inside a step: 1 for the first attempt that is known, 2 for the second…"""
        return self._ticket.attempt

    @property
    def step_again(self) -> bool:
        """Inside a step: whether it may have been run before by a process that died in it."""
        return self._ticket.again

    def usage(self, tokens: int = 0, cost: float = 0.0) -> None:
        """Inside a step: what it used. It is recorded with the step and counts for budgets."""
        if not isinstance(tokens, int) or not isinstance(cost, (int, float)) or tokens < 0 or not 0 <= cost < 1e12:
            raise InvalidArgument(f"tokens={tokens!r:.40}, cost={cost!r:.40} are no amounts")
        ticket = self._ticket
        ticket.tokens += tokens
        ticket.cost += cost

    # values, waiting and words of the program

    def now(self) -> datetime:
        """The time (UTC), recorded: replay gives the same."""
        return when(self._drawn("now", clock.now_us))

    def random(self) -> float:
        """A number from 0 up to 1, recorded: replay gives the same."""
        return float(self._drawn("random", self._chance))

    def uuid(self) -> UUID:
        """A random UUID, recorded: replay gives the same."""
        return UUID(self._drawn("uuid", lambda: str(uuid4())))

    def _drawn(self, name: str, draw: Callable[[], Any]) -> Any:
        """Needs no commit of its own: whatever depends on the value is recorded after it, or not at all."""
        self._open()
        with self._numbering:
            address = self._here().address(name)
        found = self._recorded(address)
        if found is not None:
            return load_result(self._store.backend, self._family, found.body[4], found.body[5])
        value = draw()
        if not self._dry:
            with self._lock:
                self._entries.append(Entry("step", value_body(self, value), address, (), True))
        return value

    def gate(self, name: str, ask: str | None = None, **options: Any) -> Any:
        """Wait for a decision from outside; see `everstep.gate`."""
        return gates.ask(self, name, ask, **options)

    def sleep(self, seconds: float | None = None, *, until: Any = None) -> None:
        """Wait for a time; the deadline stands when the process dies. See `everstep.sleep`."""
        gates.sleep_run(self, seconds, until)

    def progress(self, done: float, total: float) -> None:
        """Say how far the work is; it stands in the next checkpoint."""
        if not (isinstance(done, (int, float)) and isinstance(total, (int, float)) and 0 <= done <= total and total > 0):
            raise InvalidArgument(f"progress({done!r:.40}, {total!r:.40}) is no part of a whole")
        self._progress = (done, total)

    def emit(self, name: str, **data: Any) -> None:
        """Put an event of your own into the journal, with the next commit; policies and hooks know it as `custom:name`."""
        check_name(name)
        if not self._new_word(name):
            return
        self._put("event", pack_body([name, encode(data, f"event {name}")]), self._last_address)
        event = name if name in ("milestone", "artifact", "llm", "tool") else f"custom:{name}"
        if self._mode.policy.due(event, None, 0, 0.0) is not None:
            self._save("automatic", f"on {event}", safe=True)
        self._fire(f"custom:{name}", **data)

    def milestone(self, name: str, note: str | None = None) -> None:
        """Say that something worth keeping was reached; a policy `on("milestone")` makes a checkpoint of it."""
        self.emit("milestone", milestone=name, note=note)

    _last_address = ""

    def _new_word(self, name: str) -> bool:
        """Whether an event is said for the first time: what is played back says nothing twice."""
        with self._numbering:
            self._last_address = self._here().address(f"event:{name}")
        return not self._dry and self._last_address not in self._played.words

    # being stopped

    def _boundary(self) -> None:
        """Between steps: whether somebody or something wants the run to stop."""
        found = signals.seen()
        if found is not None:
            raise Interrupted(self.id, f"signal {found[0]}", found[1])
        if self._letters:
            self._obey()
        mode = self._mode
        if mode.budget is None and mode.timeout is None:
            return
        seconds = time.monotonic() - self._began
        if mode.timeout is not None and seconds >= mode.timeout:
            raise Interrupted(self.id, f"timeout: {seconds:.1f} s of {mode.timeout:g} s")
        if mode.budget is not None:
            over = mode.budget.exceeded(replace(self._played.used, seconds=self._played.used.seconds + seconds))
            if over is not None:
                raise Interrupted(self.id, over)

    def _obey(self) -> None:
        for name in ("cancel", "pause"):
            letter = self._letters.get(name)
            if letter is not None:
                raise Interrupted(self.id, f"{name}: {_reason(letter)}" if _reason(letter) else name)

    def _look_at_letters(self) -> None:
        row = self._open()[0]
        found = self._store.backend.letters(row.id)
        self._letters_known = len(found)
        self._letters = {letter.name: gates.verified_letter(row, letter) for letter in found if letter.name not in self._read}
        for name in [name for name in self._letters if name.startswith("again:")]:
            self._played.forget(name.removeprefix("again:"))
            self._read.append(name)
            del self._letters[name]

    # hooks

    def _fire(self, name: str, row: RunRow | None = None, replayed: bool = False, **data: Any) -> None:
        if self._hooks.wanted(name):
            run = row.id if row is not None else self._name()
            self._hooks.fire(name, Event(name, run, when(clock.now_us()), data, replayed=replayed))

    def _republish(self, records: list[Record]) -> None:
        """Say once more, to this process's hooks, what was recorded."""
        from everstep.store.feed import event_of

        for record in records:
            event = event_of(None, record, replayed=True)
            for name in _HOOKS_OF.get(record.kind, ()):
                self._hooks.fire(name, event)

    # leaving

    def _give(self, result: Any) -> None:
        """A workflow returned: whether that can be stored belongs to its own outcome."""
        self._returned = result_body(result, "what the workflow returned", self._store.framer.wrap)
        self._result = result

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._leave_frame()
        self._leave(error)
        self._exit_process(error)

    def _leave_frame(self) -> None:
        try:
            frame.reset(self._token)
        except ValueError:
            frame.set(None)  # left in another context than it was entered in

    @staticmethod
    def _exit_process(error: BaseException | None) -> None:
        """A signal asked the whole program to stop, not only this run."""
        if isinstance(error, Interrupted) and error.exit_code is not None:
            raise SystemExit(error.exit_code) from error

    def _leave(self, error: BaseException | None) -> None:
        """Record how the run ended; an error of the program goes before one of ours."""
        self._saving = True
        try:
            if self._dry:
                return
            ending = ending_of(self, error)
            tell_caller(self, ending)
            self._end(ending)
        except EverstepError as trouble:
            with suppress(EverstepError):  # best effort: otherwise the lease ends by itself
                self._store.backend.release(self._open()[0])
            if error is None:
                raise
            error.add_note(f"Everstep could not record how run {self.id!r} ended: {trouble}")
        finally:
            self.report.seconds = time.monotonic() - self._began
            self.report.unused = [a for a, found in self._played.entries.items() if a not in self._asked and "/" not in a and "@" not in a]
            self._close()
            self._saving = False
            self._fire("after_run", status=self._row.status if self._row else None)

    def _end(self, ending: Ending) -> None:
        """The last checkpoint, the status and the lease, in one commit."""
        if self._failure is None or self._durability == "async":
            self.flush()
        row, saver = self._open()
        if self._failure is not None:
            self._store.backend.release(row)
            return
        if self._stale:
            saver.lost()
        chain = Chain(self._store.framer, row, row)
        chain.entries(self._entries)
        chain.chunks(ending.chunks)
        unsaved = self._add_last_checkpoint(chain, saver, ending)
        if ending.status is not None:
            chain.status(ending.status, **ending.about)
        commit = self._carry(chain.commit(worker=None, since=0, **ending.changes))
        commit.letters = [*commit.letters, *ending.letters]
        self._store.backend.commit(commit)
        self._entries = []
        self._row = commit.run
        if unsaved is not None:
            raise unsaved

    def _add_last_checkpoint(self, chain: Chain, saver: Saver, ending: Ending) -> EverstepError | None:
        """The checkpoint that ends an attempt, unless the newest one says the same. A state that cannot be stored is reported, not obeyed."""
        if ending.kind is None:
            return None
        try:
            saved = saver.build()
        except EverstepError as error:
            if ending.status == Status.SUCCEEDED:
                ending.fail(error)
            return error
        if self._nothing_new(saved, saver):
            return None
        chain.checkpoint(saved, ending.note, (), with_header(None, self._header(ending.kind, None, False)))
        return None

    def _nothing_new(self, saved: Saved, saver: Saver) -> bool:
        """Whether a last checkpoint would say nothing that is not known."""
        row = self._open()[0]
        if self._steps_since or self._entries:
            return False
        if not row.checkpoints:
            return saver.state == {}
        return saved.delta == _EMPTY and saved.base is None and self._base == row.checkpoints

    async def __aenter__(self) -> Any:
        from everstep.runtime.aio import AsyncRun

        return await AsyncRun.enter(self)

    async def __aexit__(self, *problem: Any) -> None:
        from everstep.runtime.aio import AsyncRun

        await AsyncRun.leave(self, *problem)


class _Waiter:
    """Waits for a commit that another thread leads."""

    def __init__(self) -> None:
        self._done = threading.Event()
        self._error: BaseException | None = None

    def done(self, error: BaseException | None) -> None:
        self._error = error
        self._done.set()

    def wait(self) -> None:
        self._done.wait()
        if self._error is not None:
            raise self._error


_EMPTY = b"\x90"
_HOOKS_OF = {"step": ("after_step",), "checkpoint": ("after_checkpoint",), "answer": ("after_gate",), "gate": ("before_gate",)}


def options_of(key: Any, retry: Any, timeout: float | None) -> dict[str, Any]:
    if key is None and retry is None and timeout is None:
        return {}
    return {name: value for name, value in (("key", key), ("retry", retry), ("timeout", timeout)) if value is not None}


def _reason(letter: Letter) -> str:
    said = decode(unwrap(letter.body))
    return str(said) if said else ""


def _was_drawn(record: Record) -> bool:
    body = Recorded(record).body
    return bool(body[12].get("value"))

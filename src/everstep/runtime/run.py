"""The handle with which a program drives one run: its live state, its steps, its checkpoints.

`with store.run(id) as run` takes the run's lease and goes on from its base, the newest checkpoint that the program asked for; leaving
the block saves what is unsaved, records how it ended and gives the lease back. `_entries` holds what waits for the next commit. One
thread at a time saves the state; steps may end in any thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from threading import get_ident
from types import TracebackType
from typing import Any, cast
from uuid import UUID, uuid4

from everstep.backends.contract.queues import START
from everstep.clock import clock
from everstep.codec.values import decode, encode
from everstep.errors import (
    AttemptLost,
    Conflict,
    DamagedRecord,
    EverstepError,
    Interrupted,
    InvalidArgument,
    LostLease,
    RunClosed,
    RunExists,
    Waiting,
)
from everstep.ids import check_id
from everstep.records import Kind, Record, RunRow, Status
from everstep.runtime.driving_store import Host
from everstep.runtime.engine import abandoned, owner, replay
from everstep.runtime.engine.closing import announce, end
from everstep.runtime.engine.context import opened
from everstep.runtime.engine.driver import Driver, republish, told
from everstep.runtime.engine.ending import Ending, add_loose, end_of, ending_of, stopped_by, tell_caller
from everstep.runtime.engine.give_back import give_back, give_back_unopened
from everstep.runtime.engine.journal_writer import TROUBLE, Durability
from everstep.runtime.engine.leases import Keeper
from everstep.runtime.engine.options import Mode
from everstep.runtime.engine.replay import Playback
from everstep.runtime.limits import deaths, signals
from everstep.runtime.limits.account import Account
from everstep.runtime.limits.children_used import know_children
from everstep.runtime.steps.drive import Ticket, begin, call, value_entry
from everstep.runtime.steps.options import ABSENT, check_items, check_name
from everstep.runtime.waits import gates
from everstep.snapshot.saver import Saver
from everstep.store.chain import Chain
from everstep.store.journal.driven import driven_in
from everstep.store.journal.entries import EventEntry, pack
from everstep.store.journal.results import load_result, result_body
from everstep.store.load import Loaded, checked, load
from everstep.store.refs import find_run, verified
from everstep.store.store import BaseStore
from everstep.store.views import Checkpoint, when
from everstep.threads.guard import inside

_CHECKPOINT = Kind.CHECKPOINT.value


class Run(Driver):
    """One run, open for writing."""

    def __init__(
        self, store: BaseStore, keeper: Keeper, id: str | None, state: Any, durability: Durability, fields: dict[str, Any], mode: Mode
    ):
        super().__init__(store, durability, mode, f"{keeper.worker.host}:{keeper.worker.pid}")
        self._keeper = keeper
        self._given = (id, state, fields)

    def _reset(self) -> None:
        super()._reset()
        self._closing = False
        self._saves = 0
        self._result: Any = None
        self._buried = 0  # after how many deaths it was given up, when it was opened
        self._returned: tuple[int, bytes | None, list[tuple[bytes, bytes]]] = (0, None, [])

    def __repr__(self) -> str:
        return f"<everstep.Run {(self._row.id if self._row else self._given[0])!r}{'' if self._saver else ', not open'}>"

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

    def __enter__(self) -> Run:
        self._enter()
        owner.enter(self._root)
        signals.watch(self)
        return self

    def _enter(self) -> None:
        """All of opening that may be done in another thread."""
        self._lock.check()
        if self._saver is not None:
            raise InvalidArgument(f"run {self.id!r} is open already")
        self._reset()
        try:
            self._take()
        except AttemptLost as lost:
            raise lost.error from lost  # no code of the program has run that could take it for its own
        opened(1)

    def _take(self) -> None:
        """Get the lease, read what is recorded, and say that the run is running."""
        state, held = self._given[1], self._mode.held
        if held is not None and held.row is not None:
            row = held.row
            # Who died with it may be forgotten where another worker took it meanwhile and could not drive it.
            self._unsure = held.before is not None or (held.deaths > 0 and row.status == Status.RUNNING)
            died = held.before is not None
        else:
            first = self._find() or self._create()
            if first is None:
                return
            if self._dry:
                self._ready(verified(first, self._store.backend.seal), state)
                return
            died = first.worker is not None and self._store.backend.holder(first) is None
            row = verified(self._keeper.acquire(first.id), self._store.backend.seal)
            self._unsure = first.worker is not None or row.epoch > first.epoch + 1  # its last driver never gave it back, or nobody knows
        with self._given_back_on_error(row):
            self._refuse_overtaken(row)
            if died and self._mode.workflow:
                row = self._count_death(row)
            self._fire("before_resume" if row.head_seq > 1 else "before_run", row=row)
            self._ready(row, state)
            self._say_running()
        if row.head_seq > 1:
            self._fire("after_resume", row=row)

    def _count_death(self, row: RunRow) -> RunRow:
        """Before anything that could kill this process, too: write down that the last one died. After too many, the run is given up."""
        store, held = cast(Host, self._store), self._mode.held
        found = deaths.with_one_more(store.backend, row)
        if held is not None:
            found = found._replace(number=held.deaths)
        if found.number < self._mode.max_deaths:
            return deaths.note_death(store, row, found)
        self._row = deaths.bury(store, row, found)
        self._buried = found.number
        raise Interrupted(row.id, deaths.DEAD)

    def _find(self) -> RunRow | None:
        id = self._given[0]
        return self._store.backend.run(check_id(id)) if id is not None else None

    def _create(self) -> RunRow | None:
        """Make the run: its lease comes with it, and there is nothing to read. The row of another one that was made at the same time."""
        id, state, fields = self._given
        lease = {"epoch": 1, "worker": self._keeper.worker.id, "since": clock.now_us()}
        commit = self._store.first_commit(id, fields, self._mode.about, self._mode.chunks, **lease)
        try:
            self._keeper.create(commit)
        except RunExists:  # somebody else was faster; the lease says who may go on
            return find_run(self._store.backend, commit.run.id)
        with self._given_back_on_error(commit.run):
            self._fire("before_run", row=commit.run)
            self._ready(commit.run, state, replay.begun(commit.records))
        return None

    @contextmanager
    def _given_back_on_error(self, row: RunRow) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            self._saver = None
            self._keeper.released()
            give_back_unopened(self, row, error)
            raise

    def _refuse_overtaken(self, row: RunRow) -> None:
        """Somebody may have driven the run between the look at it and the lease: what that came to is not to be driven once more."""
        seen = self._mode.seen
        if seen is None or row.head_seq == seen or row.status in (Status.RUNNING, Status.QUEUED):
            return
        self._row = row
        self._refuse_other_input(row, replay.content(checked(self._store.backend, row, 1, 1)[0]))
        raise Interrupted(row.id, "another process has driven it meanwhile")

    def _refuse_other_input(self, row: RunRow, said: dict[str, Any]) -> None:
        """Two that start one id at the same time must mean the same."""
        about, same, recorded = self._mode.about, self._mode.same, said.get("input_digest")
        if not about:
            return
        good = about["input_digest"] == recorded or (same is not None and same(recorded))
        if about["workflow"] != said.get("workflow") or not good:
            raise RunExists(f"run {row.id!r} was started with another workflow or input at the same time")

    def _ready(self, row: RunRow, state: Any, fresh: Playback | None = None) -> None:
        backend = self._store.backend
        if not self._mode.workflow and fresh is None:
            self._refuse_workflow(row)
        self._fire("before_load", row=row)
        played = self._played = fresh or (replay.whole(backend, row) if self._mode.workflow else replay.after_base(backend, row))
        if not self._mode.silent or self._mode.budget is not None:
            played.count()
        self._refuse_other_input(row, played.start)
        saver = self._store.saver()
        number = 0 if self._mode.workflow else played.number
        if number:
            loaded = load(backend, row, number)
            if number == row.checkpoints:
                self._go_on(saver, loaded)
            else:
                saver.begin(loaded.revived())
        else:
            saver.begin({} if state is None else decode(encode(state)))
        mode = self._mode
        self._account = Account(row.id, played, self._began, mode.budget, mode.timeout, mode.caller)
        if self._account.limited and fresh is None:
            know_children(self._store.backend, row, self._account)
        if mode.caller is not None:
            mode.caller.know(row.id, self._account.for_caller(driven=True))
        self._row, self._saver, self._failure = row, saver, None
        self._opened = row
        self._family, self._base, self._owner = row.family, number, get_ident()
        self._unsure = self._unsure or played.unsure
        self._saved_at -= played.seconds_since()
        self._root.counts.update(played.counts)
        self._steps_since = played.steps_since if not self._mode.silent else len(played.recent)
        self.report.run, self.report.attempt = row.id, max(1, row.epoch)
        if fresh is None:
            self._look_at_letters()
        if self._mode.replay == "republish":
            republish(self._hooks, played.records)
        self._fire("after_load", row=row)

    @staticmethod
    def _go_on(saver: Saver, loaded: Loaded) -> None:
        """Take the loaded state. One that an upgrade changed on its way is not what is stored: no delta can stand on it."""
        stored = encode(loaded.value) if loaded.objects else b""
        state = loaded.revived()
        saver.go_on(state, loaded.deltas, loaded.delta_bytes)
        if stored and encode(state) != stored:
            saver.lost()

    def _refuse_workflow(self, row: RunRow) -> None:
        """A workflow's journal means nothing to another program."""
        if row.workflow is not None and "workflow" in replay.content(checked(self._store.backend, row, 1, 1)[0]):
            raise InvalidArgument(
                f"run {row.id!r} is a run of the workflow {row.workflow!r}", remedy="Go on with store.resume(run_id), or fork it."
            )

    def _say_running(self) -> None:
        row, _ = self._open()
        about, is_new = self._as_driver()
        revived = self._mode.revived and row.status == Status.CANCELLED
        if "cancel" in self._letters and not revived:
            reason = told(self._letters["cancel"], self._store.framer)
            ending = Ending(Status.CANCELLED, reason=reason)
            end(self, ending)
            tell_caller(self, ending)
            raise Interrupted(row.id, reason)
        obeyed = ("pause", "retry", START, "cancel") if revived else ("pause", "retry", START)
        self._read += [name for name in self._letters if name in obeyed or name.startswith("child:")]
        if row.status == Status.RUNNING and not self._read and not is_new:
            return
        chain = Chain(self._store.framer, row, row, self._store.backend.seal)
        chain.status(Status.RUNNING, revived, worker=self._worker, **about)
        commit = self._carry(chain.commit())
        self._store.backend.commit(commit)
        self._row = commit.run
        for name in commit.read:
            self._letters.pop(name, None)
        self._letters_known = commit.waiting

    def _as_driver(self) -> tuple[dict[str, Any], bool]:
        """What the journal is to say about the code that drives the run from here on, and whether it does not say so yet.

        Code without a version leaves the version of the driver before: what that one recorded is still there.
        """
        mode, played = self._mode, self._played
        if not mode.workflow:
            return {}, False
        before = driven_in(played.start, played.records)
        version = before.version if mode.version is None else mode.version
        about: dict[str, Any] = {"version": version}
        if not before.ever and mode.definition != played.start.get("definition"):
            about["definition"] = mode.definition
        if mode.by_hand and deaths.is_buried(played.status):
            about["allowed_deaths"] = mode.max_deaths
        return about, version != before.version

    def _abandon(self) -> None:
        """Let go of a run that was opened and never used."""
        row, _ = self._open()
        self._close()
        self._keeper.release(row)

    def _close(self) -> None:
        if self._ticker is not None:
            self._ticker.stop()
        self._saver = None
        opened(-1)
        signals.unwatch(self)
        if not self._dry:
            self._keeper.released()

    @property
    def used(self) -> dict[str, float]:
        """Seconds, steps, tokens and cost of the run and its children up to now, over all attempts."""
        if self._row is not None:
            know_children(self._store.backend, self._row, self._account)
        used, below = self._played.used, self._account.below
        seconds = used.seconds + (time.monotonic() - self._began if self._saver is not None else 0.0)
        return {
            "seconds": seconds + below.seconds + self._account.lost, "steps": used.steps + below.steps, "tokens": used.tokens + below.tokens,
            "cost": used.cost + below.cost,
        }  # fmt: skip

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
        self._lock.check()
        self._fire("before_checkpoint", kind="manual")
        self._refuse_second_saver()
        commit = None
        with self._lock:
            before = self._row
            try:
                commit = self._prepare(note, tags, meta, state, self._header("manual", None, False))
                self._durable(commit)
            except BaseException as error:
                self._take_back(commit, before, error)
                self._met(error)
                raise
        return self._made(commit)

    def _recorded_save(self, state: Any) -> Checkpoint | None:
        """A workflow that is played back makes no checkpoint twice: the recorded one, if there is one for this call."""
        self._ask()
        if not self._mode.workflow:
            return None
        try:
            return self._find_save(state)
        except TROUBLE as error:
            self._met(error)
            raise

    def _find_save(self, state: Any) -> Checkpoint | None:
        played, place = self._played, self._saves
        self._saves += 1
        if state is not None and (self._dry or place < played.skip_saves):
            self.state = state
        if self._dry or place < played.skip_saves:
            if place == played.skip_saves - 1 and played.start.get("edited"):
                self.state = load(self._store.backend, self._open()[0], 1).revived()
            for edited, form, data in played.start.get("edits", ()):
                if edited == place:
                    self.state = load_result(self._store.backend, self._family, form, data)
            first = played.saves[0] if played.saves else None
            return Checkpoint(first) if first is not None else self._nothing_saved()
        place -= played.skip_saves
        own = played.saves[1:] if played.start.get("number") else played.saves
        if place >= len(own):
            return None
        if state is not None:
            self.state = state
        return Checkpoint(own[place])

    def _place_of(self, done: Checkpoint) -> int:
        """Where the checkpoint that was found last stands in the journal; 0 if it stands for one of another run."""
        return 0 if self._dry or self._saves <= self._played.skip_saves else done._record.seq

    def _nothing_saved(self) -> Checkpoint:
        row, _ = self._open()
        return Checkpoint(Record(row.id, 0, _CHECKPOINT, row.epoch, clock.now_us(), 0, None, (), None, None, None, None, b"", b""))

    def step(
        self, name: str | Callable[..., Any] = ABSENT, function: Any = ABSENT, /, *args: Any, key: Any = None, retry: Any = None,
        timeout: float | None = None, **kwargs: Any,
    ) -> Any:  # fmt: skip
        """Call a function and record its result: `run.step("name", function, *args)` or `run.step(function, *args)`.

        A recorded step is not run again: its result comes from the journal. `key` says what it is known by instead of its input and its
        turn; `retry` and `timeout` are those of this call.
        """
        return call(self, self._here(), name, function, args, kwargs, options_of(key, retry, timeout))

    def _called(self, name: Any, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A decorated step or a child workflow was called: all arguments are its own, whatever they are called."""
        return call(self, self._here(), name, function, args, kwargs, {})

    def map(self, function: Callable[..., Any], items: Iterable[Any], concurrency: int = 8) -> list[Any]:
        """One step for each item, at most `concurrency` at the same time in threads; results in the order of the items."""
        from everstep.runtime.steps.parallel import drive_all

        return drive_all(self._map(function, items, concurrency), concurrency)

    def _map(self, function: Callable[..., Any], items: Iterable[Any], concurrency: int) -> list[Ticket]:
        if type(concurrency) is not int or concurrency < 1:
            raise InvalidArgument(f"concurrency={concurrency!r:.60} is no whole number from 1 on")
        here = self._here()
        return [begin(self, here, function, ABSENT, (item,), {}, {}) for item in check_items(items)]

    @property
    def _ticket(self) -> Ticket:
        here = owner.within(self)
        if here is None or here.ticket is None:
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

    def now(self) -> datetime:
        """The time (UTC), recorded: replay gives the same."""
        return cast(datetime, self._drawn("now", clock.now_us, when))

    def random(self) -> float:
        """A number from 0 up to 1, recorded: replay gives the same."""
        return cast(float, self._drawn("random", self._chance, float))

    def uuid(self) -> UUID:
        """A random UUID, recorded: replay gives the same."""
        return cast(UUID, self._drawn("uuid", lambda: str(uuid4()), UUID))

    def _drawn(self, name: str, draw: Callable[[], Any], made: Callable[[Any], Any]) -> Any:
        """Needs no commit of its own: whatever depends on the value is recorded after it, or not at all."""
        self._open()
        address = self._address(self._here(), name)
        found = self._recorded(address)
        if found is not None:
            try:
                return made(self._loaded(found.entry))
            except (AttributeError, OSError, OverflowError, TypeError, ValueError) as error:
                raise DamagedRecord(self.id, found.record.seq, f"it is no value of {address}") from error
        value = draw()
        if not self._dry:
            self._put("step", pack(value_entry(self, value)), address)
        return made(value)

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
        """Put an event of your own into the journal, with the next commit; policies, hooks and the store's events know it as `custom:name`."""
        check_name(name)
        self._say(f"custom:{name}", data)

    def milestone(self, name: str, note: str | None = None) -> None:
        """Say that something worth keeping was reached; a policy `on("milestone")` makes a checkpoint of it."""
        self._say("milestone", {"milestone": name, "note": note})

    def _say(self, event: str, data: dict[str, Any]) -> None:
        """An event that the program asked for. What is played back says nothing twice."""
        self._open()
        address = self._address(self._here(), f"event:{event}")
        if self._dry or address in self._played.words:
            return
        mask = self._mask
        kept = data if mask is None else mask(data, f"event {event}")
        self._put("event", pack(EventEntry.of(event, kept, f"event {event}")), address)
        if self._mode.policy.due(event, None, 0, 0.0) is not None:
            self._save("automatic", f"on {event}", safe=True)
        self._fire(event if event.startswith("custom:") else f"custom:{event}", **data)

    def _give(self, result: Any) -> None:
        """A workflow returned: whether that can be stored belongs to its own outcome."""
        mask = self._mask
        kept = result if mask is None else mask(result, "what the workflow returned")
        self._returned = result_body(kept, "what the workflow returned", self._store.framer.wrap)
        self._result = result

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._closing = True
        error = signals.told(self, error)
        if inside():  # a generator that was collected in the middle of a save
            abandoned.leave(self, error)
            owner.leave(self._root)
            return
        try:
            self._leave(error)
        finally:
            owner.leave(self._root)
        self._exit_process(error)

    def _exit_process(self, error: BaseException | None) -> None:
        """A signal asked the whole program to stop, not only this run; a child run leaves that to its caller."""
        missed = signals.missed()
        if isinstance(error, Interrupted) and error.exit_code is not None:
            if not self._mode.driven:
                raise SystemExit(error.exit_code) from error
        elif missed is not None and (error is None or isinstance(error, Exception)):
            raise SystemExit(128 + missed) from error

    def _leave(self, error: BaseException | None) -> None:
        """Record how the run ended; an error of the program goes before one of ours."""
        error = end_of(self, stopped_by(error))
        self._notice_trouble(error)
        if self._ticker is not None:
            self._ticker.stop()  # nobody else commits from here on
        try:
            if self._dry:
                return
            if self._failure is not None:
                give_back(self)
                self._tell_broken(self._failure, error)
                return
            if error is None and self._async and self._mode.workflow:
                self._cancel_left_behind()
            if self._lost and (error is None or isinstance(error, (Exception, Waiting))):
                self._cancel_lost()
            ending = ending_of(self, error)
            tell_caller(self, ending)
            built = announce(self, ending)
            with self._lock:  # a task that was left behind writes before this, or not at all
                add_loose(self, ending)
                made = end(self, ending, built)
                for ledger, done in self._rows:
                    ledger.done.append(done)
                self._saver = None
            tell_caller(self, ending)  # once more: a caller that looked between the two found the run open
            if made is not None:
                self._fire("after_checkpoint", checkpoint=made)
        except BaseException as trouble:
            give_back(self, trouble)
            if error is None or not isinstance(trouble, EverstepError):
                raise
            error.add_note(f"Everstep could not record how run {self.id!r} ended: {trouble}")
        finally:
            self.report.seconds = time.monotonic() - self._began  # for good
            self.report.unused = [a for a, found in self._played.entries.items() if a not in self._asked and "/" not in a and "@" not in a]
            self._close()
            self._fire("after_run", status=self._row.status if self._row else None)

    def _tell_broken(self, failure: EverstepError, error: BaseException | None) -> None:
        """The store failed under this attempt; nothing was recorded of its end."""
        told = self._durability == "sync" and isinstance(
            failure, (LostLease, Conflict)
        )  # the call that met it raised it; the run is another's now
        if error is None and not told:
            raise failure
        if isinstance(error, Exception) and error is not failure:
            error.add_note(f"Run {self.id!r} was given back without an end, because the store failed: {failure.message}")

    def _notice_trouble(self, error: BaseException | None) -> None:
        """A program that ended with the store's own trouble did not fail: this attempt ends, and the run can be resumed."""
        if self._failure is None and error is not None and not self._dry:
            from everstep.runtime.engine.store_trouble import trouble_in

            self._failure = trouble_in(error, self._store.backend.url, self._trouble)

    def __del__(self) -> None:
        """A handle that was never left: its lease must not be kept for as long as this process lives."""
        if getattr(self, "_saver", None) is not None and not self._closing and not self._dry:
            self._closing = True
            self._root.left = True
            abandoned.leave(self, GeneratorExit())

    async def __aenter__(self) -> Any:
        from everstep.runtime.aio import AsyncRun

        return await AsyncRun.enter(self)

    async def __aexit__(self, *problem: Any) -> None:
        from everstep.runtime.aio import AsyncRun

        await AsyncRun.leave(self, *problem)


def options_of(key: Any, retry: Any, timeout: float | None) -> dict[str, Any]:
    if key is None and retry is None and timeout is None:
        return {}
    return {name: value for name, value in (("key", key), ("retry", retry), ("timeout", timeout)) if value is not None}

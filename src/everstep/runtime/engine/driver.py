"""Drives a run from step to step: what comes before each and after it, what a policy wants saved, and who wants the run to stop.

Relies on `Recorder` for writing and on `Playback` for what was recorded; `Run` is what the program sees of it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from threading import get_ident
from typing import TYPE_CHECKING, Any

from everstep.backends.contract.core import Commit
from everstep.clock import clock
from everstep.codec.frame import Framer
from everstep.codec.values import decode
from everstep.errors import AttemptLost, Interrupted, NonDeterminism, StepTimeout, StoreClosed, StoreError, Suspended, Waiting
from everstep.fields import replace
from everstep.records import Kind, Letter, Record, RunRow
from everstep.runtime.engine import replay
from everstep.runtime.engine.branches import Branch, Branches
from everstep.runtime.engine.context import Frame, frame
from everstep.runtime.engine.journal_writer import TROUBLE, Durability, Recorder
from everstep.runtime.engine.options import Mode
from everstep.runtime.engine.owner import within
from everstep.runtime.engine.replay import Playback
from everstep.runtime.hooks import Hooks
from everstep.runtime.limits import signals
from everstep.runtime.limits.account import Account
from everstep.runtime.limits.autosave import Ticker
from everstep.runtime.limits.policy import Policy, manual
from everstep.runtime.report import Report
from everstep.runtime.steps.drive import Ticket, Turn
from everstep.runtime.waits import gates
from everstep.runtime.waits.wait import Wait
from everstep.store.chain import Entry
from everstep.store.events.event import Event
from everstep.store.journal.entries import SUCCEEDED, EventEntry, Recorded, StepEntry, pack
from everstep.store.journal.results import load_result, result_body
from everstep.store.store import BaseStore
from everstep.store.views import Checkpoint, asked_for, when
from everstep.threads.guard import WRITER, Guard
from everstep.threads.wakeup import Nudge

if TYPE_CHECKING:
    from everstep.backends.contract.transactions import Ledger
    from everstep.runtime.steps.inside import Work

MOST_NAMES = 32
_CHECKPOINT, _STEP, _EVENT = Kind.CHECKPOINT.value, Kind.STEP.value, Kind.EVENT.value
_UNTOLD = ("value_drawn", "step_started", "gate_cancelled")  # records of steps that hooks are not told of, live neither
_HOOKS_OF = {"step": ("after_step",), "checkpoint": ("after_checkpoint",), "answer": ("after_gate",), "gate": ("before_gate",)}


class Driver(Recorder):
    """A run between its steps."""

    def __init__(self, store: BaseStore, durability: Durability, mode: Mode, worker: str):
        super().__init__(store, durability)
        self._mode = mode
        self._replays = mode.workflow
        self._hooks = mode.hooks
        self._ear = signals.ear.get()
        self._dry = mode.replay == "validate"
        self._accept = mode.accept
        self._worker = worker
        self._pid = os.getpid()
        self._numbering = Guard(WRITER)
        self._async = False
        self._task: Any = None  # that of asyncio in which the run was opened
        self._task_here: Callable[[], Any] = lambda: None  # that of the calling code, where the run is async
        self._reset()

    def _reset(self) -> None:
        self._forget()
        self._family = b""
        self._letters: dict[str, Letter] = {}
        self._letters_known = 0
        self._looked_at = time.monotonic()
        self._played = Playback()
        self._account = Account("", self._played, time.monotonic())
        self._opened: RunRow | None = None  # the row as it was when the run was opened
        self._keyed: dict[str, Recorded[StepEntry]] | None = None
        self._turns: dict[str, Turn] = {}  # the steps with a key that are running
        self._root = Frame(self, self)
        self._flight: dict[str, Ticket] = {}
        self._resting: set[str] = set()  # the steps that wait between two attempts
        self._waits: dict[str, Waiting] = {}  # what stopped the program; one that catches it all the same has not gone past it
        self._interrupted: Interrupted | None = None  # something asked the program to stop, and its tasks are being unwound
        self._stopped_in: set[str] = set()  # the paths of the steps around the calls that heard of it
        self._diverged: NonDeterminism | None = None  # changed code asked for something else: a handler must not act on that
        self._given_up: dict[str, Entry] = {}  # the steps that the program cancelled
        self._lost: set[str] = set()  # the calls of child runs among them: those runs are to be cancelled, too
        self._unsure = False  # the last attempt never gave the run back
        self._branches = Branches()
        self._base = 0
        self._steps_since = 0
        self._saved_at = self._began = time.monotonic()
        self._last_step: str | None = None
        self._progress: tuple[float, float] | None = None
        self._asked: set[str] = set()
        self._called_again: set[str] = set()  # the recorded steps that a validation called
        self._ticker: Ticker | None = None
        self._owner = 0
        self._report = Report()
        self._entered: set[str] = set()  # the databases beside the store that know of this attempt
        self._rows: list[tuple[Ledger, tuple[bytes, str]]] = []  # rows in them that may go when the journal is durable

    @property
    def report(self) -> Report:
        """What this attempt took from the journal and what it did itself, up to now."""
        if self._saver is not None:
            self._report.seconds = time.monotonic() - self._began
        return self._report

    def _change_policy(self, policy: Policy) -> None:
        """The store's policy was changed while the run was open: the next decision goes by it."""
        mode = self._mode
        mode.policy, mode.silent = policy, policy == manual
        mode.plain = mode.plain and mode.silent
        ticker = self._ticker
        if ticker is not None:
            ticker.change(policy.seconds)

    def _recorded(self, address: str) -> Recorded[StepEntry] | None:
        found = self._played.entries.get(address)
        if found is None and "@" in address:
            if self._keyed is None:  # what came later is remembered, and may not be stored yet
                self._keyed = self._read_keyed()
            found = self._keyed.get(address)
        if found is not None:
            self._asked.add(address)
        return found

    def _read_keyed(self) -> dict[str, Recorded[StepEntry]]:
        try:
            return replay.keyed(self._store.backend, self._opened or self._open()[0])
        except TROUBLE as error:
            self._met(error, step=True)
            raise

    def _loaded(self, step: StepEntry) -> Any:
        """The recorded result of a step."""
        try:
            return load_result(self._store.backend, self._family, step.form, step.result)
        except TROUBLE as error:
            self._met(error, step=True)
            raise

    def _refuse_trouble(self, error: Exception) -> None:
        """The function of a step raised this. If the store failed under it, the step did not fail: the attempt ends, and no retry is used up."""
        self._refuse_broken()
        from everstep.runtime.engine.store_trouble import trouble_in

        found = trouble_in(error, self._store.backend.url)
        if found is not None:
            self._met(found, step=True)
            raise found

    def _not_recorded(self, ticket: Ticket, error: BaseException) -> None:
        """Before an error is raised: the end of a step could not be recorded."""
        self._flight.pop(ticket.address, None)
        if isinstance(error, (*TROUBLE, AttemptLost)):
            self._unwritten.add(ticket.address)
        self._met(error, step=True)

    def _kept(self, address: str, step: StepEntry) -> None:
        report = self._report
        report.kept += 1
        report.seconds_saved += (step.ended - step.started) / 1e6
        report.tokens_saved += step.tokens
        report.cost_saved += step.cost
        self._last_step = address

    def _before_step(self, ticket: Ticket) -> tuple[Any] | None:
        """All that comes before a step is run. Gives (result,) if it need not be run at all."""
        self._open()
        if os.getpid() != self._pid:
            raise StoreClosed(f"run {self.id!r} was opened before this process was forked", remedy="Open the store anew in the child.")
        self._boundary()
        if self._waits and get_ident() == self._owner:
            raise next(iter(self._waits.values()))  # a `finally` while the run is suspended: the program is not leaving its block yet
        self._afford(ticket)
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
        if ticket.options.transactional is not None:
            ticket.options.transactional.skip(ticket)
        letter = self._letters.pop(f"skip:{ticket.address}")
        result = decode(self._store.framer.unwrap(letter.body))
        ticket.started = clock.now_us()
        mask = self._mask
        kept = result if mask is None else mask(result, f"result of {ticket.address}")
        form, data, chunks = result_body(kept, f"result of {ticket.address}", self._store.framer.wrap)
        ticket.record(SUCCEEDED, form, data, None, {"skipped": True}, chunks)
        with self._lock:
            self._read.append(letter.name)
        try:
            self._write_step(ticket, None)
        except BaseException:
            with self._lock:  # what the operator said still holds: no later commit may take the letter away
                self._read = [name for name in self._read if name != letter.name]
                self._letters[letter.name] = letter
            raise
        return (result,)

    def _write_step(self, ticket: Ticket, error: Exception | None) -> None:
        """Make the end of a step, or of one attempt, durable."""
        commit = self._record_step(ticket, self._due(ticket, error))
        self._after_step(ticket, error, commit)

    def _record_step(self, ticket: Ticket, due: tuple[str, str] | None) -> Commit:
        waiter: _Waiter | None = None
        commit, before = None, self._row
        self._lock.check()
        try:
            with self._lock:
                before = self._row
                commit = self._step_commit(ticket, due)
                if ticket.work is not None and ticket.work.inside:
                    self._commit_inside(ticket.work, commit)
                elif len(self._flight) > 1 and self._durability == "sync":
                    waiter = _Waiter()
                    self._store.backend.submit(commit, waiter.done)
                else:
                    self._durable(commit)
            if waiter is not None:
                waiter.wait()
        except BaseException as trouble:
            self._take_back(commit, before, trouble)
            self._not_recorded(ticket, trouble)
            raise
        return commit

    def _commit_inside(self, work: Work, commit: Commit) -> None:
        """Have a commit end the transaction of its step. It follows all that this run has handed over, and nothing follows it until it is known."""
        if self._durability != "sync":
            self._catch_up()
        work.commit(commit)
        self._heard = commit.waiting

    def _due(self, ticket: Ticket, error: Exception | None) -> tuple[str, str] | None:
        """The kind and the trigger of the checkpoint that goes with the end of a step, if one is due. Hooks hear of it while no lock is held."""
        if self._mode.silent or get_ident() != self._owner:
            return None
        event, seconds = "error" if error else "step", time.monotonic() - self._saved_at
        trigger = self._mode.policy.due(event, ticket.kind, self._steps_since + 1, seconds)
        if trigger is None:
            return None
        kind = "error" if error else "post_step" if trigger in ("on step", "on post_step") else "automatic"
        self._fire("before_checkpoint", kind=kind)
        return kind, trigger

    def _step_commit(self, ticket: Ticket, due: tuple[str, str] | None) -> Commit:
        """The commit that records a step, together with the checkpoint that is due."""
        self._account.add(ticket.tokens, ticket.cost, ticket.reserved)
        ticket.reserved = False
        self._steps_since += 1
        self._last_step = ticket.address
        self._take_up(ticket)
        if due is not None:
            return self._prepare(None, (), None, None, self._header(*due, False))
        return self._note()

    def _take_up(self, ticket: Ticket) -> None:
        """Put the record of a step into the commit that is being built: in no other, whose failure could lose it unnoticed."""
        if ticket.entry is not None:
            self._entries.append(ticket.entry)
            ticket.entry = None

    def _write_entries(self, ticket: Ticket | None = None) -> None:
        """Make what was put up durable, without a checkpoint."""

        def build() -> Commit:
            if ticket is not None:
                self._take_up(ticket)
            return self._note()

        if self._post_came(self._commit(build)):
            self._look_for_letters()

    def flush(self) -> None:
        """Return when all that was recorded up to now is durable, events and drawn values too; raise if something could not be made so."""
        self._lock.check()
        self._open()
        if self._entries:  # otherwise they wait for the next commit, and a kill before it loses them
            self._write_entries()
        self._catch_up()

    def _after_step(self, ticket: Ticket, error: Exception | None, commit: Commit) -> None:
        self._flight.pop(ticket.address, None)
        self._report.executed += 1
        if self._unsure:
            self._unsure = not self._alone(ticket.address)
        if ticket.options.key is not None or "/" in ticket.address:
            self._remember(ticket, commit)
        if commit.run.checkpoints != (commit.was.checkpoints if commit.was else 0):
            self._made(commit)
        elif self._post_came(commit):
            self._look_for_letters()
        if self._hooks.wanted("after_step") or (error is not None and self._hooks.wanted("error")):
            status = "failed" if error else "succeeded"
            self._fire("after_step", step=ticket.address, status=status, attempt=ticket.attempt, tokens=ticket.tokens, cost=ticket.cost)
            if error is not None:
                self._fire("error", step=ticket.address, error=repr(error))
        self._boundary()

    def _alone(self, address: str) -> bool:
        """Whether a step that ended was the only one which the last attempt can have died in: no other runs, and no lost one came after it.

        One that ended in a thread or task beside the program's own tells nothing about those of the others.
        """
        beside = any(not address.startswith(f"{other}/") for other in self._flight)
        return not beside and self._durability == "sync" and get_ident() == self._owner and self._in_own_task()

    def _in_own_task(self) -> bool:
        return self._task is None or self._task_here() is self._task

    def _branch(self) -> Branch:
        """The branch of the program that the calling code is."""
        return self._branches.here(self._task_here() if self._async else None)

    def _ask(self) -> None:
        """The program asks for something that is recorded."""
        branch = self._branch()
        with self._numbering:
            self._branches.ask(branch)

    def _try_again(self, ticket: Ticket) -> None:
        """The next attempt of a step begins."""
        ticket.attempt += 1
        if ticket.options.at_most_once:
            gates.write_intent(self, ticket)

    def _remember(self, ticket: Ticket, commit: Commit) -> None:
        """What this attempt may ask for again: a step with a key, and a step inside of one that is tried several times."""
        address, outer = ticket.address, self._tried_again(ticket.address)
        if ticket.options.key is None and outer is None:
            return
        record = next((r for r in commit.records if r.note == address and r.kind == _STEP), None)
        if record is not None:
            self._played.entries[address] = Recorded(record)
            if outer is not None and ticket.options.key is None:
                outer.inner.append(address)

    def _tried_again(self, address: str) -> Ticket | None:
        """The outermost step around an address that has a retry."""
        parts = address.split("/")
        around = (self._flight.get("/".join(parts[:count])) for count in range(1, len(parts)))
        return next((ticket for ticket in around if ticket is not None and ticket.options.retry is not None), None)

    def _break_off(self, ticket: Ticket, error: BaseException) -> None:
        """A step was left without an end. One that waits or was stopped at its own inner step is in order; any other is doubtful."""
        if isinstance(error, Suspended):
            self._flight.pop(ticket.address, None)
        if isinstance(error, Waiting):
            self._waits.setdefault(ticket.address, error)

    def _refuse_unwound(self, ticket: Ticket) -> None:
        """The function of a step has ended. If something inside it waits or was stopped, and it caught that, this is no end of the step."""
        if self._waits or self._interrupted is not None:
            inside = f"{ticket.address}/"
            stop: Suspended | None = next((one for address, one in self._waits.items() if address.startswith(inside)), None)
            if stop is None and any(path.startswith(inside) for path in self._stopped_in):
                stop = self._interrupted
            if stop is not None:
                self._break_off(ticket, stop)
                raise stop

    def _give_up(self, ticket: Ticket) -> None:
        """The program cancelled a step. Recorded with the next commit: whatever depends on it comes after that, or is not recorded at all."""
        if self._is_stopping:
            return  # the next attempt runs it again
        self._flight.pop(ticket.address, None)
        ticket.started = ticket.started or clock.now_us()
        entry = ticket.cancelled()
        with self._lock:
            self._entries.append(entry)
            self._given_up[ticket.address] = entry
        self._lose_children(ticket)
        self._branches.cancelled(ticket.address, self._branch())

    def _lose_children(self, ticket: Ticket) -> None:
        """The program no longer waits for a step: the child runs that are driven in it are to be cancelled."""
        inside = f"{ticket.address}/"
        around = (ticket, *(one for address, one in list(self._flight.items()) if address.startswith(inside)))
        self._lost.update(one.address for one in around if getattr(one.function, "is_child", False))

    def _cancel_lost(self) -> None:
        """Cancel the child runs whose calls the program cancelled. Recorded first: if this process dies in between, a replay cancels them."""
        from everstep.runtime.child import cancel_child

        with self._lock:
            unwritten = any(self._given_up.get(address) is entry for address in self._lost for entry in self._entries)
        if unwritten:
            self._write_entries()
        if self._durability != "sync":
            self._catch_up()
        for address in list(self._lost):
            try:
                cancel_child(self, address)
            except TROUBLE as error:
                self._met(error)
                raise
            self._lost.discard(address)

    def _cancel_left_behind(self) -> None:
        """The program has returned: cancel the child runs that it called, in this attempt or before, and did not wait for."""
        in_flight = any(getattr(one.function, "is_child", False) for one in list(self._flight.values()))
        if not in_flight and self._open()[0].epoch <= 1:
            return
        from everstep.runtime.child import cancel_open_children

        try:
            cancel_open_children(self)
        except TROUBLE as error:
            self._met(error)
            raise

    def _survives(self) -> bool:
        """Whether the program itself runs on: its own task is not being cancelled, and nothing stops the run."""
        return not self._is_stopping and not (self._task is not None and self._task.cancelling())

    def _nap(self, seconds: float) -> None:
        """Wait in this process, a little at a time, so that a signal or an operator is heard."""
        wait = Wait(seconds)
        while (left := wait.left()) > 0:
            clock.nap(left, 0.2)
            self._listen()

    def _is_busy_beside(self, address: str) -> bool:
        """Whether a step runs that is not around this address."""
        return any(step not in self._resting and not f"{address}/".startswith(f"{step}/") for step in self._flight)

    def _listen(self) -> None:
        """While the run waits in this process: whether a signal has come, and every second whether an operator has written."""
        if time.monotonic() - self._looked_at > 1.0:
            self._look_for_letters()
        self._boundary()

    def _chance(self) -> float:
        import random

        return random.random()  # noqa: S311 - it spreads retries, it hides nothing

    @property
    def _is_stopping(self) -> bool:
        """Whether tasks are cancelled because the run stops, not because the program wants it."""
        stopped = self._interrupted is not None or bool(self._waits) or self._saver is None or self._failure is not None
        return stopped or self._dry or signals.seen(self) is not None

    def _boundary(self) -> None:
        """Between steps: whether somebody or something wants the run to stop."""
        self._refuse_broken()
        if self._diverged is not None:
            raise self._diverged
        found = signals.seen(self)
        if found is not None:
            raise self._interrupt(f"signal {found[0]}", found[1])
        if self._letters:
            self._obey()
        if self._lost and self._survives():
            self._cancel_lost()
        if self._mode.timeout is not None or self._mode.caller is not None:
            late = self._account.timed_out()
            if late is not None:
                raise self._interrupt(late)

    def _stopped_by(self, waiting: Waiting) -> Suspended:
        """What stops the caller of a child that waits: its own limit, if that is what stopped the child."""
        reason = self._stops() if f" of run {self.id!r}: " in waiting.what else None
        return waiting if reason is None else self._interrupt(reason)

    def _diverge(self, address: str, recorded: str, now: str) -> NonDeterminism:
        """The error of a program that asks for something else than it recorded. A workflow makes no further step after it, whatever it catches."""
        error = NonDeterminism(self.id, address, recorded, now, not self._mode.workflow)
        if self._mode.workflow and self._diverged is None and not self._dry:
            self._diverged = error
        return error

    def _interrupt(self, reason: str, exit_code: int | None = None) -> Interrupted:
        here = frame.get()
        if here is not None and here.run is self:
            self._stopped_in.add(here.path)
        self._interrupted = Interrupted(self.id, reason, exit_code)
        return self._interrupted

    def _afford(self, ticket: Ticket) -> None:
        """Before a step or an attempt at it: have a place in the budgets, those of the callers too, or stop the run."""
        if self._account.limited and not self._has_place(ticket):
            raise self._over_budget(ticket)

    def _stops(self) -> str | None:
        """Why this run has to stop now: its time, or a budget of its own or of a caller, is used up."""
        return self._account.timed_out() or self._account.over()

    def _has_place(self, ticket: Ticket) -> bool:
        if not ticket.reserved:
            ticket.over = self._account.reserve()
            ticket.reserved = ticket.over is None
        return ticket.reserved

    def _over_budget(self, ticket: Ticket) -> Interrupted:
        return self._interrupt(ticket.over or "budget")

    def _give_back_place(self, ticket: Ticket) -> None:
        """A step has ended without a record: it was stopped, or it could not be recorded."""
        if ticket.reserved:
            ticket.reserved = False
            self._account.give_back()

    def _obey(self) -> None:
        for name in ("cancel", "pause"):
            letter = self._letters.get(name)
            if letter is not None:
                raise self._interrupt(told(letter, self._store.framer))

    def _post_came(self, commit: Commit) -> bool:
        """Whether there are more or fewer letters than were looked at. A commit that is on its way cannot tell: the last one that was made does."""
        heard = commit.waiting if self._durability == "sync" else self._heard
        return heard is not None and heard != self._letters_known

    def _look_for_letters(self) -> None:
        """After a commit, or while the run waits: letters that cannot be read now are read later. The next commit meets the same trouble and reports it."""
        with suppress(StoreError):
            self._look_at_letters()

    def _look_at_letters(self) -> None:
        row = self._open()[0]
        self._looked_at = time.monotonic()
        found = self._store.backend.letters(row.id)
        self._letters_known = len(found)
        self._letters = {
            letter.name: gates.verified_letter(row, letter, self._store.backend.seal) for letter in found if letter.name not in self._read
        }
        for name in [name for name in self._letters if name.startswith("again:")]:
            address = name.removeprefix("again:")
            replay.forget(self._recorded(address))
            self._played.retry(address)
            self._put("event", pack(EventEntry.of("retried", {"steps": [address]})), None)
            self._read.append(name)
            del self._letters[name]

    def _fire(self, name: str, row: RunRow | None = None, **data: Any) -> None:
        if self._hooks.wanted(name):
            run = row.id if row is not None else self._name()
            self._hooks.fire(name, Event(name, run, when(clock.now_us()), data))

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

    def _made(self, commit: Commit) -> Checkpoint:
        """A checkpoint was saved: what follows from that."""
        record: Record = next(r for r in commit.records if r.kind == _CHECKPOINT)
        self._steps_since = 0
        self._saved_at = time.monotonic()
        made = Checkpoint(record)
        if asked_for(record.own):
            self._base = record.number
        if self._post_came(commit):
            self._look_for_letters()
        self._fire("after_checkpoint", checkpoint=made)
        return made

    def _save(self, kind: str, trigger: str, safe: bool = False) -> None:
        """A checkpoint that the runtime makes by itself, in this thread."""
        self._fire("before_checkpoint", kind=kind)
        self._made(self._commit(lambda: self._prepare(None, (), None, None, self._header(kind, trigger, safe))))

    def _here(self) -> Frame:
        """Where the calling code stands in this run. Every call of the program that is numbered comes by here."""
        self._lock.check()
        here = within(self)
        if here is None:
            return self._root
        if here.dead:
            raise StepTimeout(f"{here.path[:-1]} took too long and was given up: nothing that its thread still does is recorded")
        return here

    def _address(self, here: Frame, name: str) -> str:
        """The address of the next use of a name in one place. Numbers are given one at a time."""
        if self._numbering.owned():
            self._numbering.check()
        branch = self._branch()
        with self._numbering:
            self._branches.ask(branch)
            return here.address(name)

    def _name(self) -> str:
        return self._row.id if self._row else "a run"


class _Waiter:
    """Waits for a commit that another thread leads."""

    def __init__(self) -> None:
        self._done = Nudge()
        self._error: BaseException | None = None

    def done(self, error: BaseException | None) -> None:
        self._error = error
        self._done.give()

    def wait(self) -> None:
        while not self._done.wait(0.5):  # a signal that comes just before a wait is heard after it
            pass
        if self._error is not None:
            raise self._error


def republish(hooks: Hooks, records: list[Record]) -> None:
    """Say once more, to this process's hooks, what was recorded."""
    from everstep.store.events.feed import event_of

    for record in records:
        event = event_of(None, record, replayed=True)
        if record.kind == _EVENT and (event.name.startswith("custom:") or event.name == "milestone"):
            name = f"custom:{event.name.removeprefix('custom:')}"
            hooks.fire(name, replace(event, name=name))
        elif event.name not in _UNTOLD:
            for name in _HOOKS_OF.get(record.kind, ()):
                hooks.fire(name, event)
            if event.name in ("step_failed", "step_retrying"):
                hooks.fire("error", event)


def told(letter: Letter, framer: Framer) -> str:
    """What an operator wants, and why."""
    reason = decode(framer.unwrap(letter.body))
    return f"{letter.name}: {reason}" if reason else letter.name

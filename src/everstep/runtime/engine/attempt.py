"""One attempt at a run: its row and lease, its letters, and how far it has come. The parts of the engine hold it, and each other through it.

An attempt begins when the program opens the run and ends when it leaves it. Its life is one line, and `phase` is the place on it:

    NEW ──opening.take──> OPEN ──leaving──> LEAVING ──close──> CLOSED
     └───────────────── could not be opened ────────────────────^

An open attempt stops for one of five reasons. The first is asked for; the others are noted here:

    a signal              `signals.seen`         the next boundary raises Interrupted
    a letter, a limit     `interrupted`          the next boundary raises Interrupted; what the program makes of it is not its end
    a wait                `waits`                Waiting is on its way through the program; an answer takes it back
    other code            `diverged`             every boundary raises it again: a handler must not act on it
    the store failed      `failure`              every call raises it again; nothing more is written, not even the end

`is_stopping` says whether any of them is known, so that tasks which are cancelled meanwhile are not taken for cancelled by the program.
What the attempt is told about the one before it: `unsure`, until a step has ended alone, says that its driver died without giving it back.

Relies on `JournalWriter` for what is written, on `Replay` for what was recorded, on `Letters`, `Saves` and `StepsUnderway` for the rest of its
state. Calls none of the program's code.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Any

from everstep.clock import clock
from everstep.errors import AttemptLost, EverstepError, Interrupted, NonDeterminism, RunClosed, StepTimeout, Suspended, Waiting
from everstep.records import RunRow
from everstep.runtime.engine.context import Frame, frame, opened
from everstep.runtime.engine.journal_writer import Durability, JournalWriter, check_durability
from everstep.runtime.engine.letters import Letters, told
from everstep.runtime.engine.options import Mode
from everstep.runtime.engine.owner import within
from everstep.runtime.engine.replay import Replay
from everstep.runtime.engine.saves import Saves
from everstep.runtime.engine.store_trouble import TROUBLE, trouble_in
from everstep.runtime.limits import signals
from everstep.runtime.limits.account import Account
from everstep.runtime.limits.policy import Policy, manual
from everstep.runtime.observe import Span
from everstep.runtime.report import Report
from everstep.runtime.steps.call import begin, call
from everstep.runtime.steps.lookup import end_turn
from everstep.runtime.steps.underway import StepsUnderway
from everstep.runtime.tasks.branches import Branch, Branches
from everstep.snapshot.saver import Saver
from everstep.store.events.event import Event
from everstep.store.views import when
from everstep.threads.guard import WRITER, Guard

if TYPE_CHECKING:
    from everstep.runtime.driving_store import Host
    from everstep.runtime.engine.leases import Keeper
    from everstep.runtime.tasks.writer import TaskWriter


class Phase(Enum):
    """Where an attempt is in its life."""

    NEW = "new"
    OPEN = "open"
    LEAVING = "leaving"
    CLOSED = "closed"


NEW, OPEN, LEAVING, CLOSED = Phase.NEW, Phase.OPEN, Phase.LEAVING, Phase.CLOSED


class Attempt:
    """One attempt at a run. `handle` is the `Run` that the program has; `given` are the id, the first state and the fields of a new run."""

    def __init__(
        self,
        store: Host,
        keeper: Keeper,
        handle: Any,
        given: tuple[str | None, Any, dict[str, Any]],
        durability: Durability,
        options: Mode,
        follows: bool = False,
    ):
        self.store = store
        self.keeper = keeper
        self.handle = handle
        self.given = given
        self.options = options
        self.durability = check_durability(durability)
        self.observers = store.observers
        self.replays = options.workflow  # its program is run again from its beginning, so that an attempt can be given up at any call
        self.dry = options.replay == "validate"
        self.mask = store.mask  # a run that is open keeps what it was opened with
        self.worker = f"{keeper.worker.host}:{keeper.worker.pid}"
        self.ear = signals.ear.get()
        self.pid = os.getpid()
        self._start_empty()
        self._follows = follows  # it hears of it when the policy of the store changes
        if follows:
            store.follow(self)

    def _start_empty(self) -> None:
        self.phase = NEW
        self.row: RunRow | None = None  # as it is believed to be stored
        self.saver: Saver | None = None  # the live state; None before the attempt is open and after its last commit
        self.opened_row: RunRow | None = None  # as it was when the run was opened
        self.family = b""
        self.began = time.monotonic()
        self.owner = 0  # the thread that opened the run
        self.is_async = False
        self.task: Any = None  # that of asyncio in which the run was opened
        self.task_here: Callable[[], Any] = _no_task  # that of the calling code, where the run is async
        self.tasks: TaskWriter | None = None  # what an async run has beside
        self.failure: EverstepError | None = None
        self.trouble: EverstepError | None = None  # the newest error of the store that the program was told
        self.unwritten: set[str] = set()  # steps that ran and whose end could not be recorded
        self.waits: dict[str, Waiting] = {}
        self.interrupted: Interrupted | None = None
        self.stopped_in: set[str] = set()  # the paths of the steps around the calls that heard of it
        self.diverged: NonDeterminism | None = None
        self.unsure = False
        self.span: Span | None = None  # what observers know of this attempt
        self.buried = 0  # after how many deaths it was given up, when it was opened
        self.result: Any = None  # of a workflow that has returned
        self.returned: tuple[int, bytes | None, list[tuple[bytes, bytes]]] = (0, None, [])  # the same, as it is stored
        self.at_end: list[Callable[[], None]] = []  # called when the last commit is durable
        self.databases: set[str] = set()  # those beside the store that know of this attempt
        self.numbering = Guard(WRITER)
        self.root = Frame(self, self.handle)
        self.branches = Branches()
        self.replay = Replay()
        self.account = Account("", self.replay, self.began)
        self.writer = JournalWriter(self)
        self.letters = Letters(self)
        self.saves = Saves(self)
        self.steps = StepsUnderway(self)
        self.report = Report()

    def renewed(self) -> Attempt:
        """The next attempt through the same handle."""
        made = Attempt(self.store, self.keeper, self.handle, self.given, self.durability, self.options, self._follows)
        made.ear, made.pid = self.ear, self.pid
        return made

    @property
    def id(self) -> str:
        """The id of the run, which never changes."""
        if self.row is None:
            raise RunClosed("the run is not open yet")
        return self.row.id

    @property
    def name(self) -> str:
        return self.row.id if self.row else "a run"

    @property
    def is_leaving(self) -> bool:
        """Whether the program has left the run: it is about to be closed, or is."""
        return self.phase is LEAVING or self.phase is CLOSED

    def live(self) -> tuple[RunRow, Saver]:
        """The row and the live state of an attempt that is open; raises RunClosed if it is not."""
        if self.row is None or self.saver is None:
            raise RunClosed("the run is not open", remedy="Use it inside its block: with store.run(id) as run: ...")
        return self.row, self.saver

    def opened_with(self, row: RunRow, saver: Saver) -> None:
        """The run is open from now on: the program may ask."""
        self.phase, self.row, self.saver, self.failure = OPEN, row, saver, None
        self.opened_row, self.family = row, row.family
        self.report.run, self.report.attempt = row.id, max(1, row.epoch)

    def not_opened(self) -> None:
        """The run could not be opened, after its lease was taken."""
        self.phase, self.saver = CLOSED, None

    def leaving(self) -> None:
        """The program leaves the run: a signal that comes now stops nothing more."""
        self.phase = LEAVING

    def close(self) -> None:
        """The attempt is over, however it ended."""
        self.saves.stop_clock()
        self.phase, self.saver = CLOSED, None
        for ticket in list(self.steps.elsewhere.values()):
            end_turn(ticket)  # others of its key need not wait for one that nobody can end any more
        opened(-1)
        signals.unwatch(self)
        if not self.dry:
            self.keeper.released()

    # How it stops.

    @property
    def is_stopping(self) -> bool:
        """Whether tasks are cancelled because the run stops, not because the program wants it."""
        stopped = self.interrupted is not None or bool(self.waits) or self.saver is None or self.failure is not None
        return stopped or self.dry or signals.seen(self) is not None

    def survives(self) -> bool:
        """Whether the program itself runs on: its own task is not being cancelled, and nothing stops the run."""
        return not self.is_stopping and not (self.task is not None and self.task.cancelling())

    def broken_by(self, error: EverstepError) -> None:
        """The store failed under this attempt: it writes no more. The first failure stays."""
        self.failure = self.failure or error

    def refuse_broken(self) -> None:
        """Raise what ended this attempt, if anything did. A workflow must not be able to take that for an error of its own."""
        if self.failure is not None:
            raise AttemptLost(self.id, self.failure) if self.replays else self.failure

    def met(self, error: BaseException, step: bool = False) -> None:
        """Before an error is raised that a commit or a read of this run met: the store's own trouble ends the attempt of a workflow, which is
        told by AttemptLost. In a loop of one's own it does so after a `step`, whose result is missing; a checkpoint can be saved again."""
        if not isinstance(error, TROUBLE):
            return
        self.trouble = error
        if step or self.replays:
            self.broken_by(error)
        if self.replays:
            raise AttemptLost(self.id, self.failure or error) from error

    def met_in_step(self, error: BaseException) -> None:
        """The same for what a step needs."""
        self.met(error, step=True)

    def refuse_trouble(self, error: Exception) -> None:
        """The function of a step raised this. If the store failed under it, the step did not fail: the attempt ends, and no retry is used up."""
        self.refuse_broken()
        found = trouble_in(error, self.store.backend.url)
        if found is not None:
            self.met(found, step=True)
            raise found

    def interrupt(self, reason: str, exit_code: int | None = None) -> Interrupted:
        """The error that stops the program, for the caller to raise."""
        here = frame.get()
        if here is not None and here.run is self:
            self.stopped_in.add(here.path)
        self.interrupted = Interrupted(self.id, reason, exit_code)
        return self.interrupted

    def waiting(self, address: str, what: str, until: int | None) -> Waiting:
        """The error that unwinds the program until something has come, for the caller to raise."""
        self.waits[address] = waiting = Waiting(self.id, what, until)
        return waiting

    def diverge(self, address: str, recorded: str, now: str) -> NonDeterminism:
        """The error of a program that asks for something else than it recorded. A workflow makes no further step after it, whatever it catches."""
        error = NonDeterminism(self.id, address, recorded, now, not self.options.workflow)
        if self.options.workflow and self.diverged is None and not self.dry:
            self.diverged = error
        return error

    def stops(self) -> str | None:
        """Why this run has to stop now: its time, or a budget of its own or of a caller, is used up."""
        return self.account.timed_out() or self.account.over()

    def stopped_by(self, waiting: Waiting) -> Suspended:
        """What stops the caller of a child that waits: its own limit, if that is what stopped the child."""
        reason = self.stops() if f" of run {self.id!r}: " in waiting.what else None
        return waiting if reason is None else self.interrupt(reason)

    def boundary(self) -> None:
        """Between steps: raise if somebody or something wants the run to stop."""
        self.refuse_broken()
        if self.diverged is not None:
            raise self.diverged
        found = signals.seen(self)
        if found is not None:
            raise self.interrupt(f"signal {found[0]}", found[1])
        if self.letters.waiting:
            self._obey()
        if self.steps.lost and self.survives():
            self.steps.cancel_lost()
        if self.options.timeout is not None or self.options.caller is not None:
            late = self.account.timed_out()
            if late is not None:
                raise self.interrupt(late)

    def _obey(self) -> None:
        for name in ("cancel", "pause"):
            letter = self.letters.waiting.get(name)
            if letter is not None:
                raise self.interrupt(told(letter, self.store.framer))

    def listen(self) -> None:
        """While the run waits in this process: whether a signal has come, and every second whether an operator has written."""
        if time.monotonic() - self.letters.looked_at > 1.0:
            self.letters.look_if_possible()
        self.boundary()

    # Where the program is.

    def here(self) -> Frame:
        """Where the calling code is in this run. Every call of the program that is numbered comes by here."""
        self.writer.lock.check()
        here = within(self)
        if here is None:
            return self.root
        if here.dead:
            raise StepTimeout(f"{here.path[:-1]} took too long and was given up: nothing that its thread still does is recorded")
        return here

    def address(self, here: Frame, name: str) -> str:
        """The address of the next use of a name in one place. Numbers are given one at a time."""
        if self.numbering.owned():
            self.numbering.check()
        branch = self.branch()
        with self.numbering:
            self.branches.ask(branch)
            return here.address(name)

    def branch(self) -> Branch:
        """The branch of the program that the calling code is."""
        return self.branches.here(self.task_here())

    def ask(self) -> None:
        """The program asks for something that is recorded."""
        branch = self.branch()
        with self.numbering:
            self.branches.ask(branch)

    def called(self, awaited: bool, name: Any, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a decorated step or a child workflow: all arguments are its own, whatever they are called. `awaited`: give something to await."""
        if not awaited:
            return call(self, self.here(), name, function, args, kwargs, {})
        assert self.tasks is not None
        return self.tasks.drive(begin(self, self.here(), name, function, args, kwargs, {}))

    # What it tells.

    def fire(self, name: str, row: RunRow | None = None, **data: Any) -> None:
        """Tell the hooks."""
        if self.options.hooks.wanted(name):
            run = row.id if row is not None else self.name
            self.options.hooks.fire(name, Event(name, run, when(clock.now_us()), data))

    def begin_span(self) -> None:
        """Tell observers that the attempt begins, in the thread or task of the program."""
        if self.observers.active:
            self.span = self.observers.begin("attempt", self.id, self.id, self.report.attempt)

    def end_span(self, error: BaseException | None) -> None:
        """Tell them that it has ended."""
        span, self.span = self.span, None
        if span is not None:
            used = self.replay.used
            span.tokens, span.cost = used.tokens, used.cost
            self.observers.end(span, str(self.row.status) if self.row is not None else None, error)

    def error_body(self, error: BaseException) -> dict[str, Any]:
        """What is kept of an error in this store."""
        from everstep.store.journal.failures import error_body  # only when something failed

        mask = self.mask
        return error_body(error) if mask is None else mask.error(error_body(error, mask.redactor.text))

    def change_policy(self, policy: Policy) -> None:
        """The store's policy was changed while the run was open: the next decision goes by it."""
        options = self.options
        options.policy, options.silent = policy, policy == manual
        options.plain = options.plain and options.silent
        self.saves.change_rhythm(policy.seconds)


def _no_task() -> None:
    """A run that was not opened with async has no tasks."""
    return

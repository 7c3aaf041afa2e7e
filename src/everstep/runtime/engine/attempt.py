"""One attempt at a run: its row and lease, its messages, and its progress. The parts of the engine refer to it, and to each other through it.

An attempt begins when the program opens the run and ends when the program closes it. `phase` says how far it is:

    NEW ──opening.take──> OPEN ──leaving──> LEAVING ──close──> CLOSED
     └───────────────── could not be opened ────────────────────^

An open attempt stops for one of five reasons. The first is checked; the others are stored here:

    a signal              `signals.seen`         the next boundary raises Interrupted
    a message, a limit    `interrupted`          the next boundary raises Interrupted; the program's reaction to it is not its end
    a wait                `waits`                Waiting is being raised through the program; an answer takes it back
    other code            `diverged`             every boundary raises it again: a handler must not act on it
    the store failed      `failure`              every call raises it again; nothing more is written, not even the end

`is_stopping` says whether any of them applies, so that tasks which are cancelled meanwhile do not count as cancelled by the program.
`unsure` says that the process of the attempt before died without releasing the run; it stays True until a step has ended alone.

Relies on `JournalWriter` for writing, on `Replay` for what was recorded, on `Messages`, `Saves` and `StepsUnderway` for the rest of its
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
from everstep.runtime.engine.messages import Messages, request_in
from everstep.runtime.engine.options import AttemptOptions
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
    from everstep.runtime.engine.leases import LeaseKeeper
    from everstep.runtime.engine_store import EngineStore
    from everstep.runtime.tasks.writer import TaskWriter


class Phase(Enum):
    """The phase of an attempt."""

    NEW = "new"
    OPEN = "open"
    LEAVING = "leaving"
    CLOSED = "closed"


NEW, OPEN, LEAVING, CLOSED = Phase.NEW, Phase.OPEN, Phase.LEAVING, Phase.CLOSED


class Attempt:
    """One attempt at a run. `handle` is the program's `Run`; `given` has the id, the first state and the fields of a new run."""

    def __init__(
        self,
        store: EngineStore,
        keeper: LeaseKeeper,
        handle: Any,
        given: tuple[str | None, Any, dict[str, Any]],
        durability: Durability,
        options: AttemptOptions,
        follows: bool = False,
    ):
        self.store = store
        self.keeper = keeper
        self.handle = handle
        self.given = given
        self.options = options
        self.durability = check_durability(durability)
        self.observers = store.observers
        self.replays = options.workflow  # its program runs again from its beginning, so an attempt can be given up at any call
        self.dry = options.replay == "validate"
        self.mask = store.mask  # an open run keeps the mask that it was opened with
        self.worker = f"{keeper.worker.host}:{keeper.worker.pid}"
        self.stop_flag = signals.stop_flag.get()
        self.pid = os.getpid()
        self._start_empty()
        self._follows = follows  # whether changes of the store's policy apply to it
        if follows:
            from everstep.runtime.engine_store import follow  # that module imports this one

            follow(store, self)

    def _start_empty(self) -> None:
        self.phase = NEW
        self.row: RunRow | None = None  # as it should be stored
        self.saver: Saver | None = None  # the live state; None before the attempt is open and after its last commit
        self.left: Saver | None = None  # the same after the block, to be read
        self.opened_row: RunRow | None = None  # as it was when the run was opened
        self.family = b""
        self.began = time.monotonic()
        self.owner = 0  # the thread that opened the run
        self.is_async = False
        self.task: Any = None  # the asyncio task that opened the run
        self.task_here: Callable[[], Any] = _no_task  # returns the task of the calling code, if the run is async
        self.tasks: TaskWriter | None = None  # of an async run
        self.failure: EverstepError | None = None
        self.trouble: EverstepError | None = None  # the newest store error that was raised to the program
        self.unwritten: set[str] = set()  # steps that ran and whose end could not be recorded
        self.waits: dict[str, Waiting] = {}
        self.interrupted: Interrupted | None = None
        self.stopped_in: set[str] = set()  # the paths of the steps around the calls that raised it
        self.diverged: NonDeterminism | None = None
        self.unsure = False
        self.span: Span | None = None  # the observers' span of this attempt
        self.buried = 0  # after how many deaths it was given up, when it was opened
        self.result: Any = None  # of a workflow that has returned
        self.returned: tuple[int, bytes | None, list[tuple[bytes, bytes]]] = (0, None, [])  # the same, as it is stored
        self.at_end: list[Callable[[], None]] = []  # called when the last commit is durable
        self.databases: set[str] = set()  # users' databases whose fence this attempt has raised
        self.numbering = Guard(WRITER)
        self.root = Frame(self, self.handle)
        self.branches = Branches()
        self.replay = Replay()
        self.account = Account("", self.replay, self.began)
        self.writer = JournalWriter(self)
        self.messages = Messages(self)
        self.saves = Saves(self)
        self.steps = StepsUnderway(self)
        self.report = Report()

    def renewed(self) -> Attempt:
        """Return the next attempt through the same handle."""
        made = Attempt(self.store, self.keeper, self.handle, self.given, self.durability, self.options, self._follows)
        made.stop_flag, made.pid = self.stop_flag, self.pid
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
        """Whether the program has left the block of the run: it is being closed, or is."""
        return self.phase is LEAVING or self.phase is CLOSED

    def live(self) -> tuple[RunRow, Saver]:
        """Return the row and the live state of an open attempt; raise RunClosed if it is not open."""
        if self.row is None or self.saver is None:
            raise RunClosed("the run is not open", remedy="Use it inside its block: with store.run(id) as run: ...")
        return self.row, self.saver

    def opened_with(self, row: RunRow, saver: Saver) -> None:
        """Mark the run as open: the program may use it."""
        self.phase, self.row, self.saver, self.failure = OPEN, row, saver, None
        self.opened_row, self.family = row, row.family
        self.report.run, self.report.attempt = row.id, max(1, row.epoch)

    def not_opened(self) -> None:
        """Mark the attempt as closed: the run could not be opened after its lease was taken."""
        self.phase, self.saver = CLOSED, None

    def leaving(self) -> None:
        """Mark that the program leaves the run: a signal that comes now stops nothing more."""
        self.phase, self.left = LEAVING, self.saver

    def close(self) -> None:
        """Close the attempt, however it ended."""
        self.saves.stop_clock()
        self.phase, self.saver = CLOSED, None
        for ticket in list(self.steps.elsewhere.values()):
            end_turn(ticket)  # calls with the same key must not wait for a step that cannot end any more
        opened(-1)
        signals.unwatch(self)
        if not self.dry:
            self.keeper.released()

    # Stopping.

    @property
    def is_stopping(self) -> bool:
        """Whether tasks are cancelled because the run stops, not because the program cancels them."""
        stopped = self.interrupted is not None or bool(self.waits) or self.saver is None or self.failure is not None
        return stopped or self.dry or signals.seen(self) is not None

    def survives(self) -> bool:
        """Whether the program itself continues: its own task is not being cancelled, and nothing stops the run."""
        return not self.is_stopping and not (self.task is not None and self.task.cancelling())

    def broken_by(self, error: EverstepError) -> None:
        """Stop writing: the store failed under this attempt. The first failure is kept."""
        self.failure = self.failure or error

    def refuse_broken(self) -> None:
        """Raise the failure that ended this attempt, if any. As AttemptLost, so that a workflow does not catch it as an error of its own."""
        if self.failure is not None:
            raise AttemptLost(self.id, self.failure) if self.replays else self.failure

    def met(self, error: BaseException, step: bool = False) -> None:
        """Handle an error of a commit or a read before it is raised. An error of the store itself ends the attempt of a workflow, with
        AttemptLost. In a program that uses `store.run`, it ends it only after a `step`, whose result is missing; a checkpoint can be saved again."""
        if not isinstance(error, TROUBLE):
            return
        self.trouble = error
        if step or self.replays:
            self.broken_by(error)
        if self.replays:
            raise AttemptLost(self.id, self.failure or error) from error

    def met_in_step(self, error: BaseException) -> None:
        """Like `met`, for a read or commit that a step needs."""
        self.met(error, step=True)

    def refuse_trouble(self, error: Exception) -> None:
        """Check an error of a step's function. If the store failed under it, the step did not fail: the attempt ends, and no retry is used up."""
        self.refuse_broken()
        found = trouble_in(error, self.store.backend.url)
        if found is not None:
            self.met(found, step=True)
            raise found

    def interrupt(self, reason: str, exit_code: int | None = None, user: str | None = None) -> Interrupted:
        """Return the error that stops the program, for the caller to raise."""
        here = frame.get()
        if here is not None and here.run is self:
            self.stopped_in.add(here.path)
        self.interrupted = Interrupted(self.id, reason, exit_code, user)
        return self.interrupted

    def waiting(self, address: str, what: str, until: int | None) -> Waiting:
        """Return the error that unwinds the program until the wait is over, for the caller to raise."""
        self.waits[address] = waiting = Waiting(self.id, what, until)
        return waiting

    def diverge(self, address: str, recorded: str, now: str) -> NonDeterminism:
        """Return the error of a program that differs from its recording. A workflow runs no further step after it, even if it catches it."""
        error = NonDeterminism(self.id, address, recorded, now, not self.options.workflow)
        if self.options.workflow and self.diverged is None and not self.dry:
            self.diverged = error
        return error

    def stops(self) -> str | None:
        """Return why this run has to stop now: its timeout, or a budget of its own or of a caller; None if it need not."""
        return self.account.timed_out() or self.account.over()

    def stopped_by(self, waiting: Waiting) -> Suspended:
        """Return what stops the caller of a waiting child: its own limit, if that stopped the child; else the wait."""
        reason = self.stops() if f" of run {self.id!r}: " in waiting.what else None
        return waiting if reason is None else self.interrupt(reason)

    def boundary(self) -> None:
        """Raise if the run has to stop. Called between steps."""
        self.refuse_broken()
        if self.diverged is not None:
            raise self.diverged
        found = signals.seen(self)
        if found is not None:
            raise self.interrupt(f"signal {found[0]}", found[1])
        if self.messages.waiting:
            self._obey()
        if self.steps.lost and self.survives():
            self.steps.cancel_lost()
        if self.options.timeout is not None or self.options.caller is not None:
            late = self.account.timed_out()
            if late is not None:
                raise self.interrupt(late)

    def _obey(self) -> None:
        for name in ("cancel", "pause"):
            message = self.messages.waiting.get(name)
            if message is not None:
                asked = request_in(self.store.backend, self.live()[0], message)
                raise self.interrupt(asked.text, user=asked.user)

    def listen(self) -> None:
        """Check for a signal, and every second for an operator's message, while the run waits in this process."""
        if time.monotonic() - self.messages.looked_at > 1.0:
            self.messages.look_if_possible()
        self.boundary()

    # The position of the program.

    def here(self) -> Frame:
        """Return the frame of the calling code in this run. Every numbered call of the program passes here."""
        self.writer.lock.check()
        here = within(self)
        if here is None:
            return self.root
        if here.dead:
            raise StepTimeout(f"{here.path[:-1]} exceeded its timeout and was given up: nothing more that its thread does is recorded")
        return here

    def address(self, here: Frame, name: str) -> str:
        """Return the address of the next use of a name in a frame. Numbers are assigned one at a time."""
        if self.numbering.owned():
            self.numbering.check()
        branch = self.branch()
        with self.numbering:
            self.branches.ask(branch)
            return here.address(name)

    def branch(self) -> Branch:
        """Return the branch of the calling code."""
        return self.branches.here(self.task_here())

    def ask(self) -> None:
        """Count a call of the program that is recorded."""
        branch = self.branch()
        with self.numbering:
            self.branches.ask(branch)

    def called(self, awaited: bool, name: Any, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a decorated step or a child workflow: all arguments are its own, whatever their names. `awaited`: return an awaitable."""
        if not awaited:
            return call(self, self.here(), name, function, args, kwargs, {})
        assert self.tasks is not None
        return self.tasks.drive(begin(self, self.here(), name, function, args, kwargs, {}))

    # Hooks and observers.

    def fire(self, name: str, row: RunRow | None = None, **data: Any) -> None:
        """Call the hooks of an event."""
        if self.options.hooks.wanted(name):
            run = row.id if row is not None else self.name
            self.options.hooks.fire(name, Event(name, run, when(clock.now_us()), data))

    def begin_span(self) -> None:
        """Tell observers that the attempt begins, in the thread or task of the program."""
        if self.observers.active:
            self.span = self.observers.begin("attempt", self.id, self.id, self.report.attempt)

    def end_span(self, error: BaseException | None) -> None:
        """Tell observers that the attempt has ended."""
        span, self.span = self.span, None
        if span is not None:
            used = self.replay.used
            span.tokens, span.cost = used.tokens, used.cost
            self.observers.end(span, str(self.row.status) if self.row is not None else None, error)

    def error_body(self, error: BaseException) -> dict[str, Any]:
        """Return an error as this store saves it."""
        from everstep.store.journal.failures import error_body  # only when something failed

        mask = self.mask
        return error_body(error) if mask is None else mask.error(error_body(error, mask.redactor.text))

    def change_policy(self, policy: Policy) -> None:
        """Use another policy from now on: the store's policy was changed while the run was open."""
        options = self.options
        options.policy, options.silent = policy, policy == manual
        options.plain = options.plain and options.silent
        self.saves.change_rhythm(policy.seconds)


def _no_task() -> None:
    """Return None: a run that was not opened with async has no tasks."""
    return

"""The handle with which a program executes one run: its live state, its steps, its checkpoints.

`with store.run(id) as run` takes the run's lease and resumes at its resume point, the newest checkpoint that the program asked for. At the end
of the block, unsaved changes are saved, the outcome is recorded and the lease is released. The handle is thin: it opens an `engine.attempt`,
whose parts do the work. One thread at a time saves the state; steps may end in any thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID, uuid4

from everstep.clock import clock
from everstep.errors import DamagedRecord, Interrupted, InvalidArgument, RunClosed
from everstep.runtime.engine import abandoned, finish, opening, owner
from everstep.runtime.engine.attempt import OPEN, Attempt
from everstep.runtime.engine.journal_writer import Durability
from everstep.runtime.engine.options import AttemptOptions
from everstep.runtime.limits import signals
from everstep.runtime.limits.children_used import know_children
from everstep.runtime.report import Report
from everstep.runtime.steps.call import begin, call
from everstep.runtime.steps.options import ABSENT, check_items, check_name
from everstep.runtime.steps.record import drawn
from everstep.runtime.steps.retry import chance
from everstep.runtime.steps.ticket import Ticket, check_usage, step_key
from everstep.runtime.waits import gates, timers
from everstep.store.journal.entries import EventEntry, pack
from everstep.store.journal.results import result_body
from everstep.store.views import Checkpoint, when
from everstep.threads.guard import inside

if TYPE_CHECKING:
    from everstep.runtime.engine.leases import LeaseKeeper
    from everstep.runtime.engine_store import EngineStore
    from everstep.runtime.steps.open_step import OpenStep


class Run:
    """One run, open for writing."""

    def __init__(
        self, store: EngineStore, keeper: LeaseKeeper, id: str | None, state: Any, durability: Durability, fields: dict[str, Any], mode: AttemptOptions,
        follows: bool = False,
    ):  # fmt: skip
        self._attempt = Attempt(store, keeper, self, (id, state, fields), durability, mode, follows)

    def __repr__(self) -> str:
        run = self._attempt
        return f"<everstep.Run {(run.row.id if run.row else run.given[0])!r}{'' if run.saver else ', not open'}>"

    @property
    def id(self) -> str:
        """The id of the run, which never changes."""
        return self._attempt.id

    @property
    def state(self) -> Any:
        """The live state. Change it as you like; `checkpoint` saves the changes."""
        return self._attempt.live()[1].state

    @state.setter
    def state(self, value: Any) -> None:
        self._attempt.live()[1].state = value

    @property
    def number(self) -> int:
        """The number of the newest checkpoint, 0 if there is none yet."""
        return self._attempt.live()[0].checkpoints

    @property
    def report(self) -> Report:
        """The steps that this attempt took from the journal and those it executed, so far."""
        run = self._attempt
        if run.saver is not None:
            run.report.seconds = time.monotonic() - run.began
        return run.report

    @property
    def used(self) -> dict[str, float]:
        """The seconds, steps, tokens and cost of the run and its children so far, over all attempts."""
        run = self._attempt
        if run.row is not None:
            know_children(run.store.backend, run.row, run.account)
        used, below = run.replay.used, run.account.below
        seconds = used.seconds + (time.monotonic() - run.began if run.saver is not None else 0.0)
        return {
            "seconds": seconds + below.seconds + run.account.lost, "steps": used.steps + below.steps, "tokens": used.tokens + below.tokens,
            "cost": used.cost + below.cost,
        }  # fmt: skip

    def checkpoint(
        self, note: str | None = None, tags: Iterable[str] | str = (), meta: Mapping[str, Any] | None = None, state: Any = None
    ) -> Checkpoint:
        """Save the state; when this returns, it is durable (unless the run was opened with another durability).

        `state` passes your own object, which is compared with the last checkpoint and becomes `run.state`.
        A program that uses `store.run` continues from this checkpoint when it is resumed.
        """
        run = self._attempt
        saves, writer = run.saves, run.writer
        done = saves.recorded(state)
        if done is not None:
            return done
        writer.lock.check()
        span = saves.announce("manual")
        writer.refuse_second_saver()
        commit = None
        with writer.lock:  # the same as `writer.commit`, inlined: the program waits for this code
            before = run.row
            try:
                commit = writer.prepare(note, tags, meta, state, saves.header("manual", None, False))
                writer.make_durable(commit)
            except BaseException as error:
                writer.take_back(commit, before, error)
                saves.not_made(span, error)
                run.met(error)
                raise
        return saves.made(commit, span)

    def step(
        self, name: str | Callable[..., Any] = ABSENT, function: Any = ABSENT, /, *args: Any, key: Any = None, retry: Any = None,
        timeout: float | None = None, **kwargs: Any,
    ) -> Any:  # fmt: skip
        """Call a function and record its result: `run.step("name", function, *args)` or `run.step(function, *args)`.

        A recorded step is not run again: its result comes from the journal. `key` identifies the step instead of its input and its
        turn; `retry` and `timeout` apply to this call.
        """
        run = self._attempt
        given = {} if key is None and retry is None and timeout is None else options_of(key, retry, timeout)
        return call(run, run.here(), name, function, args, kwargs, given)

    def map(self, function: Callable[..., Any], items: Iterable[Any], concurrency: int = 8) -> list[Any]:
        """Run one step for each item, at most `concurrency` at the same time in threads; results are in the order of the items."""
        from everstep.runtime.steps.parallel import drive_all

        return drive_all(tickets_of(self._attempt, function, items, concurrency), concurrency)

    def begin(self, name: str, /, *args: Any, key: Any = None, retry: Any = None, kind: str | None = None, **kwargs: Any) -> OpenStep:
        """Begin a step that other code executes, with this input; return a ticket to `complete` or `fail`.

        If the step has ended already, `ticket.recorded` is True and `ticket.result` is its result: do not run it again. Policies use
        `kind`.
        """
        from everstep.runtime.steps import open_step

        return open_step.open_step(open_step.number(self._attempt, name, args, kwargs, key, retry, kind))

    @property
    def step_key(self) -> str:
        """The idempotency key of the current step: the same for all its attempts, for the services that it calls."""
        return step_key(self._attempt.live()[0], _ticket_here(self._attempt).address)

    @property
    def step_attempt(self) -> int:
        """The number of the current step's attempt: 1 for the first known one, 2 for the second, …"""
        return _ticket_here(self._attempt).attempt

    @property
    def step_again(self) -> bool:
        """Whether a process that died may have run the current step before."""
        return _ticket_here(self._attempt).again

    def usage(self, tokens: int = 0, cost: float = 0.0) -> None:
        """Report, inside a step, what it used. It is recorded with the step and counts for budgets."""
        check_usage(tokens, cost)
        ticket = _ticket_here(self._attempt)
        ticket.tokens += tokens
        ticket.cost += cost

    def now(self) -> datetime:
        """Return the time (UTC), recorded: a replay returns the same."""
        return cast(datetime, self._drawn("now", clock.now_us, when))

    def random(self) -> float:
        """Return a number from 0 up to 1, recorded: a replay returns the same."""
        return cast(float, self._drawn("random", chance, float))

    def uuid(self) -> UUID:
        """Return a random UUID, recorded: a replay returns the same."""
        return cast(UUID, self._drawn("uuid", lambda: str(uuid4()), UUID))

    def _drawn(self, name: str, draw: Callable[[], Any], made: Callable[[Any], Any]) -> Any:
        """Record a drawn value. Needs no commit of its own: everything that depends on the value is recorded after it, or not at all."""
        run = self._attempt
        run.live()
        address = run.address(run.here(), name)
        found = run.replay.recorded(address)
        if found is not None:
            try:
                return made(run.replay.loaded(found.entry))
            except (AttributeError, OSError, OverflowError, TypeError, ValueError) as error:
                raise DamagedRecord(self.id, found.record.seq, f"it does not contain a value of {address}") from error
        value = draw()
        if not run.dry:
            run.writer.put("step", pack(drawn(run, value)), address)
        return made(value)

    def gate(self, name: str, ask: str | None = None, **options: Any) -> Any:
        """Wait for a decision from outside; see `everstep.gate`."""
        return gates.ask(self._attempt, name, ask, **options)

    def sleep(self, seconds: float | None = None, *, until: Any = None) -> None:
        """Wait until a time; the deadline stays the same if the process dies. See `everstep.sleep`."""
        timers.sleep(self._attempt, seconds, until)

    def progress(self, done: float, total: float) -> None:
        """Report how far the work is; the next checkpoint records it."""
        if not (isinstance(done, (int, float)) and isinstance(total, (int, float)) and 0 <= done <= total and total > 0):
            raise InvalidArgument(f"progress needs 0 <= done <= total and total > 0, got progress({done!r:.40}, {total!r:.40})")
        self._attempt.saves.progress = (done, total)

    def emit(self, name: str, **data: Any) -> None:
        """Write your own event to the journal, with the next commit; policies, hooks and the store's events name it `custom:name`."""
        check_name(name)
        self._record_event(f"custom:{name}", data)

    def milestone(self, name: str, note: str | None = None) -> None:
        """Report that a milestone was reached; a policy `on("milestone")` makes a checkpoint of it."""
        self._record_event("milestone", {"milestone": name, "note": note})

    def _record_event(self, event: str, data: dict[str, Any]) -> None:
        """Record an event of the program. A replayed event is not recorded twice."""
        run = self._attempt
        run.live()
        address = run.address(run.here(), f"event:{event}")
        if run.dry or address in run.replay.words:
            return
        mask = run.mask
        kept = data if mask is None else mask(data, f"event {event}")
        run.writer.put("event", pack(EventEntry.of(event, kept, f"event {event}")), address)
        if run.options.policy.due(event, None, 0, 0.0) is not None:
            run.saves.save("automatic", f"on {event}", safe=True)
        run.fire(event if event.startswith("custom:") else f"custom:{event}", **data)

    def flush(self) -> None:
        """Return when everything recorded so far is durable, including events and drawn values; raise if something could not be saved."""
        self._attempt.writer.flush()

    def __enter__(self) -> Run:
        run = self._renew()
        opening.open_attempt(run)
        owner.enter(run.root)
        signals.watch(run)
        run.begin_span()
        return self

    def _renew(self) -> Attempt:
        """Return a new attempt; raise if one is open."""
        run = self._attempt
        run.writer.lock.check()
        if run.saver is not None:
            raise InvalidArgument(f"run {self.id!r} is already open")
        run = self._attempt = run.renewed()
        return run

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        run = self._attempt
        run.leaving()
        error = signals.error_of(run, error)
        if inside():  # a generator that was garbage-collected in the middle of a save
            abandoned.leave(run, error, leave_attempt)
            owner.leave(run.root)
            return
        try:
            leave_attempt(run, error)
        finally:
            owner.leave(run.root)
        exit_process(run, error)

    def __del__(self) -> None:
        """Close a handle that was never closed: the process must not keep its lease."""
        run: Attempt | None = getattr(self, "_attempt", None)
        if run is not None and run.saver is not None and run.phase is OPEN and not run.dry:
            run.leaving()
            run.root.left = True
            abandoned.leave(run, GeneratorExit(), leave_attempt)

    async def __aenter__(self) -> Any:
        from everstep.runtime.aio import AsyncRun

        return await AsyncRun.enter(self, self._renew())

    async def __aexit__(self, *problem: Any) -> None:
        from everstep.runtime.aio import AsyncRun

        await AsyncRun.leave(self._attempt, *problem)


def leave_attempt(run: Attempt, error: BaseException | None) -> None:
    """Record how an attempt ended, close it, and call observers."""
    try:
        finish.leave(run, error)
    finally:
        run.end_span(error)


def attempt_of(run: Any) -> Attempt:
    """Return the open attempt of a handle, also of an async one, for parts of Everstep that work below its public methods."""
    attempt: Attempt = run._attempt
    return attempt


def attempt_if_recorded(run: Any) -> Attempt | None:
    """Like `attempt_of`; None for a run that is turned off."""
    return getattr(run, "_attempt", None)


def tickets_of(run: Attempt, function: Callable[..., Any], items: Iterable[Any], concurrency: int) -> list[Ticket]:
    """Return a call for each item, numbered in their order."""
    if type(concurrency) is not int or concurrency < 1:
        raise InvalidArgument(f"concurrency must be an integer of at least 1, got {concurrency!r:.60}")
    here = run.here()
    return [begin(run, here, function, ABSENT, (item,), {}, {}) for item in check_items(items)]


def _ticket_here(run: Attempt) -> Ticket:
    here = owner.within(run)
    if here is None or here.ticket is None:
        raise RunClosed("this code is not inside a step", remedy="Use it inside the function that run.step calls.")
    return here.ticket


def give_result(run: Attempt, result: Any) -> None:
    """Set the result of a workflow that returned: if it cannot be stored, the workflow fails."""
    mask = run.mask
    kept = result if mask is None else mask(result, "the workflow's result")
    run.returned = result_body(kept, "the workflow's result", run.store.framer.wrap)
    run.result = result


def exit_process(run: Attempt, error: BaseException | None) -> None:
    """Exit if a signal asked the whole program to stop, not only this run; a child run leaves that to its caller."""
    missed = signals.missed()
    if isinstance(error, Interrupted) and error.exit_code is not None:
        if not run.options.driven:
            raise SystemExit(error.exit_code) from error
    elif missed is not None and (error is None or isinstance(error, Exception)):
        raise SystemExit(128 + missed) from error


def options_of(key: Any, retry: Any, timeout: float | None) -> dict[str, Any]:
    if key is None and retry is None and timeout is None:
        return {}
    return {name: value for name, value in (("key", key), ("retry", retry), ("timeout", timeout)) if value is not None}

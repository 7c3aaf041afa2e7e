"""The handle with which a program executes one run: its live state, its steps, its checkpoints.

`with store.run(id) as run` takes the run's lease and resumes at its resume point, the newest checkpoint that the program asked for. At the end
of the block, unsaved changes are saved, the outcome is recorded and the lease is released. The handle is thin: it opens an `engine.attempt`,
whose parts do the work. One thread at a time saves the state; steps may end in any thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from everstep.errors import Interrupted, InvalidArgument
from everstep.generics import S
from everstep.runtime.engine import abandoned, finish, opening, owner
from everstep.runtime.engine.attempt import OPEN, Attempt
from everstep.runtime.engine.journal_writer import Durability
from everstep.runtime.engine.options import AttemptOptions
from everstep.runtime.handle import RunHandle
from everstep.runtime.limits import signals
from everstep.runtime.steps.call import begin, call
from everstep.runtime.steps.options import ABSENT, check_items
from everstep.runtime.steps.ticket import Ticket
from everstep.runtime.waits import gates, timers
from everstep.store.journal.results import result_body
from everstep.store.views import Checkpoint
from everstep.threads.guard import inside

if TYPE_CHECKING:
    from datetime import datetime

    from everstep.durations import Duration
    from everstep.runtime.aio import AsyncRun
    from everstep.runtime.engine.leases import LeaseKeeper
    from everstep.runtime.engine_store import EngineStore
    from everstep.runtime.step_types import CallsSteps
    from everstep.runtime.steps.open_step import OpenStep
    from everstep.runtime.steps.retry import Retry
    from everstep.runtime.waits.gate_types import Asks

T = TypeVar("T")
R = TypeVar("R")


class Run(RunHandle[S]):
    """One run, open for writing."""

    def __init__(
        self, store: EngineStore, keeper: LeaseKeeper, id: str | None, state: Any, durability: Durability, fields: dict[str, Any], mode: AttemptOptions,
        follows: bool = False,
    ):  # fmt: skip
        self._attempt = Attempt(store, keeper, self, (id, state, fields), durability, mode, follows)

    def __repr__(self) -> str:
        run = self._attempt
        return f"<everstep.Run {(run.row.id if run.row else run.given[0])!r}{'' if run.saver else ', not open'}>"

    def checkpoint(
        self, note: str | None = None, tags: Iterable[str] | str = (), meta: Mapping[str, Any] | None = None, state: S | None = None,
        *, tag: str | None = None,
    ) -> Checkpoint:  # fmt: skip
        """Save the state; when this returns, it is durable (unless the run was opened with another durability).

        `tag` is one tag, `tags` are several. `state` passes your own object, which is compared with the last checkpoint and becomes
        `run.state`. A program that uses `store.run` continues from this checkpoint when it is resumed.
        """
        run = self._attempt
        if tag is not None:
            tags = with_tag(tag, tags)
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

    if TYPE_CHECKING:

        @property
        def step(self) -> CallsSteps:
            """Call a function and record its result: `run.step("name", function, *args)` or `run.step(function, *args)`."""

        @property
        def gate(self) -> Asks:
            """Wait for a decision from outside; see `everstep.gate`."""

    else:

        def step(self, name=ABSENT, function=ABSENT, /, *args, key=None, retry=None, timeout=None, **kwargs):  # type: ignore[no-untyped-def]
            """Call a function and record its result: `run.step("name", function, *args)` or `run.step(function, *args)`.

            A recorded step is not run again: its result comes from the journal. `key` identifies the step instead of its input and its
            turn; `retry` (a Retry, or a number of attempts) and `timeout` (seconds, a timedelta, or "30s") apply to this call.
            """
            run = self._attempt
            given = {} if key is None and retry is None and timeout is None else options_of(key, retry, timeout)
            return call(run, run.here(), name, function, args, kwargs, given)

        def gate(self, name, ask=None, **options):  # type: ignore[no-untyped-def]
            """Wait for a decision from outside; see `everstep.gate`."""
            return gates.ask(self._attempt, name, ask, **options)

    def map(
        self, function: Callable[[T], R], items: Iterable[T], concurrency: int = 8, *, name: str | None = None,
        retry: Retry | int | None = None, timeout: Duration | None = None,
    ) -> list[R]:  # fmt: skip
        """Run one step for each item, at most `concurrency` at the same time in threads; results are in the order of the items.

        `name`, `retry` and `timeout` are those of each step.
        """
        from everstep.runtime.steps.parallel import drive_all

        return drive_all(tickets_of(self._attempt, function, items, concurrency, name, retry, timeout), concurrency)

    def begin(self, name: str, /, *args: Any, key: Any = None, retry: Any = None, kind: str | None = None, **kwargs: Any) -> OpenStep:
        """Begin a step that other code executes, with this input; return a ticket to `complete` or `fail`.

        If the step has ended already, `ticket.recorded` is True and `ticket.result` is its result: do not run it again. Policies use
        `kind`.
        """
        from everstep.runtime.steps import open_step

        return open_step.open_step(open_step.number(self._attempt, name, args, kwargs, key, retry, kind))

    def sleep(self, seconds: Duration | None = None, *, until: datetime | float | None = None) -> None:
        """Wait until a time; the deadline stays the same if the process dies. See `everstep.sleep`."""
        timers.sleep(self._attempt, seconds, until)

    def flush(self) -> None:
        """Return when everything recorded so far is durable, including events and drawn values; raise if something could not be saved."""
        self._attempt.writer.flush()

    def __enter__(self) -> Run[S]:
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

    async def __aenter__(self) -> AsyncRun[S]:
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


def tickets_of(
    run: Attempt, function: Callable[..., Any], items: Iterable[Any], concurrency: int, name: str | None, retry: Any, timeout: Any
) -> list[Ticket]:
    """Return a call for each item, numbered in their order."""
    if type(concurrency) is not int or concurrency < 1:
        raise InvalidArgument(f"concurrency must be an integer of at least 1, got {concurrency!r:.60}")
    here, given = run.here(), options_of(None, retry, timeout)
    if name is None:
        return [begin(run, here, function, ABSENT, (item,), {}, given) for item in check_items(items)]
    return [begin(run, here, name, function, (item,), {}, given) for item in check_items(items)]


def with_tag(tag: str, tags: Iterable[str] | str) -> list[str]:
    """Return one tag and several as a list."""
    return [tag, tags] if isinstance(tags, str) else [tag, *tags]


def give_result(run: Attempt, result: Any) -> None:
    """Set the result of a workflow that returned: if it cannot be stored, the workflow fails."""
    mask = run.mask
    kept = result if mask is None else mask(result, "the workflow's result")
    run.returned = result_body(kept, "the workflow's result", run.store.framer.inner.wrap)
    run.result = result


def exit_process(run: Attempt, error: BaseException | None) -> None:
    """Exit if a signal asked the whole program to stop, not only this run; a child run leaves that to its caller."""
    missed = signals.missed()
    if isinstance(error, Interrupted) and error.exit_code is not None:
        if not run.options.driven:
            raise SystemExit(error.exit_code) from error
    elif missed is not None and (error is None or isinstance(error, Exception)):
        raise SystemExit(128 + missed) from error


def options_of(key: Any, retry: Any, timeout: Any) -> dict[str, Any]:
    if key is None and retry is None and timeout is None:
        return {}
    return {name: value for name, value in (("key", key), ("retry", retry), ("timeout", timeout)) if value is not None}

"""The handle of a run for asyncio: `async with store.run(id) as run`.

Thin: `tasks.writer` makes commits durable without blocking the loop, `tasks.in_task` runs steps, `tasks.parking` waits at gates and timers.
Reads from disk run in worker threads. There is no second implementation here.
"""

from __future__ import annotations

import asyncio
from asyncio.events import _get_running_loop  # current_task() uses a slower function, which raises without a running loop
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from threading import get_ident
from typing import TYPE_CHECKING, Any, TypeVar, overload

from everstep.generics import S
from everstep.runtime.engine import abandoned, finish, opening, owner
from everstep.runtime.handle import RunHandle
from everstep.runtime.limits import signals
from everstep.runtime.run import Run, attempt_of, exit_process, leave_attempt, options_of, tickets_of, with_tag
from everstep.runtime.steps.call import begin
from everstep.runtime.steps.options import ABSENT
from everstep.runtime.tasks import parking
from everstep.runtime.tasks.branches import Branches
from everstep.runtime.tasks.completions import TURNS
from everstep.runtime.tasks.writer import TaskWriter
from everstep.store.views import Checkpoint
from everstep.threads.offload import offload

if TYPE_CHECKING:
    from datetime import datetime

    from everstep.durations import Duration
    from everstep.runtime.engine.attempt import Attempt
    from everstep.runtime.step_types import AsyncCallsSteps
    from everstep.runtime.steps.open_step import AsyncOpenStep
    from everstep.runtime.steps.retry import Retry
    from everstep.runtime.waits.gate_types import AsyncAsks

T = TypeVar("T")
R = TypeVar("R")

_MOST_SECONDS = 5.0  # a cancelled task waits at most this long for the thread that opens or closes its run


async def _soon(done: asyncio.Future[Any]) -> None:
    """Wait, in a cancelled task, for the thread that opens or closes its run: the caller that cancelled it then finds the run closed."""
    await asyncio.wait([done], timeout=_MOST_SECONDS)


def _task_here() -> Any:
    """Return the task of the calling code, or None."""
    loop = _get_running_loop()
    return None if loop is None else asyncio.current_task(loop)


class AsyncRun(RunHandle[S]):
    """A run, open for writing in a task: steps, checkpoints and waits are awaited."""

    def __init__(self, run: Run[S]):
        self._run = run
        self._attempt = attempt_of(run)
        self._tasks = self._attempt.tasks = TaskWriter(self._attempt)

    @classmethod
    async def enter(cls, handle: Run[S], run: Attempt) -> AsyncRun[S]:
        """Open a run in this task. `run` is the attempt that `handle` will make."""
        run.is_async = True
        run.task, run.task_here = asyncio.current_task(), _task_here
        entering = offload(opening.open_attempt, run)
        try:
            await asyncio.shield(entering)
        except asyncio.CancelledError:  # the thread can't be stopped: release the lease when the thread has it
            entering.add_done_callback(lambda done: None if done.cancelled() or done.exception() else opening.abandon(run))
            await _soon(entering)
            raise
        made = cls(handle)
        run.owner = get_ident()
        run.root.handle = made
        run.branches = Branches(run.task)
        owner.enter(run.root)
        signals.watch(run)
        run.begin_span()
        return made

    @staticmethod
    async def leave(run: Attempt, *problem: Any) -> None:
        """Close a run in this task."""
        assert run.tasks is not None
        completions = run.tasks.completions
        completions.program_ended()
        if run.branches.several and (problem[1] is None or isinstance(problem[1], Exception)):
            for _ in range(TURNS):  # let tasks that the program cancelled record their cancellation
                await asyncio.sleep(0)
        run.leaving()
        error = signals.error_of(run, problem[1])
        if _get_running_loop() is None:  # a coroutine that was garbage-collected after its loop had ended
            abandoned.leave(run, error, leave_attempt)
            owner.leave(run.root)
            return
        leaving = offload(finish.leave, run, error)
        try:
            await asyncio.shield(leaving)
        except asyncio.CancelledError:
            await _soon(leaving)
            raise
        finally:
            completions.end()
            owner.leave(run.root)
            signals.unwatch(run)
            run.end_span(error)
        exit_process(run, error)

    def __repr__(self) -> str:
        return repr(self._run).replace("everstep.Run", "everstep.AsyncRun")

    async def checkpoint(
        self, note: str | None = None, tags: Iterable[str] | str = (), meta: Mapping[str, Any] | None = None, state: S | None = None,
        *, tag: str | None = None,
    ) -> Checkpoint:  # fmt: skip
        """Save the state; see `Run.checkpoint`. If the waiting task is cancelled, the save still takes place."""
        run = self._attempt
        if tag is not None:
            tags = with_tag(tag, tags)
        done = run.saves.recorded(state)
        if done is not None:
            await self._tasks.completions.saved(run.saves.found_at)
            return done
        run.writer.lock.check()
        span = run.saves.announce("manual")
        try:
            commit = await self._tasks.commit(lambda: run.writer.prepare(note, tags, meta, state, run.saves.header("manual", None, False)))
        except BaseException as error:
            run.saves.not_made(span, error)
            raise
        made = run.saves.made(commit, span)
        if run.options.workflow:
            await self._tasks.completions.saved(commit.run.head_seq)
        return made

    if TYPE_CHECKING:

        @property
        def step(self) -> AsyncCallsSteps:
            """Call a function as a step; see `Run.step`. The step gets its number in this call, so that many can be gathered."""

        @property
        def gate(self) -> AsyncAsks:
            """Wait for a decision from outside; see `everstep.gate`. Its functions may be async."""

    else:

        def step(self, name=ABSENT, function=ABSENT, /, *args, key=None, retry=None, timeout=None, **kwargs):  # type: ignore[no-untyped-def]
            """Call a function as a step; see `Run.step`. The step gets its number in this call, so that many can be gathered."""
            run = self._attempt
            return self._tasks.drive(begin(run, run.here(), name, function, args, kwargs, options_of(key, retry, timeout)))

        async def gate(self, name, ask=None, **options):  # type: ignore[no-untyped-def]
            """Wait for a decision from outside; see `everstep.gate`. Its functions may be async."""
            return await parking.ask(self._tasks, name, ask, **options)

    def begin(
        self,
        name: str,
        /,
        *args: Any,
        key: str | int | None = None,
        retry: Retry | int | None = None,
        kind: str | None = None,
        **kwargs: Any,
    ) -> Coroutine[Any, Any, AsyncOpenStep]:
        """Begin a step that the caller runs; see `Run.begin`. Await `complete` and `fail`, too. The step gets its number in this call."""
        from everstep.runtime.steps import open_step

        return self._tasks.open_step(open_step.number(self._attempt, name, args, kwargs, key, retry, kind))

    @overload
    async def map(
        self, function: Callable[[T], Awaitable[R]], items: Iterable[T], concurrency: int = 8, *, name: str | None = None,
        retry: Retry | int | None = None, timeout: Duration | None = None,
    ) -> list[R]: ...  # fmt: skip

    @overload
    async def map(
        self, function: Callable[[T], R], items: Iterable[T], concurrency: int = 8, *, name: str | None = None,
        retry: Retry | int | None = None, timeout: Duration | None = None,
    ) -> list[R]: ...  # fmt: skip

    async def map(
        self, function: Callable[..., Any], items: Iterable[Any], concurrency: int = 8, *, name: str | None = None,
        retry: Retry | int | None = None, timeout: Duration | None = None,
    ) -> list[Any]:  # fmt: skip
        """Run one step for each item, at most `concurrency` at the same time; results are in the order of the items.

        `name`, `retry` and `timeout` are those of each step.
        """
        from everstep.runtime.steps.parallel import await_all

        tickets = tickets_of(self._attempt, function, items, concurrency, name, retry, timeout)
        return await await_all(tickets, concurrency, self._tasks)

    async def sleep(self, seconds: Duration | None = None, *, until: datetime | float | None = None) -> None:
        """Wait until a time; see `everstep.sleep`."""
        await parking.sleep(self._tasks, seconds, until)

    async def flush(self) -> None:
        """Return when everything recorded so far is durable; see `Run.flush`."""
        await self._tasks.flush()


class StoreBehind:
    """The base of `everstep.AsyncStore`: it has the plain store that does the work."""

    def __init__(self, store: Any):
        self._store = store


def plain_store(store: Any) -> Any:
    """Return the store behind an async one; any other store as it is."""
    return store._store if isinstance(store, StoreBehind) else store

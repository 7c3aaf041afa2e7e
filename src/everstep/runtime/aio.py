"""The same handles for asyncio: `async with store.run(id) as run` and `async with everstep.open() as store`.

Thin: `tasks.writer` makes commits durable without blocking the loop, `tasks.in_task` runs steps, `tasks.parking` waits at gates and timers.
Reads from disk run in worker threads. There is no second implementation here.
"""

from __future__ import annotations

import asyncio
import time
from asyncio.events import _get_running_loop  # current_task() uses a slower function, which raises without a running loop
from collections.abc import Awaitable, Callable, Iterable, Mapping
from threading import get_ident
from typing import TYPE_CHECKING, Any

from everstep.runtime.engine import abandoned, finish, opening, owner
from everstep.runtime.limits import signals
from everstep.runtime.run import Run, attempt_of, exit_process, leave_attempt, options_of, tickets_of
from everstep.runtime.steps.call import begin
from everstep.runtime.steps.options import ABSENT
from everstep.runtime.tasks import parking
from everstep.runtime.tasks.branches import Branches
from everstep.runtime.tasks.completions import TURNS
from everstep.runtime.tasks.writer import TaskWriter
from everstep.runtime.workflow import as_workflow, workflow_of
from everstep.store.views import Checkpoint
from everstep.threads.offload import offload

if TYPE_CHECKING:
    from everstep.runtime.engine.attempt import Attempt
    from everstep.runtime.engine_store import EngineStore
    from everstep.runtime.lines.async_line import AsyncLine
    from everstep.runtime.steps.open_step import AsyncOpenStep

_MOST_SECONDS = 5.0  # a cancelled task waits at most this long for the thread that opens or closes its run


async def _soon(done: asyncio.Future[Any]) -> None:
    """Wait, in a cancelled task, for the thread that opens or closes its run: the caller that cancelled it then finds the run closed."""
    await asyncio.wait([done], timeout=_MOST_SECONDS)


def _task_here() -> Any:
    """Return the task of the calling code, or None."""
    loop = _get_running_loop()
    return None if loop is None else asyncio.current_task(loop)


class AsyncRun:
    """A run, open for writing in a task. All other attributes are those of `Run`."""

    def __init__(self, run: Run):
        self._run = run
        self._attempt = attempt_of(run)
        self._tasks = self._attempt.tasks = TaskWriter(self._attempt)

    @classmethod
    async def enter(cls, handle: Run, run: Attempt) -> AsyncRun:
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

    def __getattr__(self, name: str) -> Any:
        return getattr(self._run, name)

    @property
    def state(self) -> Any:
        """The live state of the run; see `Run.state`."""
        return self._run.state

    @state.setter
    def state(self, value: Any) -> None:
        self._run.state = value

    async def checkpoint(
        self, note: str | None = None, tags: Iterable[str] | str = (), meta: Mapping[str, Any] | None = None, state: Any = None
    ) -> Checkpoint:
        """Save the state; see `Run.checkpoint`. If the waiting task is cancelled, the save still takes place."""
        run = self._attempt
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

    def step(
        self,
        name: Any = ABSENT,
        function: Any = ABSENT,
        /,
        *args: Any,
        key: Any = None,
        retry: Any = None,
        timeout: float | None = None,
        **kwargs: Any,
    ) -> Awaitable[Any]:
        """Call a function as a step; see `Run.step`. The step gets its number in this call, so that many can be gathered."""
        run = self._attempt
        return self._tasks.drive(begin(run, run.here(), name, function, args, kwargs, options_of(key, retry, timeout)))

    def begin(
        self, name: str, /, *args: Any, key: Any = None, retry: Any = None, kind: str | None = None, **kwargs: Any
    ) -> Awaitable[AsyncOpenStep]:
        """Begin a step that the caller runs; see `Run.begin`. Await `complete` and `fail`, too. The step gets its number in this call."""
        from everstep.runtime.steps import open_step

        return self._tasks.open_step(open_step.number(self._attempt, name, args, kwargs, key, retry, kind))

    async def map(self, function: Callable[..., Any], items: Iterable[Any], concurrency: int = 8) -> list[Any]:
        """Run one step for each item, at most `concurrency` at the same time; results are in the order of the items."""
        from everstep.runtime.steps.parallel import await_all

        return await await_all(tickets_of(self._attempt, function, items, concurrency), concurrency, self._tasks)

    async def gate(self, name: str, ask: str | None = None, **options: Any) -> Any:
        """Wait for a decision from outside; see `everstep.gate`. Its functions may be async."""
        return await parking.ask(self._tasks, name, ask, **options)

    async def sleep(self, seconds: float | None = None, *, until: Any = None) -> None:
        """Wait until a time; see `everstep.sleep`."""
        await parking.sleep(self._tasks, seconds, until)

    async def flush(self) -> None:
        """Return when everything recorded so far is durable; see `Run.flush`."""
        await self._tasks.flush()


def plain_store(store: Any) -> Any:
    """Return the store behind an async one; any other store as it is."""
    return store._store if isinstance(store, AsyncStore) else store


class AsyncStore:
    """A store whose methods are awaited: `await store.load(ref)`, `await store.runs(status="failed")`."""

    def __init__(
        self, store: EngineStore, run: Callable[..., Run], start: Callable[..., Any], resume: Callable[..., Any], wait: Callable[..., Any],
        line: Callable[..., Awaitable[AsyncLine]],
    ):  # fmt: skip
        self._store = store
        self.run = run
        self.line = line
        self._start = start
        self._resume = resume
        self._wait = wait

    async def start(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        """Like `Store.start`; an async workflow runs in this loop, any other in a thread."""
        return await self._drive(as_workflow(function).is_async, self._start, function, *args, **kwargs)

    async def resume(self, run_id: str, **options: Any) -> Any:
        """Like `Store.resume`."""
        flow = await asyncio.to_thread(workflow_of, self._store, run_id)
        return await self._drive(flow.is_async, self._resume, run_id, **options)

    async def wait(self, run_id: str, timeout: float | None = None) -> Any:
        """Like `Store.wait`. Uses no thread while it waits, so any number of tasks may wait."""
        look = self._wait
        until, nap = None if timeout is None else time.monotonic() + timeout, 0.005
        while True:
            outcome = await asyncio.to_thread(look, run_id, 0)
            left = None if until is None else until - time.monotonic()
            if outcome.status in ("succeeded", "failed", "cancelled") or (left is not None and left <= 0):
                return outcome
            await asyncio.sleep(nap if left is None else min(nap, left))
            nap = min(nap * 1.5, 0.25)

    async def _drive(self, here: bool, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return await method(*args, **kwargs) if here else await asyncio.to_thread(method, *args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        if name.startswith("_") or name in ("on", "hooks", "together", "drives") or not callable(method):
            return method

        async def call(*args: Any, **kwargs: Any) -> Any:
            return await asyncio.to_thread(method, *args, **kwargs)

        return call

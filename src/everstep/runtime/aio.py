"""The same handles for asyncio: `async with store.run(id) as run` and `async with everstep.open() as store`.

A checkpoint is built on the loop's thread (it reads the live state) and made durable by the backend's writer thread, together with those of all
other tasks that wait at that moment. What reads from disk goes to worker threads. There is no second implementation here.
"""

from __future__ import annotations

import asyncio
import time
from asyncio.events import _get_running_loop
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from threading import get_ident
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from everstep.backends.contract.core import Commit
from everstep.errors import AttemptLost
from everstep.runtime.engine import abandoned, owner
from everstep.runtime.engine.branches import Branches
from everstep.runtime.engine.completions import TURNS, Completions
from everstep.runtime.engine.journal_writer import TROUBLE
from everstep.runtime.limits import signals
from everstep.runtime.run import Run, options_of
from everstep.runtime.steps.adrive import adrive
from everstep.runtime.steps.drive import Ticket, begin
from everstep.runtime.steps.options import ABSENT
from everstep.runtime.waits import agates
from everstep.runtime.workflow import as_workflow, workflow_of
from everstep.store.views import Checkpoint
from everstep.threads.offload import offload

if TYPE_CHECKING:
    from everstep.runtime.driving_store import Host

PATIENCE = 0.2  # seconds
_MOST_SECONDS = 5.0  # that a cancelled task waits for the thread that opens or leaves its run


class _Bridge:
    """Brings outcomes from the writer's thread to a loop: one wake-up for all that have come since the last."""

    def __init__(self, loop: asyncio.AbstractEventLoop):
        self._loop = loop
        self._outcomes: deque[tuple[_Save, BaseException | None]] = deque()
        self._asked = False  # whether the loop will look

    def settle(self, save: _Save, error: BaseException | None) -> None:
        """From the writer's thread; again if there was no memory for all of it."""
        self._outcomes.append((save, error))
        if not self._asked:
            self._asked = True
            try:
                self._loop.call_soon_threadsafe(self._deliver)
            except BaseException:
                self._asked = False
                if self._loop.is_closed():
                    return  # the tasks were cancelled, and nobody hears what became of their commits
                raise

    def _deliver(self) -> None:
        self._asked = False  # before it looks: what comes from now on is seen here or asked for again
        try:
            while self._outcomes:
                save, error = self._outcomes[0]
                save.settled(error)
                self._outcomes.popleft()
        except Exception as problem:
            self._loop.call_later(PATIENCE, self._deliver)  # for the others
            if not isinstance(problem, MemoryError):
                raise


class _Save:
    """One checkpoint on its way; when the task that waits for it is cancelled, it still takes place."""

    __slots__ = ("_bridge", "_commit", "_over", "_run", "future")

    def __init__(self, run: Run, commit: Commit, bridge: _Bridge, future: asyncio.Future[None]):
        self._run = run
        self._commit = commit
        self._bridge = bridge
        self._over = False
        self.future = future

    def done(self, error: BaseException | None) -> None:
        """Called by the writer, from its thread."""
        self._bridge.settle(self, error)

    def settled(self, error: BaseException | None) -> None:
        if not self._over:
            self._over = True
            if error is not None:
                self._run._undo(self._commit, error)
                with suppress(AttemptLost):  # also where the task has been cancelled and hears nothing of it
                    self._run._met(error)
        if self.future.done():
            return
        if error is None:
            self.future.set_result(None)
        else:
            self.future.set_exception(error)


async def _soon(done: asyncio.Future[Any]) -> None:
    """Wait for a thread that opens or leaves a run, in a task that was cancelled: whoever cancelled it then finds the run closed."""
    await asyncio.wait([done], timeout=_MOST_SECONDS)


def _task_here() -> Any:
    """The task that the calling code is in, if it is in one."""
    loop = _get_running_loop()
    return None if loop is None else asyncio.current_task(loop)


_bridges: WeakKeyDictionary[asyncio.AbstractEventLoop, _Bridge] = WeakKeyDictionary()


def _bridge() -> _Bridge:
    loop = asyncio.get_running_loop()
    bridge = _bridges.get(loop)
    if bridge is None:
        bridge = _bridges[loop] = _Bridge(loop)
    return bridge


class AsyncRun:
    """A run, open for writing in a task. What is not here is the same as on `Run`."""

    def __init__(self, run: Run):
        self._run = run
        self._completions = Completions(run)
        self._alone = asyncio.Lock()  # held while a commit is made that no other may follow yet

    @classmethod
    async def enter(cls, run: Run) -> AsyncRun:
        run._async = True
        run._task, run._task_here = asyncio.current_task(), _task_here
        entering = offload(run._enter)
        try:
            await asyncio.shield(entering)
        except asyncio.CancelledError:  # the thread can't be stopped: give the lease back when it has got it
            entering.add_done_callback(lambda done: None if done.cancelled() or done.exception() else run._abandon())
            await _soon(entering)
            raise
        handle = cls(run)
        run._owner = get_ident()
        run._root.handle = handle
        run._branches = Branches(run._task)
        owner.enter(run._root)
        signals.watch(run)
        return handle

    @staticmethod
    async def leave(run: Run, *problem: Any) -> None:
        completions = run._root.handle._completions
        completions.program_ended()
        if run._branches.several and (problem[1] is None or isinstance(problem[1], Exception)):
            for _ in range(TURNS):  # tasks that the program has cancelled record that
                await asyncio.sleep(0)
        run._closing = True
        error = signals.told(run, problem[1])
        if asyncio._get_running_loop() is None:  # a coroutine that was collected after its loop had ended
            abandoned.leave(run, error)
            owner.leave(run._root)
            return
        leaving = offload(run._leave, error)
        try:
            await asyncio.shield(leaving)
        except asyncio.CancelledError:
            await _soon(leaving)
            raise
        finally:
            completions.end()
            owner.leave(run._root)
            signals.unwatch(run)
        run._exit_process(error)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._run, name)

    @property
    def state(self) -> Any:
        return self._run.state

    @state.setter
    def state(self, value: Any) -> None:
        self._run.state = value

    async def checkpoint(
        self, note: str | None = None, tags: Iterable[str] | str = (), meta: Mapping[str, Any] | None = None, state: Any = None
    ) -> Checkpoint:
        """Save the state; see `Run.checkpoint`. If the waiting task is cancelled, the save still takes place."""
        run = self._run
        done = run._recorded_save(state)
        if done is not None:
            await self._completions.saved(run._place_of(done))
            return done
        run._lock.check()
        run._fire("before_checkpoint", kind="manual")
        commit = await self._commit(lambda: run._prepare(note, tags, meta, state, run._header("manual", None, False)))
        made = run._made(commit)
        if run._mode.workflow:
            await self._completions.saved(commit.run.head_seq)
        return made

    async def _commit(self, build: Callable[[], Commit]) -> Commit:
        """Build a commit here, and wait for it without keeping the loop."""
        run = self._run
        if self._alone.locked():  # building would wait for it too, and the loop with it
            async with self._alone:
                pass
        if run._durability != "sync":
            if run._full():
                await offload(run._make_room)
            return run._commit(build, run._defer)
        future = asyncio.get_running_loop().create_future()
        bridge = _bridge()
        commit = run._commit(build, lambda made: run._store.backend.submit(made, _Save(run, made, bridge, future).done))
        try:
            with self._completions.busy():
                await future
        except TROUBLE as error:
            run._met(error)
            raise
        return commit

    async def _write_entries(self) -> int:
        """Make what was put up durable, without a checkpoint; gives its place in the journal."""
        run = self._run
        commit = await self._commit(run._note)
        if run._post_came(commit):
            run._look_for_letters()
        return commit.run.head_seq

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
        """Like `Run.step`, to be awaited. It has its number from this call on, so that many can be gathered."""
        run = self._run
        return adrive(begin(run, run._here(), name, function, args, kwargs, options_of(key, retry, timeout)), self)

    def _called(self, name: Any, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Awaitable[Any]:
        return adrive(begin(self._run, self._run._here(), name, function, args, kwargs, {}), self)

    async def map(self, function: Callable[..., Any], items: Iterable[Any], concurrency: int = 8) -> list[Any]:
        """One step for each item, at most `concurrency` at the same time; results in the order of the items."""
        from everstep.runtime.steps.parallel import adrive_all

        return await adrive_all(self._run._map(function, items, concurrency), concurrency, self)

    async def _write_step(self, ticket: Ticket, error: Exception | None) -> int:
        """Make the end of a step durable; gives its place in the journal."""
        run = self._run
        due = run._due(ticket, error)
        try:
            commit = await self._commit(lambda: run._step_commit(ticket, due))
        except BaseException as trouble:
            run._not_recorded(ticket, trouble)
            raise
        run._after_step(ticket, error, commit)
        return commit.run.head_seq

    async def _write_inside(self, ticket: Ticket, error: Exception | None) -> None:
        """The same for a step that is recorded in its own transaction; the checkpoint that is due, which reads the live state, follows it."""
        from everstep.threads.detached import apart

        run = self._run
        async with self._alone:
            commit = await asyncio.shield(apart(run._record_step, ticket, None))
        due = run._due(ticket, error)
        run._after_step(ticket, error, commit)
        if due is not None:
            run._made(await self._commit(lambda: run._prepare(None, (), None, None, run._header(*due, False))))

    async def gate(self, name: str, ask: str | None = None, **options: Any) -> Any:
        """Wait for a decision from outside; see `everstep.gate`. Its functions may be async."""
        return await agates.ask(self, name, ask, **options)

    async def sleep(self, seconds: float | None = None, *, until: Any = None) -> None:
        """Wait for a time; see `everstep.sleep`."""
        await agates.sleep(self, seconds, until)

    async def flush(self) -> None:
        """Return when all that was recorded up to now is durable; see `Run.flush`."""
        run = self._run
        run._open()
        if run._entries and run._post_came(await self._commit(run._note)):
            run._look_for_letters()
        await offload(run._catch_up)


class AsyncStore:
    """A store whose methods are awaited: `await store.load(ref)`, `await store.runs(status="failed")`."""

    def __init__(
        self, store: Host, run: Callable[..., Run], start: Callable[..., Any], resume: Callable[..., Any], wait: Callable[..., Any]
    ):
        self._store = store
        self.run = run
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
        """Like `Store.wait`. Uses no thread while it waits: any number of tasks may."""
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
        if name.startswith("_") or name in ("on", "hooks") or not callable(method):
            return method

        async def call(*args: Any, **kwargs: Any) -> Any:
            return await asyncio.to_thread(method, *args, **kwargs)

        return call

"""The store for asyncio: `async with everstep.open() as store`. Its methods are those of `Store`, awaited; each runs in a worker thread.

An async workflow runs in the caller's event loop, and `wait` uses no thread while it waits. There is no second implementation here.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from functools import wraps
from itertools import islice
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, TypeVar, cast, overload

from everstep.api import Store
from everstep.ids import check_id
from everstep.queues.awaiting import check_timeout
from everstep.runtime.aio import StoreBehind
from everstep.runtime.workflow import as_workflow, workflow_of
from everstep.store.query import run_fields

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
    from os import PathLike

    from everstep.durations import Duration
    from everstep.queues.start_types import AsyncEnqueues, AsyncStarts
    from everstep.runtime.engine.options import Replay
    from everstep.runtime.limits.budget import Budget
    from everstep.runtime.lines.async_line import AsyncLine
    from everstep.runtime.outcome import Outcome
    from everstep.store.events.audit import Entry, Proof
    from everstep.store.progress import Progress
    from everstep.store.repair.salvage import Salvaged
    from everstep.store.verify.signing_keys import SigningKey
    from everstep.store.views import Checkpoint

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
_AT_ONCE = 16
_ENDED = ("succeeded", "failed", "cancelled")


def _awaited(method: Callable[Concatenate[Store, P], R]) -> Callable[Concatenate[AsyncStore, P], Coroutine[Any, Any, R]]:
    """Return a method that calls a method of the plain store in a worker thread."""
    name = method.__name__

    @wraps(method)
    async def call(self: AsyncStore, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return cast(R, await asyncio.to_thread(getattr(self._store, name), *args, **kwargs))

    return call


async def _walked(walk: Iterator[T]) -> AsyncIterator[T]:
    """Read on in a worker thread, several at a time."""
    while some := await asyncio.to_thread(lambda: list(islice(walk, _AT_ONCE))):
        for one in some:
            yield one


class AsyncStore(StoreBehind):
    """A store whose methods are awaited: `await store.load(ref)`, `await store.runs(status="failed")`. `run` is not: `async with` is."""

    _store: Store

    def __init__(self, store: Store):
        super().__init__(store)
        self.run = store.run
        self.on, self.hooks, self.observe, self.unobserve = store.on, store.hooks, store.observe, store.unobserve
        self.drives, self.together = store.drives, store.together

    @property
    def url(self) -> str:
        """The address of the store."""
        return self._store.url

    @property
    def encrypted(self) -> bool:
        """Whether the store encrypts what it keeps."""
        return self._store.encrypted

    def __repr__(self) -> str:
        return f"<everstep.AsyncStore {self._store.url}>"

    if TYPE_CHECKING:

        @property
        def start(self) -> AsyncStarts:
            """Run a workflow with this input until it ends or has to wait; return an `Outcome`. An async workflow runs in this loop."""

        @property
        def enqueue(self) -> AsyncEnqueues:
            """Add a run of a workflow to a queue; return an `Enqueued` with its id."""

    else:

        async def start(self, workflow, /, *args, **kwargs):  # type: ignore[no-untyped-def]
            """Run a workflow; see `Store.start`. An async workflow runs in this loop, any other in a thread."""
            return await self._drive(as_workflow(workflow).is_async, self._store.start, workflow, *args, **kwargs)

        enqueue = _awaited(Store.enqueue)

    async def resume(
        self,
        run_id: str,
        *,
        from_step: str | None = None,
        replay: Replay = "normal",
        accept: Iterable[str] = (),
        budget: Budget | None = None,
        timeout: Duration | None = None,
        anyway: bool = False,
    ) -> Outcome[Any]:
        """Continue a run; see `Store.resume`. An async workflow runs in this loop, any other in a thread."""
        flow = await asyncio.to_thread(workflow_of, self._store, run_id)
        options = {"from_step": from_step, "replay": replay, "accept": accept, "budget": budget, "timeout": timeout, "anyway": anyway}
        return cast("Outcome[Any]", await self._drive(flow.is_async, self._store.resume, run_id, **options))

    async def line(
        self,
        id: str,
        *,
        state: Any = None,
        workflow: str | None = None,
        session: str | None = None,
        tags: Iterable[str] | str = (),
        note: str | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> AsyncLine:
        """Open a run for appending without a lease, by the tasks of this event loop; see `Store.line`."""
        from everstep.runtime.lines.async_line import AsyncLine

        fields = run_fields(self._store.mask, workflow, session, tags, note, meta)
        return await AsyncLine.open(self._store, check_id(id), state, fields)

    async def wait(self, run_id: str, timeout: Duration | None = None) -> Outcome[Any]:
        """Wait until a run has ended; see `Store.wait`. Uses no thread while it waits, so any number of tasks may wait."""
        seconds = check_timeout(timeout)
        until, nap = None if seconds is None else time.monotonic() + seconds, 0.005
        while True:
            outcome = await asyncio.to_thread(self._store.wait, run_id, 0)
            left = None if until is None else until - time.monotonic()
            if outcome.status in _ENDED or (left is not None and left <= 0):
                return outcome
            await asyncio.sleep(nap if left is None else min(nap, left))
            nap = min(nap * 1.5, 0.25)

    async def _drive(self, here: bool, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return await method(*args, **kwargs) if here else await asyncio.to_thread(method, *args, **kwargs)

    @overload
    async def load(self, ref: str, *, at: int | str | None = None, newest_good: Literal[False] = False) -> Any: ...

    @overload
    async def load(self, ref: str, *, at: int | str | None = None, newest_good: Literal[True]) -> Salvaged: ...

    async def load(self, ref: str, *, at: int | str | None = None, newest_good: bool = False) -> Any:
        """Return the state that a ref names; see `Store.load`."""
        return await asyncio.to_thread(self._store.load, ref, at=at, newest_good=cast("Literal[False]", newest_good))

    async def states(
        self, run_id: str, *, first: int | None = None, last: int | None = None, newest_first: bool = True, shared: bool = False
    ) -> AsyncIterator[tuple[Checkpoint, Any]]:
        """Return the checkpoints with their states: `async for checkpoint, state in await store.states(...)`; see `Store.states`."""
        walk = await asyncio.to_thread(self._store.states, run_id, first=first, last=last, newest_first=newest_first, shared=shared)
        return _walked(walk)

    async def heads(self, key: str | PathLike[str] | SigningKey, *, progress: Progress | None = None) -> AsyncIterator[str]:
        """Return the lines of signed heads: `async for line in await store.heads(...)`; see `Store.heads`."""
        return _walked(await asyncio.to_thread(self._store.heads, key, progress=progress))

    async def audit(self, run_id: str) -> AsyncIterator[Entry | Proof]:
        """Return who did what when to a run: `async for entry in await store.audit(...)`; see `Store.audit`."""
        return _walked(await asyncio.to_thread(self._store.audit, run_id))

    answer = _awaited(Store.answer)
    attached = _awaited(Store.attached)
    blame = _awaited(Store.blame)
    can_resume = _awaited(Store.can_resume)
    cancel = _awaited(Store.cancel)
    checkpoint = _awaited(Store.checkpoint)
    checkpoints = _awaited(Store.checkpoints)
    cleanup = _awaited(Store.cleanup)
    close = _awaited(Store.close)
    copy = _awaited(Store.copy)
    delete = _awaited(Store.delete)
    diff = _awaited(Store.diff)
    doctor = _awaited(Store.doctor)
    drop = _awaited(Store.drop)
    due = _awaited(Store.due)
    enqueue_many = _awaited(Store.enqueue_many)
    events = _awaited(Store.events)
    failed_by = _awaited(Store.failed_by)
    find = _awaited(Store.find)
    fork = _awaited(Store.fork)
    gates = _awaited(Store.gates)
    gc = _awaited(Store.gc)
    get = _awaited(Store.get)
    get_retention = _awaited(Store.get_retention)
    limit = _awaited(Store.limit)
    outcome = _awaited(Store.outcome)
    pause = _awaited(Store.pause)
    prune = _awaited(Store.prune)
    questions = _awaited(Store.questions)
    queues = _awaited(Store.queues)
    rekey = _awaited(Store.rekey)
    resume_failed = _awaited(Store.resume_failed)
    retry = _awaited(Store.retry)
    runs = _awaited(Store.runs)
    schedule = _awaited(Store.schedule)
    schedules = _awaited(Store.schedules)
    set_retention = _awaited(Store.set_retention)
    skip = _awaited(Store.skip)
    stats = _awaited(Store.stats)
    step = _awaited(Store.step)
    steps = _awaited(Store.steps)
    stranded = _awaited(Store.stranded)
    tag = _awaited(Store.tag)
    unschedule = _awaited(Store.unschedule)
    upgrades = _awaited(Store.upgrades)
    verify = _awaited(Store.verify)
    view = _awaited(Store.view)
    wake = _awaited(Store.wake)
    worker = _awaited(Store.worker)
    workers = _awaited(Store.workers)

"""The same handles for asyncio: `async with store.run(id) as run` and `async with everstep.open() as store`.

A checkpoint is built on the loop's thread (it reads the live state) and made durable by the backend's writer thread, together with those of all
other tasks that wait at that moment. What reads from disk goes to worker threads. There is no second implementation here.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from everstep.backends.base import Commit
from everstep.runtime.run import Run, _keep
from everstep.store.model import Checkpoint

if TYPE_CHECKING:
    from everstep.store.store import BaseStore


class _Bridge:
    """Brings outcomes from the writer's thread to a loop: one wake-up for all that have come since the last."""

    def __init__(self, loop: asyncio.AbstractEventLoop):
        self._loop = loop
        self._outcomes: deque[tuple[asyncio.Future[None], BaseException | None]] = deque()

    def settle(self, future: asyncio.Future[None], error: BaseException | None) -> None:
        first = not self._outcomes
        self._outcomes.append((future, error))
        if first:
            self._loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        while self._outcomes:
            future, error = self._outcomes.popleft()
            if future.done():
                continue
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)


_bridges: WeakKeyDictionary[asyncio.AbstractEventLoop, _Bridge] = WeakKeyDictionary()


def _bridge() -> _Bridge:
    loop = asyncio.get_running_loop()
    bridge = _bridges.get(loop)
    if bridge is None:
        bridge = _bridges[loop] = _Bridge(loop)
    return bridge


class AsyncRun:
    """A run, open for writing in a task."""

    def __init__(self, run: Run):
        self._run = run

    @classmethod
    async def enter(cls, run: Run) -> AsyncRun:
        await asyncio.to_thread(run.__enter__)
        return cls(run)

    @staticmethod
    async def leave(run: Run, *problem: Any) -> None:
        await asyncio.shield(asyncio.to_thread(run.__exit__, *problem))

    @property
    def id(self) -> str:
        return self._run.id

    @property
    def number(self) -> int:
        return self._run.number

    @property
    def state(self) -> Any:
        return self._run.state

    @state.setter
    def state(self, value: Any) -> None:
        self._run.state = value

    async def checkpoint(self, note: str | None = None, tags: Iterable[str] | str = (), meta: Mapping[str, Any] | None = None, state: Any = _keep) -> Checkpoint:
        """Save the state; see `Run.checkpoint`. If the waiting task is cancelled, the save still takes place."""
        run = self._run
        if run._durability != "sync":
            return run.checkpoint(note, tags, meta, state)
        commit = run._prepare(note, tags, meta, state)
        await self._settled(commit)
        return run._made(commit)

    async def _settled(self, commit: Commit) -> None:
        bridge = _bridge()
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._run._store.backend.submit(commit, lambda error: bridge.settle(future, error))
        try:
            await asyncio.shield(future)
        except asyncio.CancelledError:
            future.add_done_callback(lambda f: self._late(commit, f))
            raise
        except BaseException as error:
            self._run._undo(commit, error)
            raise

    def _late(self, commit: Commit, future: asyncio.Future[None]) -> None:
        """The outcome of a save whose task was cancelled while it waited."""
        error = future.exception()
        if error is not None:
            self._run._undo(commit, error)

    async def flush(self) -> None:
        await asyncio.to_thread(self._run.flush)


class AsyncStore:
    """A store whose methods are awaited: `await store.load(ref)`, `await store.runs(status="failed")`."""

    def __init__(self, store: BaseStore, run: Callable[..., Run]):
        self._store = store
        self.run = run

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        if name.startswith("_") or not callable(method):
            return method

        async def call(*args: Any, **kwargs: Any) -> Any:
            return await asyncio.to_thread(method, *args, **kwargs)

        return call

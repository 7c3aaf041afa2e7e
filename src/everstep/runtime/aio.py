"""The same handles for asyncio: `async with store.run(id) as run` and `async with everstep.open() as store`.

A checkpoint is built on the loop's thread (it reads the live state) and made durable by the backend's writer thread, together with those of all
other tasks that wait at that moment. What reads from disk goes to worker threads. There is no second implementation here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from threading import Lock
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from everstep.backends.base import Commit
from everstep.runtime.run import Run
from everstep.store.model import Checkpoint

if TYPE_CHECKING:
    from everstep.store.store import BaseStore


class _Bridge:
    """Brings outcomes from the writer's thread to a loop: one wake-up for all that have come since the last."""

    def __init__(self, loop: asyncio.AbstractEventLoop):
        self._loop = loop
        self._lock = Lock()
        self._outcomes: list[tuple[_Save, BaseException | None]] = []

    def settle(self, save: _Save, error: BaseException | None) -> None:
        with self._lock:  # otherwise the loop could empty the list between the look at it and the append, and never wake again
            first = not self._outcomes
            self._outcomes.append((save, error))
        if first:
            self._loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        with self._lock:
            outcomes, self._outcomes = self._outcomes, []
        for save, error in outcomes:
            save.settled(error)


class _Save:
    """One checkpoint on its way; when the task that waits for it is cancelled, it still takes place."""

    __slots__ = ("_bridge", "_commit", "_run", "future")

    def __init__(self, run: Run, commit: Commit, bridge: _Bridge, future: asyncio.Future[None]):
        self._run = run
        self._commit = commit
        self._bridge = bridge
        self.future = future

    def done(self, error: BaseException | None) -> None:
        """Called by the writer, from its thread."""
        self._bridge.settle(self, error)

    def settled(self, error: BaseException | None) -> None:
        if error is not None:
            self._run._undo(self._commit, error)
        if self.future.done():
            return
        if error is None:
            self.future.set_result(None)
        else:
            self.future.set_exception(error)


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
        entering = asyncio.ensure_future(asyncio.to_thread(run.__enter__))
        try:
            await asyncio.shield(entering)
        except asyncio.CancelledError:  # the thread can't be stopped: give the lease back when it has got it
            entering.add_done_callback(lambda done: None if done.cancelled() or done.exception() else run._abandon())
            raise
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

    async def checkpoint(
        self, note: str | None = None, tags: Iterable[str] | str = (), meta: Mapping[str, Any] | None = None, state: Any = None
    ) -> Checkpoint:
        """Save the state; see `Run.checkpoint`. If the waiting task is cancelled, the save still takes place."""
        run = self._run
        commit = run._prepare(note, tags, meta, state)
        if run._durability != "sync":
            await asyncio.to_thread(run._defer, commit) if run._full() else run._defer(commit)
            return run._made(commit)
        save = _Save(run, commit, _bridge(), asyncio.get_running_loop().create_future())
        run._store.backend.submit(commit, save.done)
        await save.future
        return run._made(commit)

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

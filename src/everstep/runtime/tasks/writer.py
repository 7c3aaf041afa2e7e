"""Awaits the commits of an async run without blocking the event loop.

A commit is built on the loop's thread (it reads the live state) and made durable by the backend's writer thread, together with those of all
other waiting tasks. Reads from disk run in worker threads. There is no second implementation here: `JournalWriter` builds, orders and
takes back.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from everstep.backends.contract.core import Commit, Outcome, submit
from everstep.errors import AttemptLost
from everstep.runtime.engine.store_trouble import TROUBLE
from everstep.runtime.steps.record import after_step, build, commit_step
from everstep.runtime.tasks.completions import Completions
from everstep.threads.at_once import at_once
from everstep.threads.detached import apart
from everstep.threads.offload import offload

if TYPE_CHECKING:
    from everstep.runtime.engine.attempt import Attempt
    from everstep.runtime.steps.open_step import AsyncOpenStep
    from everstep.runtime.steps.ticket import Ticket

PATIENCE = 0.2  # seconds


class Bridge:
    """Brings outcomes from the writer's thread to a loop: one wake-up for all that arrived since the last."""

    def __init__(self, loop: asyncio.AbstractEventLoop):
        self._loop = loop
        self._outcomes: deque[tuple[Save, Outcome]] = deque()
        self._asked = False  # whether a wake-up is pending

    def settle(self, save: Save, outcome: Outcome) -> None:
        """Queue an outcome. Called from the writer's thread; again if Ctrl-C interrupted it."""
        self._outcomes.append((save, outcome))
        if not self._asked:
            self._asked = True
            try:
                self._loop.call_soon_threadsafe(self._deliver)
            except BaseException:
                self._asked = False
                if self._loop.is_closed():
                    return  # the tasks were cancelled, and nothing waits for the outcome of their commits
                raise

    def _deliver(self) -> None:
        self._asked = False  # before the loop: a later outcome is seen here, or schedules another wake-up
        try:
            while self._outcomes:
                save, outcome = self._outcomes[0]
                save.settled(outcome)
                self._outcomes.popleft()
        except Exception:
            self._loop.call_later(PATIENCE, self._deliver)  # for the remaining outcomes
            raise


class Save:
    """One commit in flight; if the task that waits for it is cancelled, it still takes place."""

    __slots__ = ("_bridge", "_commit", "_over", "_run", "future")

    def __init__(self, run: Attempt, commit: Commit, bridge: Bridge, future: asyncio.Future[None]):
        self._run = run
        self._commit = commit
        self._bridge = bridge
        self._over = False
        self.future = future

    def done(self, outcome: Outcome) -> None:
        """Pass on the outcome. Called by the writer, from its thread."""
        self._bridge.settle(self, outcome)

    def settled(self, outcome: Outcome) -> None:
        if not self._over:
            self._over = True
            if isinstance(outcome, BaseException):
                self._run.writer.undo(self._commit, outcome)
                with suppress(AttemptLost):  # also if the task was cancelled and never sees it
                    self._run.met(outcome)
            else:
                self._run.writer.note_messages(self._commit, outcome)
        if self.future.done():
            return
        if isinstance(outcome, BaseException):
            self.future.set_exception(outcome)
        else:
            self.future.set_result(None)


_bridges: WeakKeyDictionary[asyncio.AbstractEventLoop, Bridge] = WeakKeyDictionary()


def bridge_here() -> Bridge:
    loop = asyncio.get_running_loop()
    bridge = _bridges.get(loop)
    if bridge is None:
        bridge = _bridges[loop] = Bridge(loop)
    return bridge


class TaskWriter:
    """The commits of an async run, which are awaited, and the order of its completions."""

    def __init__(self, run: Attempt):
        from everstep.runtime.tasks.in_task import InTask

        self.run = run
        self.completions = Completions(run)
        self._alone = asyncio.Lock()  # held during a commit that no other may follow yet
        self._ways = InTask(self)

    def drive(self, ticket: Ticket) -> Awaitable[Any]:
        """Run a step to its end, in this task. A plain function runs in a thread."""
        return self._ways.drive(ticket)

    def open_step(self, ticket: Ticket) -> Coroutine[Any, Any, AsyncOpenStep]:
        """Begin a step that other code executes."""
        from everstep.runtime.steps.open_step import open_step_in_task

        return open_step_in_task(ticket, self._ways)

    async def commit(self, build: Callable[[], Commit]) -> Commit:
        """Build a commit here, and wait for it without blocking the loop."""
        run, writer = self.run, self.run.writer
        if self._alone.locked():  # building would block for it, and the loop with it
            async with self._alone:
                pass
        if not writer.is_sync:
            if writer.is_full():
                await offload(writer.make_room)
            return writer.commit(build, writer.defer)
        future = asyncio.get_running_loop().create_future()
        bridge = bridge_here()
        commit = writer.commit(build, lambda made: submit(run.store.backend, made, Save(run, made, bridge, future).done))
        try:
            with self.completions.busy():
                await future
        except TROUBLE as error:
            run.met(error)
            raise
        return commit

    async def commit_step(self, ticket: Ticket, due: tuple[str, str] | None) -> Commit:
        """Make the end of a step durable, with the checkpoint that is due."""
        try:
            return await self.commit(lambda: build(ticket, due))
        except BaseException as trouble:
            self.run.steps.not_recorded(ticket, trouble)
            raise

    async def write_inside(self, ticket: Ticket) -> None:
        """Make the result of a step durable in its own transaction; a checkpoint that is due follows it, because it reads the live state."""
        saves = self.run.saves
        async with self._alone:
            commit = await asyncio.shield(apart(lambda: at_once(commit_step(ticket, None))))
        due = saves.due(ticket, None)
        after_step(ticket, None, commit)
        if due is not None:
            saving, ticket.saving = ticket.saving, None
            saves.made(await self.commit(lambda: saves.built(*due)), saving)

    async def write_entries(self) -> int:
        """Make the pending entries durable, without a checkpoint; return the sequence number."""
        commit = await self.commit(self.run.writer.note)
        self.run.messages.look_after_commit()
        return commit.run.head_seq

    async def flush(self) -> None:
        """Return when all pending entries are durable."""
        run = self.run
        run.live()
        if run.writer.entries:
            await self.commit(run.writer.note)
            run.messages.look_after_commit()
        await offload(run.writer.catch_up)

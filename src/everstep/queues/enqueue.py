"""Puts runs into queues, and sets the limits of queues. Executes nothing: workers do.

A queued run is a run like any other, with its input in its first record. It can be inspected, paused and cancelled.
"""

from __future__ import annotations

import time
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic

from everstep.backends.contract.capability import need
from everstep.backends.contract.core import Commit
from everstep.backends.contract.queues import LIMITS, START, Limits, Queues, Task
from everstep.clock import clock
from everstep.durations import to_seconds
from everstep.errors import AlreadyQueued, InvalidArgument, RunExists
from everstep.fields import Shape, field
from everstep.generics import T
from everstep.ids import check_id, check_tag, new_id
from everstep.queues import awaiting
from everstep.records import RunRow, Status
from everstep.runtime import workflow as flows
from everstep.runtime.child import child_id
from everstep.runtime.engine import owner
from everstep.runtime.engine.attempt import Attempt
from everstep.runtime.engine.context import Frame, frame
from everstep.runtime.engine.store_trouble import TROUBLE
from everstep.runtime.engine_store import EngineStore
from everstep.runtime.outcome import Outcome
from everstep.store.encryption.frames import need_key, new_message
from everstep.store.query import check_text, to_meta
from everstep.store.refs import find_run
from everstep.store.store import first_commit
from everstep.store.views import when

if TYPE_CHECKING:
    from everstep.durations import Duration

DEFAULT = "default"
_LONGEST_NAP = 0.25
_LONGEST_DELAY = 100 * 365 * 86_400
_MOST = 2**31 - 1


class Enqueued(Shape, Generic[T], frozen=True):
    """An enqueued run. `new` is False if it had been enqueued before."""

    id: str
    queue: str
    new: bool
    _store: EngineStore = field(repr=False, compare=False)

    def __str__(self) -> str:
        return self.id

    @property
    def status(self) -> str:
        row = self._store.backend.run(self.id)
        return str(row.status) if row is not None else Status.QUEUED.value  # no worker has read the order yet

    def wait(self, timeout: Duration | None = None) -> Outcome[T]:
        """Return the outcome as soon as the run has ended; after `timeout` seconds, the current outcome of a run that has not.

        In a workflow, outside of its steps, this is a durable wait: the workflow takes no slot of its worker while it waits, wakes up when
        the run ends, and records the outcome. Anywhere else it blocks.
        """
        seconds = awaiting.check_timeout(timeout)
        here = _workflow_here()
        if here is not None:
            return awaiting.wait_inside(here, self.id, seconds)
        limit = None if seconds is None else time.monotonic() + seconds
        nap = 0.005
        while not self.is_over() and (limit is None or time.monotonic() < limit):
            time.sleep(nap if limit is None else max(0.0, min(nap, limit - time.monotonic())))
            nap = min(nap * 1.5, _LONGEST_NAP)
        return awaiting.outcome_now(self._store, self.id)

    async def wait_async(self, timeout: Duration | None = None) -> Outcome[T]:
        """Like `wait`, without blocking the event loop of this thread."""
        seconds = awaiting.check_timeout(timeout)
        here = _workflow_here()
        if here is not None:
            return awaiting.wait_inside(here, self.id, seconds)
        import asyncio

        limit, nap = None if seconds is None else time.monotonic() + seconds, 0.005
        while not await asyncio.to_thread(self.is_over) and (limit is None or time.monotonic() < limit):
            await asyncio.sleep(nap if limit is None else max(0.0, min(nap, limit - time.monotonic())))
            nap = min(nap * 1.5, _LONGEST_NAP)
        return await asyncio.to_thread(awaiting.outcome_now, self._store, self.id)

    def is_over(self) -> bool:
        """Whether the run has ended."""
        return awaiting.is_over(self._store, self.id)


def _workflow_here() -> Frame | None:
    """Return the frame of the calling workflow; None outside of one, and inside of a step, which cannot stop halfway."""
    here = frame.get()
    return here if here is not None and here.ticket is None and isinstance(here.run, Attempt) and here.run.options.workflow else None


class Order(Shape, frozen=True):
    """One run to enqueue: its workflow, its input, its queue."""

    name: str
    about: dict[str, Any]
    chunks: list[tuple[bytes, bytes]]
    task: Task
    delay: int


def enqueue(
    store: EngineStore,
    function: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    id: str | None,
    task: Task,
    delay: Duration | None,
    connection: Any = None,
) -> Enqueued[Any]:
    need(store.backend, Queues)
    order = order_of(store, function, args, kwargs, task, delay)
    if connection is not None:
        from everstep.queues.outbox import leave

        leave(store, order, run := new_id() if id is None else check_id(id), connection)
        return Enqueued(run, task.queue, True, store)
    here = owner.current_frame()
    if here is not None and here.ticket is None and isinstance(here.run, Attempt):
        return _as_step(store, order, id, here)
    return enqueue_order(store, order, new_id() if id is None else check_id(id))


def _as_step(store: EngineStore, order: Order, id: str | None, here: Frame) -> Enqueued[Any]:
    """Enqueue as a step of the calling run, so that a replay enqueues nothing twice. The id is derived from the step: a crash in it is harmless."""

    def enqueue(digest: bytes) -> tuple[str, bool]:
        inside = frame.get()
        assert inside is not None
        assert inside.ticket is not None
        try:
            made = enqueue_order(store, order, child_id(inside.run.id, inside.ticket.address) if id is None else check_id(id))
        except TROUBLE as error:
            if store is inside.run.store:
                inside.run.met(error, step=True)
            raise
        return made.id, made.new

    run, new = here.run.called(False, f"enqueue:{order.name}", enqueue, (order.about["input_digest"],), {})
    return Enqueued(run, order.task.queue, new, store)


class Queue(Shape, frozen=True):
    """The content of a queue: how many runs are ready, are due later, wait for something, are running; since when the oldest has been ready; how
    many were taken, ended, failed and freed from dead workers in the last `minutes`; and the limits of the queue."""

    name: str
    ready: int
    later: int
    waiting: int
    running: int
    oldest: datetime | None
    minutes: int
    taken: int
    ended: int
    failed: int
    freed: int
    limits: Limits


def wait(store: EngineStore, run_id: str, timeout: Duration | None) -> Outcome[Any]:
    """Return the outcome of a run that another thread or process executes, as soon as it has ended."""
    row = find_run(store.backend, run_id)
    return Enqueued(row.id, "", False, store).wait(timeout)


def queues(store: EngineStore, minutes: int) -> list[Queue]:
    if type(minutes) is not int or not 0 <= minutes <= _MOST:
        raise InvalidArgument(f"minutes must be an integer from 0 to {_MOST:,}, got {minutes!r:.60}")
    found = []
    need(store.backend, Queues)
    for depth in store.backend.depths(minutes):
        oldest = None if depth.oldest is None else when(depth.oldest)
        taken, ended, failed, freed = (sum(minute[i] for minute in depth.minutes) for i in range(4))
        about = (depth.queue, depth.ready, depth.later, depth.waiting, depth.running, oldest)
        found.append(Queue(*about, minutes, taken, ended, failed, freed, limits_of(store, depth.queue)))
    return found


def order_of(store: EngineStore, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], task: Task, delay: Duration | None) -> Order:
    """Return a checked order: an input that no worker could use is refused here."""
    flow = None if isinstance(function, str) else flows.as_workflow(function)
    name = flow.name if flow is not None else check_text(function, "workflow") or ""
    about, chunks = flows.first_words(store, name, stored_input(store, name if flow is None else flow, args, kwargs), flow)
    about["task"] = list(task)
    return Order(name, about, chunks, check_task(task), _microseconds(delay))


def stored_input(store: EngineStore, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> flows.Stored:
    """Return an input as this store saves it; raise if the workflow, when it is known, cannot accept it."""
    if not isinstance(function, str):
        flow = flows.as_workflow(function)
        flows.refuse_misfit(flow, args, kwargs)
        return flows.as_stored(store, flow, args, kwargs)
    return (args, kwargs) if store.mask is None else store.mask.call(lambda *_, **__: None, args, kwargs, function)


def check_queue(name: Any) -> str:
    return check_tag(name, "queue name")


def check_task(task: Task) -> Task:
    check_queue(task.queue)
    if type(task.priority) is not int or not -(2**31) <= task.priority < 2**31:
        raise InvalidArgument(
            f"priority must be an integer from {-(2**31):,} to {2**31 - 1:,}, got {task.priority!r:.60}",
            remedy="Runs with a higher priority start first; the default is 0.",
        )
    check_text(task.key, "key", 200)
    check_text(task.dedupe, "dedupe", 200)
    return task


def _microseconds(delay: Any) -> int:
    seconds = 0 if delay is None else to_seconds(delay, "delay")
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 <= seconds <= _LONGEST_DELAY:
        raise InvalidArgument(f"delay must be a number of seconds from 0 to {_LONGEST_DELAY:,} (100 years), got {delay!r:.60}")
    return int(seconds * 1_000_000)


def commit_of(store: EngineStore, order: Order, id: str) -> Commit:
    """Return the commit that creates the run."""
    fields = {"workflow": order.name, "meta": to_meta({"queue": order.task.queue})}
    commit = first_commit(store, id, fields, order.about, order.chunks, status=Status.QUEUED.value)
    now = clock.now_us()
    commit.messages = [new_message(store.backend, commit.run, START, now + order.delay, now)]
    commit.task = order.task
    return commit


def enqueue_order(store: EngineStore, order: Order, id: str) -> Enqueued[Any]:
    """Create the run, or find the existing one."""
    try:
        store.backend.commit(commit_of(store, order, id))
    except AlreadyQueued as error:
        twin = error.run or store.backend.twin(order.task)
        return Enqueued(twin, order.task.queue, False, store) if twin is not None else enqueue_order(store, order, id)
    except RunExists:
        refuse_other_run(store, find_run(store.backend, id), order)
        return Enqueued(id, order.task.queue, False, store)
    return Enqueued(id, order.task.queue, True, store)


def refuse_other_run(store: EngineStore, row: RunRow, order: Order) -> None:
    """Raise if the id belongs to a run of another workflow or has a different input."""
    said = flows.beginning(store, row)
    if said.get("workflow") != order.name or not flows.is_input_of(store, row, said, order.about["input_digest"]):
        raise RunExists(f"run {row.id!r} already exists with another workflow or input", remedy="Choose another id.")


def set_limits(store: EngineStore, queue: str, concurrency: Any, per_key: Any, rate: Any) -> None:
    """Change the limits that are given; `...` leaves one as it is, None removes it."""
    need_key(store.framer)
    check_queue(queue)
    changes: dict[str, Any] = {}
    for name, value in (("concurrency", concurrency), ("per_key", per_key)):
        if value is ...:
            continue
        if value is not None and (type(value) is not int or not 1 <= value <= _MOST):
            raise InvalidArgument(f"{name} must be an integer from 1 to {_MOST:,}, or None for no limit, got {value!r:.60}")
        changes[name] = value
    if rate is not ...:
        count, seconds = _rate(rate)
        changes |= {"rate": count, "period": int(seconds * 1_000_000)}
    if not changes:
        raise InvalidArgument(
            f"no limit was given for the queue {queue!r}",
            remedy="Give concurrency, per_key or rate. None removes a limit: concurrency=None, per_key=None, rate=None.",
        )
    # All limits given: don't read the stored ones, which may be damaged, and this call is the remedy.
    limits = Limits(**changes) if len(changes) == len(Limits._fields) else limits_of(store, queue)._replace(**changes)
    store.backend.set_property(LIMITS + queue, None if limits.none else limits.text())


def _rate(rate: Any) -> tuple[int | None, float]:
    if rate is None:
        return None, 0.0
    if isinstance(rate, tuple) and len(rate) == 2:
        rate = (rate[0], to_seconds(rate[1], "rate"))
    match rate:
        case (int() as count, int() | float() as seconds) if type(count) is int and 1 <= count <= _MOST and 0 < seconds <= 366 * 86_400:
            return count, float(seconds)
    raise InvalidArgument(
        f"rate must be (runs, seconds), both greater than 0, got {rate!r:.60}",
        remedy=f"Give up to {_MOST:,} runs in up to a year: rate=(10, 60).",
    )


def limits_of(store: EngineStore, queue: str) -> Limits:
    return Limits.parse(store.backend.get_property(LIMITS + check_queue(queue)))

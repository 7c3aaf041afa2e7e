"""A process that executes runs: takes them from queues, resumes those whose worker died, wakes those whose wait has ended.

One thread looks for work and passes it to a `Crew`, which executes plain workflows in threads and async ones in one event loop. The thread
sleeps until the store's bell rings, a run ends or a run gets ready, and checks once a second in case a wake-up was lost. Any worker frees the
runs of any dead one, so no worker is in charge and nothing needs configuration. A failure of one run ends that attempt only.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from everstep.backends.contract.core import Query
from everstep.backends.contract.queues import Claimed
from everstep.clock import clock
from everstep.errors import (
    Conflict,
    Damaged,
    DefinitionChanged,
    EverstepError,
    Interrupted,
    InvalidArgument,
    LeaseHeld,
    LostLease,
    NotFound,
    StoreClosed,
    StoreError,
    StoreFailed,
    TransactionUnknown,
    UnknownWorkflow,
)
from everstep.fields import Shape, field
from everstep.queues import outbox, schedules
from everstep.queues.crash_loops import Suspects
from everstep.queues.crew import Crew
from everstep.queues.enqueue import DEFAULT, check_queue
from everstep.queues.presence import Presence
from everstep.records import RunRow, Status
from everstep.runtime import workflow as flows
from everstep.runtime.engine_store import EngineStore
from everstep.runtime.limits import signals
from everstep.runtime.limits.deaths import DEAD, MAX_DEATHS, counted, recorded_deaths, release_claimed
from everstep.runtime.outcome import Outcome
from everstep.runtime.waits import control
from everstep.store.encryption.frames import need_key
from everstep.store.queue_entries import restore_entries
from everstep.threads.bell import Bell
from everstep.threads.offload import offload

LOOK_SECONDS = 1.0
ORPHANS_SECONDS = 5.0
_FORGET_SECONDS = 60.0
_LONGEST_PAUSE = 60.0
_READ_AGAIN = 3
_GRACE_SECONDS = 5.0  # longer than the pause between two renewals of a lease

Listener = Callable[[dict[str, Any]], None]
Prepare = Callable[[], Any]  # reads what an attempt needs, and returns the attempt


class Job(Shape):
    """One run that this worker executes."""

    run: str
    workflow: str | None
    queue: str | None
    attempt: Any = None
    asked_to_stop: bool = False
    began: float = field(default_factory=time.monotonic)


class Counts(Shape):
    """How many runs a worker has taken, and how they ended."""

    taken: int = 0
    succeeded: int = 0
    failed: int = 0
    waiting: int = 0
    cancelled: int = 0
    taken_over: int = 0
    given_back: int = 0
    lost: int = 0
    dead: int = 0


class Worker:
    """Executes runs until `stop`. Calls `tell` with every event, from any thread."""

    def __init__(
        self,
        store: EngineStore,
        queues: Sequence[str] = (DEFAULT,),
        concurrency: int = 8,
        *,
        recover: bool = True,
        max_deaths: int = MAX_DEATHS,
        orders_in: Sequence[str | os.PathLike[str]] = (),
        tell: Listener | None = None,
    ):
        if isinstance(queues, str) or not queues:
            raise InvalidArgument(f"queues must be a list of names, got {queues!r:.60}", remedy='Give at least one name: ["default"].')
        for name, value in (("concurrency", concurrency), ("max_deaths", max_deaths)):
            if type(value) is not int or value < 1:
                raise InvalidArgument(f"{name} must be an integer of at least 1, got {value!r:.60}")
        self.queues = [check_queue(queue) for queue in queues]
        self.concurrency = concurrency
        self.counts = Counts()
        self.jobs: dict[str, Job] = {}
        self.stopping = False
        self._store = store
        self._recover = recover
        self._max_deaths = max_deaths
        self._orders_in = list(orders_in)
        self._tell = tell or (lambda _: None)
        self._bell = Bell()
        self._stop_flag = signals.StopFlag()
        self._lock = threading.Lock()
        self._left: dict[str, float] = {}  # runs that this worker cannot execute, and until when it does not ask for them
        self._unfit: dict[str, str] = {}  # schedules that cannot be fired, and why
        self._broken: dict[str, int] = {}  # runs under which the store failed, and how often in a row
        self._hopeless: StoreFailed | None = None
        self._suspects = Suspects(max_deaths)
        self._looked = self._orphans = self._checked = 0.0
        self._lenient_until = 0.0  # after an outage: until then, workers that could not renew their leases are not taken for dead
        self._presence = Presence(store, self.queues, concurrency, recover)
        self._signal: int | None = None  # a signal that was not reported yet

    def run(self, until_idle: bool = False) -> None:
        """Work until `stop` is called; with `until_idle`, until no run is left that this worker could execute.

        `until_idle` waits for runs of its queues that get ready later. A run outside of queues counts only if it is due now, or its process died.

        Raises StoreFailed when the disk failed under a SQLite store, which this process can then no longer write: open the store again.
        """
        need_key(self._store.framer)
        silence = self._store.backend.bell(self._bell.ring)
        restored = self._restore_entries()
        about = {"restored": restored} if restored else {}
        self._report("started", worker=self._store.keeper.worker.id, queues=self.queues, concurrency=self.concurrency, **about)
        try:
            with self._handling_signals(), Crew(self.concurrency) as crew:
                self._loop(crew, until_idle)
        finally:
            silence()
            self._presence.end()
            self._report_signal()
            self._report("stopped")

    def stop(self, number: int = signal.SIGTERM) -> None:
        """Take no new runs, and stop each run at the end of its step; other workers resume it at once."""
        self.stopping = True
        self._stop_flag.signal = self._stop_flag.signal or number
        self._bell.ring()

    def _restore_entries(self) -> list[str]:
        """Restore lost queue entries before taking any run. The worker also starts if the store cannot be reached now."""
        try:
            return restore_entries(self._store.backend)
        except EverstepError as error:
            self._report("trouble", error=str(error), code=error.code)
            return []

    def _loop(self, crew: Crew, until_idle: bool) -> None:
        while True:
            self._bell.clear()
            self._report_signal()
            busy = True
            try:
                busy = self._work(crew) or (until_idle and self._has_more(crew))
            except StoreClosed:
                raise
            except EverstepError as error:  # the store may be back soon, and nothing is lost in the meantime
                self._report("trouble", error=str(error), code=error.code)
                self._end_if_hopeless(error)
                self._bell.wait(LOOK_SECONDS)
            if not self.jobs and (self.stopping or (until_idle and not busy)):
                break
            self._bell.wait(self._nap())
        if self._hopeless is not None:
            raise self._hopeless

    def _end_if_hopeless(self, error: EverstepError) -> None:
        """End the worker if the disk of its store failed: this process cannot write the store any more. The worker drains and raises the error."""
        if isinstance(error, StoreFailed) and error.lasting and self._hopeless is None:
            self._hopeless = error
            self.stop()

    def _work(self, crew: Crew) -> bool:
        """Look for work; return whether there is any."""
        if self.stopping:
            self._stop_idle()
            return False
        self._presence.begin()
        free = 0 if self._suspects.one_is_alone(self._store.backend, self.jobs) else self.concurrency - len(self.jobs)
        not_these = [*self._left, *list(self.jobs)]  # also the runs executed here: after a suspend, their leases may look expired
        taken = self._store.keeper.claim(self.queues, flows.known(), free, not_these) if free else []
        taken = [counted(self._store, claimed) for claimed in taken]
        for claimed in self._suspects.choose(self._store.backend, taken, bool(self.jobs), self._decline):
            self._begin(crew, claimed)
        self._carry_out_orders()  # after claiming: a bad order or schedule must not keep the worker from its runs
        self._look_after_others(crew)
        return bool(taken) or bool(self.jobs)

    def _stop_idle(self) -> None:
        """Stop async runs that are not in a step: they have nothing to finish."""
        for job in list(self.jobs.values()):
            if job.attempt is not None and not job.asked_to_stop:
                job.asked_to_stop = True
                signals.stop_idle(job.attempt.run)

    def _has_more(self, crew: Crew) -> bool:
        """Whether this worker can execute another run: a queued one that gets ready by itself, or one outside of queues that is due now."""
        if self._store.keeper.owes:
            return True  # runs under which the store failed, and that are not released yet
        for entry in [entry for queue in self.queues for entry in self._store.backend.queue_entries(queue)]:
            if entry.ready is not None and self._can_take(self._store.backend.run(entry.run)):
                return True
        if self.stopping or not self._recover:
            return False
        adopted = time.monotonic() >= self._lenient_until and self._adopt(crew)
        return self._wake(crew) or adopted

    def _can_take(self, row: RunRow | None) -> bool:
        """Whether this worker can execute a run, now or in a moment."""
        if row is None or row.workflow not in flows.known():
            return False
        return row.id in self._broken or self._left.get(row.id, 0.0) - time.monotonic() <= LOOK_SECONDS

    def _begin(self, crew: Crew, claimed: Claimed) -> None:
        if claimed.row is None:
            self._leave(claimed.run, "its row is damaged")
            return
        self.counts.taken += 1
        self.counts.taken_over += claimed.before is not None
        job = Job(claimed.run, claimed.row.workflow, claimed.queue)
        self._submit(crew, job, lambda: flows.take_up(self._store, claimed, self._max_deaths), before=claimed.before)

    def _decline(self, claimed: Claimed) -> None:
        """Leave a run to an idle worker, or to this one when it is idle."""
        self._left[claimed.run] = time.monotonic() + LOOK_SECONDS
        self._store.keeper.released()
        release_claimed(self._store, claimed)

    def _submit(self, crew: Crew, job: Job, prepare: Prepare, **about: Any) -> None:
        self.jobs[job.run] = job
        said = {name: value for name, value in about.items() if value is not None}
        self._report("taken", run=job.run, workflow=job.workflow, queue=job.queue, **said)
        if flows.is_async(job.workflow):
            crew.task(self._drive_task, job, prepare)
        else:
            crew.thread(self._drive, job, prepare)

    def _drive(self, job: Job, prepare: Prepare) -> None:
        """Execute a run in this thread."""
        signals.stop_flag.set(self._stop_flag)
        outcome, problem = None, None
        try:
            attempt = job.attempt = prepare()
            outcome = attempt and attempt.drive()
        except BaseException as error:  # noqa: BLE001 - one attempt ends, not the worker
            problem = error
        self._ended(job, outcome, problem)

    async def _drive_task(self, job: Job, prepare: Prepare) -> None:
        """Execute a run in this task."""
        signals.stop_flag.set(self._stop_flag)
        outcome, problem = None, None
        try:
            attempt = job.attempt = await offload(prepare)
            outcome = attempt and await attempt.drive()
        except BaseException as error:  # noqa: BLE001 - one attempt ends, not the worker
            problem = error
        await asyncio.shield(offload(self._ended, job, outcome, problem))

    def _ended(self, job: Job, outcome: Outcome[Any] | None, problem: BaseException | None) -> None:
        try:
            if problem is not None:
                raise problem
            self._broken.pop(job.run, None)
            if outcome is not None:
                self._settled(job, outcome)
        except (Interrupted, SystemExit, asyncio.CancelledError) as error:  # the worker or the whole program must stop
            stopped = error if isinstance(error, Interrupted) else error.__cause__
            self._count("given_back", job, "given back", reason=getattr(stopped, "reason", None) or str(error) or "stopped")
        except (LostLease, Conflict, LeaseHeld, NotFound) as error:
            self._count("lost", job, "lost", error=str(error))
        except (UnknownWorkflow, DefinitionChanged) as error:
            self._leave(job.run, error.message)
        except (StoreError, TransactionUnknown) as error:  # not a failure of the run: any worker that reaches the store continues it
            self._put_off(job, error)
            self._end_if_hopeless(error)
        except Damaged as error:  # a brief disk failure is reported as damage, too: read it again before leaving the run alone
            if self._broken.get(job.run, 0) >= _READ_AGAIN:
                self._leave(job.run, f"{type(error).__qualname__}: {error}")
            else:
                self._put_off(job, error)
        except BaseException as error:  # noqa: BLE001 - one attempt ends, not the worker
            self._leave(job.run, f"{type(error).__qualname__}: {error}")
        finally:
            self.jobs.pop(job.run, None)
            self._bell.ring()

    def _put_off(self, job: Job, error: EverstepError) -> None:
        """Skip a run for a while after the store failed under it: longer each time, since each attempt costs a step."""
        times = self._broken[job.run] = self._broken.get(job.run, 0) + 1
        self._left[job.run] = time.monotonic() + min(_LONGEST_PAUSE, LOOK_SECONDS * 2.0 ** min(times - 1, 10))
        self._count("given_back", job, "given back", reason=error.message, code=error.code)

    def _settled(self, job: Job, outcome: Outcome[Any]) -> None:
        if outcome.reason == DEAD:
            self.counts.dead += 1
            error = outcome.error.message if isinstance(outcome.error, EverstepError) else str(outcome.error)
            self._report("dead-letter", run=job.run, workflow=job.workflow, deaths=outcome.report.deaths, error=error)
            return
        name = outcome.status if outcome.status in ("succeeded", "failed", "waiting", "cancelled") else "given_back"
        said = {} if outcome.error is None else {"error": f"{type(outcome.error).__qualname__}: {outcome.error}"}
        if outcome.reason:
            said["reason"] = outcome.reason
        self._count(name, job, outcome.status, **said)

    def _look_after_others(self, crew: Crew) -> None:
        """Once a second: free runs of dead workers, fire schedules, and resume runs outside of queues."""
        now = time.monotonic()
        if now - self._looked < LOOK_SECONDS:
            return
        if self._looked and now - self._looked > _GRACE_SECONDS:
            self._lenient_until = now + _GRACE_SECONDS
        self._looked = now
        where = crew.blocked()
        if where is not None:
            self._report("blocked", where=where)
        backend = self._store.backend
        for run in [run for run, until in self._left.items() if until < now]:
            del self._left[run]
        self._be_present(now)
        lenient = now < self._lenient_until
        freed = 0 if lenient else backend.free()
        if freed:
            self._report("freed", runs=freed)
        self._release_unknown()
        self._fire()
        if self._recover:
            self._wake(crew)
            if now - self._orphans >= ORPHANS_SECONDS and not lenient:
                self._orphans = now
                self._adopt(crew)

    def _be_present(self, now: float) -> None:
        self._presence.record()
        if now - self._checked >= ORPHANS_SECONDS:
            self._checked = now
            self._presence.check()

    def _fire(self) -> None:
        """Fire the schedules that are due. A schedule that fails is reported when its error is new, not every second."""
        unfit: dict[str, str] = {}
        for fired in schedules.fire(self._store, clock.now_us()):
            if fired.error is None:
                self._report("fired", schedule=fired.schedule, run=fired.run)
                continue
            unfit[fired.schedule] = error = f"schedule {fired.schedule!r} cannot be fired: {fired.error}"
            if self._unfit.get(fired.schedule) != error:
                self._report("trouble", error=error, code=fired.error.code)
        self._unfit = unfit

    def _carry_out_orders(self) -> None:
        """Make runs from the orders that users left in their own transactions."""
        for done in outbox.carry_out(self._store, self._orders_in):
            if done.error is None:
                self._report("ordered", run=done.run)
            else:
                self._report("refused", run=done.run, error=str(done.error), code=done.error.code)

    def _release_unknown(self) -> None:
        """Release runs that this worker holds without knowing: the answer to a claim may have been lost with its connection."""
        for row in self._store.keeper.unknown():
            self._store.keeper.release(row)

    def _wake(self, crew: Crew) -> bool:
        """Resume runs outside of queues whose wait has ended: children of other runs, and runs that a program started and left.

        Returns whether there are any for this worker. Runs that it cannot execute, and damaged ones, take no slot from the others.
        """
        found = False
        for run in control.due_or_damaged(self._store):
            row = self._store.backend.run(run)
            if row is not None and self._can_take(row):
                found = True
                self._resume(crew, row)
            if len(self.jobs) >= self.concurrency:
                break
        return found

    def _adopt(self, crew: Crew) -> bool:
        """Resume runs outside of queues whose process died. Returns whether there are any for this worker."""
        backend = self._store.backend
        held = {row.worker: row for _, row in backend.runs(Query(status=Status.RUNNING.value)) if row.worker is not None}
        dead = {worker for worker, row in held.items() if backend.holder(row) is None}
        found = False
        for _, row in backend.runs(Query(status=Status.RUNNING.value)) if dead else ():
            if row.worker in dead and self._can_take(row) and backend.queue_entry(row.id) is None:
                found = True
                self._resume(crew, row)
        return found

    def _resume(self, crew: Crew, row: RunRow) -> None:
        free = len(self.jobs) < self.concurrency and not self._suspects.one_is_alone(self._store.backend, self.jobs)
        if not free or row.workflow not in flows.known() or row.id in self.jobs or row.id in self._left:
            return
        deaths = recorded_deaths(self._store.backend, row).number + (row.worker is not None)
        if self._suspects.may_begin(self._store.backend, row, deaths, bool(self.jobs)):
            job = Job(row.id, row.workflow, None)
            self._submit(crew, job, lambda: flows.recover(self._store, row.id, self._max_deaths))

    def _leave(self, run: str, reason: str) -> None:
        """Skip a run that this worker cannot execute for a while: another worker may know its workflow."""
        self._broken.pop(run, None)
        self._left[run] = time.monotonic() + _FORGET_SECONDS
        self._report("left", run=run, reason=reason)

    def _nap(self) -> float:
        """Return how many seconds there is nothing to do unless the bell rings."""
        if self.stopping or len(self.jobs) >= self.concurrency:
            return LOOK_SECONDS
        with suppress(EverstepError):  # the next look meets the same trouble and reports it
            ready = self._store.backend.next_ready(self.queues)
            if ready is not None:
                left = (ready - clock.now_us()) / 1e6
                return min(LOOK_SECONDS, left) if left > 0 else 0.05 if not self._left else LOOK_SECONDS / 4
        return LOOK_SECONDS

    def _count(self, name: str, job: Job, what: str, **said: Any) -> None:
        with self._lock:
            setattr(self.counts, name, getattr(self.counts, name) + 1)
        self._report(what, run=job.run, workflow=job.workflow, queue=job.queue, seconds=round(time.monotonic() - job.began, 3), **said)

    def _report(self, what: str, **said: Any) -> None:
        """Report an event. If the listener fails, the worker continues and still reports the next event to it."""
        try:
            self._tell({"event": what, "at": clock.now_us(), **said})
        except Exception as error:  # noqa: BLE001 - the listener's own failure
            warnings.warn(f"tell raised {type(error).__qualname__} for the worker event {what!r}: {error}", stacklevel=2)

    def _report_signal(self) -> None:
        """Report a signal. Not done in the handler: it interrupts the main thread anywhere, also while it reports an event."""
        number, self._signal = self._signal, None
        if number is not None:
            self._report("stopping", signal=signal.Signals(number).name, runs=len(self.jobs))

    @contextmanager
    def _handling_signals(self) -> Iterator[None]:
        """Handle signals: the first one drains the worker, the second one ends the process, whose runs are taken over as after a crash."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def handle(number: int, stack: Any) -> None:
            if self.stopping:
                os._exit(128 + number)
            self._signal = number
            self.stop(number)

        before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

"""A process that drives runs: takes them from queues, goes on with those whose worker died, wakes those whose time has come.

One thread looks for work and gives it to a `Crew`, which drives plain workflows in threads and async ones in one event loop. It sleeps until
the store's bell rings, a run ends or something gets ready, and looks by itself once a second in case a wake-up was lost. Any worker frees the
runs of any dead one, so no worker is in charge and nothing needs configuration. A failure of one run ends that attempt alone.
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
from everstep.runtime.driving_store import Host
from everstep.runtime.limits import signals
from everstep.runtime.limits.deaths import DEAD, MAX_DEATHS, counted, give_back, recorded_deaths
from everstep.runtime.outcome import Outcome
from everstep.runtime.waits import control
from everstep.store.queue_entries import restore_entries
from everstep.threads.bell import Bell
from everstep.threads.offload import offload

LOOK_SECONDS = 1.0
ORPHANS_SECONDS = 5.0
_FORGET_SECONDS = 60.0
_LONGEST_PAUSE = 60.0
_READ_AGAIN = 3
_GRACE_SECONDS = 5.0  # longer than the pause between two renewals of a lease

Told = Callable[[dict[str, Any]], None]
Prepare = Callable[[], Any]  # reads what an attempt needs, and gives the attempt


class Job(Shape):
    """One run that is driven here."""

    run: str
    workflow: str | None
    queue: str | None
    attempt: Any = None
    told_to_stop: bool = False
    began: float = field(default_factory=time.monotonic)


class Counts(Shape):
    """What a worker has done."""

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
    """Drives runs until it is told to stop. `tell` hears of everything that happens, from any thread."""

    def __init__(
        self,
        store: Host,
        queues: Sequence[str] = (DEFAULT,),
        concurrency: int = 8,
        *,
        recover: bool = True,
        max_deaths: int = MAX_DEATHS,
        orders_in: Sequence[str | os.PathLike[str]] = (),
        tell: Told | None = None,
    ):
        if isinstance(queues, str) or not queues:
            raise InvalidArgument(f"queues={queues!r:.60} are no queues", remedy="Give a list of names.")
        for name, value in (("concurrency", concurrency), ("max_deaths", max_deaths)):
            if type(value) is not int or value < 1:
                raise InvalidArgument(f"{name}={value!r:.60} is no whole number from 1 on")
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
        self._ear = signals.Ear()
        self._lock = threading.Lock()
        self._left: dict[str, float] = {}  # runs that cannot be driven here, and until when they are not asked for
        self._unfit: dict[str, str] = {}  # schedules that cannot be fired, and why
        self._broken: dict[str, int] = {}  # runs under which the store failed, and how often in a row
        self._hopeless: StoreFailed | None = None
        self._suspects = Suspects(max_deaths)
        self._looked = self._orphans = self._checked = 0.0
        self._lenient_until = 0.0  # after an outage: who could not renew a lease for so long is not taken for dead at once
        self._presence = Presence(store, self.queues, concurrency, recover)
        self._heard: int | None = None  # a signal that nobody was told of yet

    def run(self, until_idle: bool = False) -> None:
        """Work until somebody stops it; with `until_idle`, until nothing is left that this worker could drive.

        It then waits for runs of its queues that get ready later. A run outside of queues counts only if it is due now, or its process died.

        Raises StoreFailed when the disk failed under a SQLite store, which this process can then no longer write: open the store again.
        """
        silence = self._store.backend.bell(self._bell.ring)
        restored = self._restore_places()
        about = {"restored": restored} if restored else {}
        self._say("started", worker=self._store.keeper.worker.id, queues=self.queues, concurrency=self.concurrency, **about)
        try:
            with self._hearing_signals(), Crew(self.concurrency) as crew:
                self._loop(crew, until_idle)
        finally:
            silence()
            self._presence.end()
            self._tell_of_signal()
            self._say("stopped")

    def stop(self, number: int = signal.SIGTERM) -> None:
        """Take nothing new, and have each run stop at the end of its step; others go on with it at once."""
        self.stopping = True
        self._ear.heard = self._ear.heard or number
        self._bell.ring()

    def _restore_places(self) -> list[str]:
        """Places that were lost are put back before anything is taken. A store that cannot be reached now is no reason not to start."""
        try:
            return restore_entries(self._store.backend)
        except EverstepError as error:
            self._say("trouble", error=str(error), code=error.code)
            return []

    def _loop(self, crew: Crew, until_idle: bool) -> None:
        while True:
            self._bell.clear()
            self._tell_of_signal()
            busy = True
            try:
                busy = self._work(crew) or (until_idle and self._has_more(crew))
            except StoreClosed:
                raise
            except EverstepError as error:  # the store may be back soon, and nothing is lost meanwhile
                self._say("trouble", error=str(error), code=error.code)
                self._end_if_hopeless(error)
                self._bell.wait(LOOK_SECONDS)
            if not self.jobs and (self.stopping or (until_idle and not busy)):
                break
            self._bell.wait(self._nap())
        if self._hopeless is not None:
            raise self._hopeless

    def _end_if_hopeless(self, error: EverstepError) -> None:
        """A store whose disk failed is written no more by this process: the worker drains and ends with that error, and whoever started it starts it again."""
        if isinstance(error, StoreFailed) and error.lasting and self._hopeless is None:
            self._hopeless = error
            self.stop()

    def _work(self, crew: Crew) -> bool:
        """Look for work; gives whether there is any."""
        if self.stopping:
            self._stop_idle()
            return False
        free = 0 if self._suspects.one_is_alone(self._store.backend, self.jobs) else self.concurrency - len(self.jobs)
        not_these = [*self._left, *list(self.jobs)]  # also what is driven here: others take it for abandoned if this process was asleep
        taken = self._store.keeper.claim(self.queues, flows.known(), free, not_these) if free else []
        taken = [counted(self._store, claimed) for claimed in taken]
        for claimed in self._suspects.choose(self._store.backend, taken, bool(self.jobs), self._decline):
            self._begin(crew, claimed)
        self._carry_out_orders()  # after that: what is wrong with an order or a schedule keeps nobody from working
        self._look_after_others(crew)
        return bool(taken) or bool(self.jobs)

    def _stop_idle(self) -> None:
        """Async runs that are not in a step have nothing to finish."""
        for job in list(self.jobs.values()):
            if job.attempt is not None and not job.told_to_stop:
                job.told_to_stop = True
                signals.stop_idle(job.attempt.run)

    def _has_more(self, crew: Crew) -> bool:
        """Whether something can be driven here: a run of a queue that gets ready by itself, or one outside of queues that is due now."""
        if self._store.keeper.owes:
            return True  # runs that the store failed under, and that are not given back yet
        for place in [place for queue in self.queues for place in self._store.backend.places(queue)]:
            if place.ready is not None and self._can_take(self._store.backend.run(place.run)):
                return True
        if self.stopping or not self._recover:
            return False
        adopted = time.monotonic() >= self._lenient_until and self._adopt(crew)
        return self._wake(crew) or adopted

    def _can_take(self, row: RunRow | None) -> bool:
        """Whether a run can be driven here, now or in a moment."""
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
        """Leave a run to a worker that has nothing else to do, or to this one when it has."""
        self._left[claimed.run] = time.monotonic() + LOOK_SECONDS
        self._store.keeper.released()
        give_back(self._store, claimed)

    def _submit(self, crew: Crew, job: Job, prepare: Prepare, **about: Any) -> None:
        self.jobs[job.run] = job
        said = {name: value for name, value in about.items() if value is not None}
        self._say("taken", run=job.run, workflow=job.workflow, queue=job.queue, **said)
        flow = flows.by_name(job.workflow or "")
        if flow is not None and flow.is_async:
            crew.task(self._drive_task, job, prepare)
        else:
            crew.thread(self._drive, job, prepare)

    def _drive(self, job: Job, prepare: Prepare) -> None:
        """Drive a run in this thread."""
        signals.ear.set(self._ear)
        outcome, problem = None, None
        try:
            attempt = job.attempt = prepare()
            outcome = attempt and attempt.drive()
        except BaseException as error:  # noqa: BLE001 - one attempt ends, not the worker
            problem = error
        self._ended(job, outcome, problem)

    async def _drive_task(self, job: Job, prepare: Prepare) -> None:
        """Drive a run in this task."""
        signals.ear.set(self._ear)
        outcome, problem = None, None
        try:
            attempt = job.attempt = await offload(prepare)
            outcome = attempt and await attempt.drive()
        except BaseException as error:  # noqa: BLE001 - one attempt ends, not the worker
            problem = error
        await asyncio.shield(offload(self._ended, job, outcome, problem))

    def _ended(self, job: Job, outcome: Outcome | None, problem: BaseException | None) -> None:
        try:
            if problem is not None:
                raise problem
            self._broken.pop(job.run, None)
            if outcome is not None:
                self._settled(job, outcome)
        except (Interrupted, SystemExit, asyncio.CancelledError) as error:  # the worker is to stop, or the whole program
            stopped = error if isinstance(error, Interrupted) else error.__cause__
            self._count("given_back", job, "given back", reason=getattr(stopped, "reason", None) or str(error) or "stopped")
        except (LostLease, Conflict, LeaseHeld, NotFound) as error:
            self._count("lost", job, "lost", error=str(error))
        except (UnknownWorkflow, DefinitionChanged) as error:
            self._leave(job.run, error.message)
        except (StoreError, TransactionUnknown) as error:  # no fault of the run: any worker that reaches the store continues it
            self._put_off(job, error)
            self._end_if_hopeless(error)
        except Damaged as error:  # a disk that fails for a moment is reported as damage, too: it is read again before the run is left alone
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
        """Leave a run alone for a while under which the store failed: longer each time, since each time costs a step."""
        times = self._broken[job.run] = self._broken.get(job.run, 0) + 1
        self._left[job.run] = time.monotonic() + min(_LONGEST_PAUSE, LOOK_SECONDS * 2.0 ** min(times - 1, 10))
        self._count("given_back", job, "given back", reason=error.message, code=error.code)

    def _settled(self, job: Job, outcome: Outcome) -> None:
        if outcome.reason == DEAD:
            self.counts.dead += 1
            error = outcome.error.message if isinstance(outcome.error, EverstepError) else str(outcome.error)
            self._say("dead-letter", run=job.run, workflow=job.workflow, deaths=outcome.report.deaths, error=error)
            return
        name = outcome.status if outcome.status in ("succeeded", "failed", "waiting", "cancelled") else "given_back"
        said = {} if outcome.error is None else {"error": f"{type(outcome.error).__qualname__}: {outcome.error}"}
        if outcome.reason:
            said["reason"] = outcome.reason
        self._count(name, job, outcome.status, **said)

    def _look_after_others(self, crew: Crew) -> None:
        """Once a second: what dead workers left, what is to be fired, and what waits outside of queues."""
        now = time.monotonic()
        if now - self._looked < LOOK_SECONDS:
            return
        if self._looked and now - self._looked > _GRACE_SECONDS:
            self._lenient_until = now + _GRACE_SECONDS
        self._looked = now
        where = crew.blocked()
        if where is not None:
            self._say("blocked", where=where)
        backend = self._store.backend
        for run in [run for run, until in self._left.items() if until < now]:
            del self._left[run]
        self._be_present(now)
        lenient = now < self._lenient_until
        freed = 0 if lenient else backend.free()
        if freed:
            self._say("freed", runs=freed)
        self._give_back_unknown()
        self._fire()
        if self._recover:
            self._wake(crew)
            if now - self._orphans >= ORPHANS_SECONDS and not lenient:
                self._orphans = now
                self._adopt(crew)

    def _be_present(self, now: float) -> None:
        self._presence.tell()
        if now - self._checked >= ORPHANS_SECONDS:
            self._checked = now
            self._presence.check()

    def _fire(self) -> None:
        """What schedules have due. One that cannot be fired is told of when that is new, not every second."""
        unfit: dict[str, str] = {}
        for fired in schedules.fire(self._store, clock.now_us()):
            if fired.error is None:
                self._say("fired", schedule=fired.schedule, run=fired.run)
                continue
            unfit[fired.schedule] = error = f"schedule {fired.schedule!r} cannot be fired: {fired.error}"
            if self._unfit.get(fired.schedule) != error:
                self._say("trouble", error=error, code=fired.error.code)
        self._unfit = unfit

    def _carry_out_orders(self) -> None:
        """What was enqueued inside a transaction of somebody's own."""
        for done in outbox.carry_out(self._store, self._orders_in):
            if done.error is None:
                self._say("ordered", run=done.run)
            else:
                self._say("refused", run=done.run, error=str(done.error), code=done.error.code)

    def _give_back_unknown(self) -> None:
        """The answer to a claim may have been lost with its connection: then this worker has runs that it does not know of."""
        for row in self._store.keeper.unknown():
            self._store.keeper.release(row)

    def _wake(self, crew: Crew) -> bool:
        """Runs that wait outside of queues and whose time has come: children of others, and what a program started and left.

        Gives whether there are any for this worker. Those that it can't drive take no place from the others, nor do damaged ones.
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
        """Runs outside of queues whose process died. Gives whether there are any for this worker."""
        backend = self._store.backend
        held = {row.worker: row for _, row in backend.runs(Query(status=Status.RUNNING.value)) if row.worker is not None}
        dead = {worker for worker, row in held.items() if backend.holder(row) is None}
        found = False
        for _, row in backend.runs(Query(status=Status.RUNNING.value)) if dead else ():
            if row.worker in dead and self._can_take(row) and backend.place(row.id) is None:
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
        """A run that cannot be driven here is not asked for again for a while: another worker may know it."""
        self._broken.pop(run, None)
        self._left[run] = time.monotonic() + _FORGET_SECONDS
        self._say("left", run=run, reason=reason)

    def _nap(self) -> float:
        """How long there is nothing to do unless the bell rings."""
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
        self._say(what, run=job.run, workflow=job.workflow, queue=job.queue, seconds=round(time.monotonic() - job.began, 3), **said)

    def _say(self, what: str, **said: Any) -> None:
        """Tell of something. A listener that fails is told of the next thing all the same, and keeps nobody from working."""
        try:
            self._tell({"event": what, "at": clock.now_us(), **said})
        except Exception as error:  # noqa: BLE001 - it is the listener's
            warnings.warn(f"tell of a worker failed at {what!r}: {type(error).__qualname__}: {error}", stacklevel=2)

    def _tell_of_signal(self) -> None:
        """Not from the handler: that runs in the midst of whatever the main thread does, which may be telling something."""
        number, self._heard = self._heard, None
        if number is not None:
            self._say("stopping", signal=signal.Signals(number).name, runs=len(self.jobs))

    @contextmanager
    def _hearing_signals(self) -> Iterator[None]:
        """The first signal drains, the second one ends the process: what it was doing is taken over like that of any dead one."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def heard(number: int, stack: Any) -> None:
            if self.stopping:
                os._exit(128 + number)
            self._heard = number
            self.stop(number)

        before = {number: signal.signal(number, heard) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

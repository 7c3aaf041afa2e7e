"""The public face: `open` and `Store`. All the work is done below."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, cast

from everstep.backends.registry import open_backend
from everstep.codec.frame import Compression, Framer
from everstep.errors import InvalidArgument
from everstep.ids import check_id
from everstep.runtime.engine.leases import TTL_SECONDS
from everstep.runtime.engine_store import Host
from everstep.runtime.limits.policy import Policy, manual
from everstep.runtime.steps.inside import provide
from everstep.runtime.steps.options import step as step
from everstep.store.query import check_note, check_tags, check_text, to_meta

if TYPE_CHECKING:  # what drives runs is imported when a run is opened
    from datetime import timedelta

    from everstep.config.settings import Settings
    from everstep.queues.enqueue import Enqueued, Queue
    from everstep.queues.live_workers import LiveWorker
    from everstep.queues.schedules import Missed
    from everstep.queues.schedules import Schedule as Scheduled
    from everstep.queues.stranded import Stranded
    from everstep.queues.worker import Worker
    from everstep.redact import Redactor
    from everstep.runtime.engine.journal_writer import Durability
    from everstep.runtime.engine.options import Replay
    from everstep.runtime.limits.budget import Budget
    from everstep.runtime.resumable import Resumable
    from everstep.runtime.run import Run
    from everstep.store.retention.cleanup import Schedule
    from everstep.store.retention.retention import Retention
    from everstep.store.views import RunInfo


def _transactional(given: Any) -> Any:
    from everstep.transactions.step import TransactionalStep

    return TransactionalStep.of(given)


provide(_transactional)


class Store(Host):
    """Durable runs and their states. Made by `everstep.open`; may be used by many threads."""

    def run(
        self,
        id: str | None = None,
        *,
        state: Any = None,
        workflow: str | None = None,
        tags: Iterable[str] | str = (),
        session: str | None = None,
        note: str | None = None,
        meta: Mapping[str, Any] | None = None,
        durability: Durability | None = None,
        policy: Policy | str | None = None,
        budget: Budget | None = None,
        timeout: float | None = None,
        accept: Iterable[str] = (),
    ) -> Run:
        """Open a run for writing: `with store.run("id") as run`, or `async with`. A new one, or one that goes on from its base.

        `state` is the initial value of a run without checkpoints, and is copied; workflow, tags, session, note and meta describe a new run.
        `durability` is sync, async or exit; `policy` says when checkpoints are made by themselves; `budget` and `timeout` (seconds) when the run is stopped; `accept`
        names recorded steps whose result is to be taken although their input has changed. What is left out is as the store has it.
        """
        if self.mask is not None:
            note, meta = self.mask.text(note), self.mask.meta(meta)
        fields = {
            "workflow": check_text(workflow, "workflow"),
            "session": check_text(session, "session"),
            "tags": check_tags(tags),
            "note": check_note(note),
            "meta": to_meta(meta),
        }
        chosen = self.policy if policy is None else Policy.parse(policy)
        if not self.enabled or chosen.off:
            return cast("Run", self._off(id, state))
        from everstep.runtime.engine.options import Mode
        from everstep.runtime.run import Run

        budget = self.budget if budget is None else budget
        timeout = self.timeout if timeout is None else timeout
        mode = Mode(self.hook_registry, chosen, budget, timeout, accept=_addresses(accept))
        chosen_durability = self.durability if durability is None else durability
        return Run(self, self.keeper, id, state, chosen_durability, fields, mode, follows=policy is None)

    @staticmethod
    def _off(id: str | None, state: Any) -> Any:
        from everstep.runtime.disabled import OffRun

        return OffRun(None if id is None else check_id(id), state)

    def start(
        self,
        workflow: Callable[..., Any],
        /,
        *args: Any,
        id: str | None = None,
        **kwargs: Any,
    ) -> Any:
        """Run a workflow with this input, to its end or to where it has to wait; gives an `Outcome`.

        An id that exists: with the same workflow and input the run goes on, or its recorded outcome comes back; anything else is refused.
        An async workflow gives something to await if a loop runs in this thread.
        """
        from everstep.runtime import workflow as flows

        if not self.enabled:
            return flows.call_plain(workflow, args, kwargs, id)
        return flows.start(self, workflow, args, kwargs, id, {})

    def wait(self, run_id: str, timeout: float | None = None) -> Any:
        """Wait until a run has ended, whichever process drives it; gives its `Outcome`. After `timeout` seconds, that of a run which has not.

        Drives nothing by itself, and blocks this thread; in asyncio: `async with everstep.open() as store: await store.wait(run_id)`.
        """
        from everstep.queues.enqueue import wait

        return wait(self, run_id, timeout)

    def enqueue(
        self,
        workflow: Callable[..., Any] | str,
        /,
        *args: Any,
        id: str | None = None,
        queue: str = "default",
        priority: int = 0,
        delay: float | timedelta | None = None,
        key: str | None = None,
        dedupe: str | None = None,
        connection: Any = None,
        **kwargs: Any,
    ) -> Enqueued:
        """Have a worker run a workflow with this input; gives an `Enqueued` with its id, whose `wait()` gives the outcome.

        A workflow that this process does not have is given by its name. Of the runs of a `queue`, higher priorities come first, then the
        longest ready; `delay` is in seconds. Limits for each `key` are set by `store.limit`. While a run of the queue with the same `dedupe`
        has not ended, that one is given instead of a second. Inside a run this is a step, and is not done again by a replay.
        With a `connection` of your own to the database of the store, or to a SQLite file, it happens with the commit of its transaction.
        """
        from everstep.backends.contract.queues import Task
        from everstep.queues import enqueue as queueing

        return queueing.enqueue(self, workflow, args, kwargs, id, Task(queue, priority, key, dedupe), delay, connection)

    def enqueue_many(
        self,
        items: Iterable[Mapping[str, Any]],
        /,
        *,
        workflow: Callable[..., Any] | str | None = None,
        queue: str = "default",
        priority: int = 0,
        delay: float | timedelta | None = None,
    ) -> list[Enqueued]:
        """Enqueue many runs in one transaction, all or none; return an `Enqueued` for each item, in order.

        An item is a dict with the arguments of `enqueue`: workflow, args (a list), kwargs (a dict), id, queue, priority, delay, key and
        dedupe. The keywords here are the defaults of items that leave them out. Inside a run this is one step.
        """
        from everstep.queues.bulk import enqueue_many

        return enqueue_many(self, items, workflow, queue, priority, delay)

    def limit(
        self, queue: str, *, concurrency: int | None = None, per_key: int | None = None, rate: tuple[int, float] | None = None
    ) -> None:
        """Say how many runs of a queue, and of one key in it, may be driven at once, and how many may be taken in how many seconds.

        Holds for all workers together, from now on; what is left out has no limit.
        """
        from everstep.queues import enqueue as queueing

        queueing.set_limits(self, queue, concurrency, per_key, rate)

    def queues(self, minutes: int = 5) -> list[Queue]:
        """What is in each queue, its limits, and what happened in it lately."""
        from everstep.queues.enqueue import queues

        return queues(self, minutes)

    def workers(self) -> list[LiveWorker]:
        """The processes that are alive and drive runs of this store, with their queues, the versions of their workflows, and their runs."""
        from everstep.queues.live_workers import workers

        return workers(self)

    def stranded(self) -> list[Stranded]:
        """The runs that no live worker will take, each with the reason: no worker of its queue, of its workflow, or of its version."""
        from everstep.queues.stranded import stranded

        return stranded(self)

    def worker(
        self,
        queues: Iterable[str] | str = "default",
        concurrency: int = 8,
        *,
        recover: bool = True,
        max_deaths: int = 5,
        orders_in: Iterable[str | os.PathLike[str]] = (),
        tell: Any = None,
    ) -> Worker:
        """A worker for this process: `store.worker().run()`. `everstep worker` is the same on the command line.

        `recover` also wakes and takes over runs of known workflows outside of queues; a run with which `max_deaths` workers died without its
        getting on is not tried again; `orders_in` names SQLite files in whose transactions runs are enqueued; `tell` is called with a dict for
        everything that happens.
        """
        from everstep.queues.worker import Worker

        names = [queues] if isinstance(queues, str) else list(queues)
        return Worker(self, names, concurrency, recover=recover, max_deaths=max_deaths, orders_in=list(orders_in), tell=tell)

    def schedule(
        self,
        name: str,
        workflow: Callable[..., Any] | str,
        /,
        *args: Any,
        cron: str,
        zone: str = "UTC",
        missed: Missed = "once",
        queue: str = "default",
        priority: int = 0,
        key: str | None = None,
        **kwargs: Any,
    ) -> Scheduled:
        """Have a workflow enqueued again and again, at the times of a cron expression in a time zone; any worker fires it.

        `missed`: what is done about times at which no worker was there: once for all of them, skip, or all. A schedule of that name is changed.
        """
        from everstep.backends.contract.queues import Task
        from everstep.queues import schedules

        return schedules.schedule(self, name, workflow, args, kwargs, cron, zone, missed, Task(queue, priority, key))

    def unschedule(self, name: str) -> None:
        """Forget a schedule. What it has enqueued stays."""
        from everstep.queues import schedules

        schedules.unschedule(self, name)

    def schedules(self) -> list[Scheduled]:
        """All schedules, by name."""
        from everstep.queues import schedules

        return schedules.schedules(self)

    def resume(
        self,
        run_id: str,
        *,
        from_step: str | None = None,
        replay: Replay = "normal",
        accept: Iterable[str] = (),
        budget: Budget | None = None,
        timeout: float | None = None,
        anyway: bool = False,
    ) -> Any:
        """Go on with a run of a workflow; finished steps are not run again. Gives an `Outcome`.

        `from_step` runs that step and all after it again, on a fork. `replay` is normal, validate (run everything again, write nothing, and
        report what differs) or republish (tell hooks once more what was recorded). `accept` names steps whose recorded result is to be
        taken although their input has changed; `anyway` goes on under a definition that is not compatible.
        """
        from everstep.runtime import workflow as flows

        return flows.resume(
            self, run_id, from_step, replay, anyway, {"accept": _addresses(accept), "budget": budget, "timeout": timeout, "by_hand": True}
        )

    def can_resume(self, run_id: str) -> Resumable:
        """Whether `resume` would go on with a run here and now, and the reasons if not."""
        from everstep.runtime.resumable import can_resume

        return can_resume(self, run_id)

    def failed_by(self, error: str, limit: int | None = None) -> list[RunInfo]:
        """The failed runs whose error is of that class, or was caused by one; the oldest first: `store.failed_by("StoreUnreachable")`."""
        from everstep.runtime import failed_runs

        return failed_runs.failed_by(self, error, limit)

    def resume_failed(self, error: str, limit: int | None = None) -> list[str]:
        """Have all of them tried again from where they failed, by workers or by `wake`; gives their ids."""
        from everstep.runtime import failed_runs

        return failed_runs.resume_failed(self, error, limit)

    def answer(self, run_id: str, gate: str, value: Any, by: str | None = None, early: bool = False) -> None:
        """Answer a gate. The first answer stands; the run goes on with `resume` or `wake`.

        A gate may be answered before it is reached; while the run waits at another one, `early` says that this is meant.
        """
        from everstep.runtime.waits import control

        control.answer(self, run_id, gate, value, by, early)

    def pause(self, run_id: str, reason: str | None = None) -> None:
        """Stop a run at its next step, with a checkpoint; `resume` lets it go on. Its child runs are paused, too."""
        from everstep.runtime.waits import control

        control.pause(self, run_id, reason)

    def cancel(self, run_id: str, reason: str | None = None) -> bool:
        """Stop a run at its next step, for good. Its child runs are cancelled, too. May be said again.

        True: the run is cancelled, or will be at its next step. False: it has succeeded, and nothing was changed.
        """
        from everstep.runtime.waits import control

        return control.cancel(self, run_id, reason)

    def skip(self, run_id: str, step: str, result: Any = None) -> None:
        """Have a step that is not finished taken as done, with this result."""
        from everstep.runtime.waits import control

        control.skip(self, run_id, step, result)

    def retry(self, run_id: str, step: str) -> None:
        """Have a step that failed tried again when the run is resumed, also if the program had dealt with its error."""
        from everstep.runtime.waits import control

        control.retry(self, run_id, step)

    def wake(self, limit: int | None = None) -> list[Any]:
        """Resume every run whose time has come, whose gate was answered, or that failed and is to be tried again; gives their outcomes."""
        from everstep.runtime.waits import control

        return control.wake(self, limit)

    def due(self) -> list[str]:
        """The ids of the runs that `wake` would resume."""
        from everstep.runtime.waits import control

        return control.due(self)

    def on(self, event: str, function: Any = None, /, *, priority: int = 0, timeout: float | None = 0.5) -> Any:
        """Have a function called with an `Event` when something happens: `store.on("after_step", print)`. Also a decorator.

        Higher priorities first. A hook that fails or takes longer than `timeout` seconds never fails a save.
        """
        if function is None:
            return lambda f: self.on(event, f, priority=priority, timeout=timeout)
        return self.hook_registry.add(event, function, priority=priority, timeout=timeout)

    def observe(self, observer: Any) -> Any:
        """Have an object's `begin(span)` and `end(span)` called, in the same thread or task, when an attempt, a step, the commit of a
        checkpoint or a wait at a gate begins and ends; gives the observer. For metrics and tracing: keep it fast, a run waits for it.

        What it raises is reported once, by a warning, and does not reach the run.
        """
        self.observers.add(observer)
        return observer

    def unobserve(self, observer: Any) -> None:
        """Call an observer no more."""
        self.observers.remove(observer)

    def hooks(self) -> list[Any]:
        """All hooks, with their statistics."""
        return self.hook_registry.registered()

    def __repr__(self) -> str:
        return f"<everstep.Store {self.url}>"

    def __enter__(self) -> Store:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    async def __aenter__(self) -> Any:
        from everstep.runtime.aio import AsyncStore

        return AsyncStore(self, self.run, self.start, self.resume, self.wait)

    async def __aexit__(self, *problem: Any) -> None:
        import asyncio

        await asyncio.to_thread(self.close)


def _addresses(given: Iterable[str]) -> frozenset[str]:
    """The addresses of steps whose recorded result is to be taken. A text alone is refused: it is a list of its letters, too."""
    found = None if isinstance(given, str) or not isinstance(given, Iterable) else list(given)
    if found is None or not all(isinstance(address, str) for address in found):
        raise InvalidArgument(
            f"accept must be a list of step addresses, got {given!r:.60}",
            remedy='Give accept=["ask#0"], as store.steps(run_id) shows them.',
        )
    return frozenset(found)


class _Unset:
    """Tells an argument that was left out from one that was given, be it the default."""

    def __repr__(self) -> str:
        return "<as configured>"


_UNSET: Any = _Unset()


def open(
    url: str | os.PathLike[str] | None = None,
    *,
    config: bool | str | os.PathLike[str] | None = None,
    compression: Compression = _UNSET,
    level: int | None = _UNSET,
    threshold: int = _UNSET,
    lease_seconds: float = _UNSET,
    checking: bool = False,
    policy: Policy | str | None = _UNSET,
    enabled: bool = _UNSET,
    durability: Durability = _UNSET,
    budget: Budget | None = _UNSET,
    timeout: float | None = _UNSET,
    retention: Retention | Mapping[str, Any] | None = _UNSET,
    schedule: Schedule = _UNSET,
    protect: Iterable[str] | str = _UNSET,
    redaction: Redactor | None = _UNSET,
    **options: Any,
) -> Store:
    """Open a store: a path, sqlite:///path, postgresql://…, memory://, or nothing for the configured one, else .everstep/store.db, found upward like .git.

    `config` says whether a configuration is read: None only where no url is given, True in any case, False never; or the path of a file.
    What is given here wins over it. `compression` is none, zstd or gzip for content of `threshold` bytes or more; `checking` encodes every
    state twice and compares (slow, for tests); `policy`, `durability`, `budget` and `timeout` are those of runs which choose none;
    `enabled=False` switches everything off: no file is made, and steps are plain calls. `retention` says what is kept of runs that have no
    other, `schedule` when that is seen to: on_open, or when the store is opened for the first time on a day (daily), in a week or in a month;
    `protect` names tags whose checkpoints always stay; `redaction` is a Redactor that masks what is stored. Further options go to the backend.
    """
    named: dict[str, Any] = {
        "compression": compression, "level": level, "threshold": threshold, "lease_seconds": lease_seconds, "policy": policy,
        "enabled": enabled, "durability": durability, "budget": budget, "timeout": timeout, "retention": retention, "schedule": schedule,
        "protect": protect, "redaction": redaction,
    }  # fmt: skip
    given = {name: value for name, value in named.items() if value is not _UNSET}
    for option in options:
        _refuse_typo(option, named)
    settings = _configured(url, config)
    if settings is None:
        return _open(url, checking, options, **given)
    from everstep.config.apply import open_configured

    return cast(Store, open_configured(settings, url, given, lambda url, chosen: _open(url, checking, options, **chosen)))


def _refuse_typo(option: str, names: Iterable[str]) -> None:
    """An option that is nearly one of ours is not for a backend."""
    from difflib import get_close_matches

    near = get_close_matches(option, names, 1, 0.75)
    if near:
        raise InvalidArgument(f"everstep.open has no option {option!r:.60}", remedy=f"Did you mean {near[0]}?")


def _configured(url: Any, config: Any) -> Settings | None:
    """The settings that are to be read, if any are. Without a configuration this costs a few looks at folders."""
    if config is False or (config is None and url is not None):
        return None
    if config is None or config is True:
        from everstep.config.find import find_file, variables

        file = find_file()
        if file is None and not variables(os.environ):
            return None
    elif isinstance(config, (str, os.PathLike)):
        file = Path(config)
    else:
        raise InvalidArgument(f"config={config!r:.60} is no choice", remedy="Give True, False, None, or the path of a file.")
    from everstep.config.settings import load

    return load(file=file)


def _open(
    url: Any,
    checking: bool,
    options: dict[str, Any],
    *,
    compression: Compression = "zstd",
    level: int | None = None,
    threshold: int = 256,
    lease_seconds: float = TTL_SECONDS,
    policy: Policy | str | None = None,
    enabled: bool = True,
    durability: Durability = "sync",
    budget: Budget | None = None,
    timeout: float | None = None,
    retention: Retention | Mapping[str, Any] | None = None,
    schedule: Schedule = "manual",
    protect: Iterable[str] | str = (),
    redaction: Redactor | None = None,
) -> Store:
    Framer(compression, level, threshold)  # refuses bad choices before anything is opened
    chosen = manual if policy is None else Policy.parse(policy)
    upkeep = _upkeep(retention, schedule, protect) if retention is not None or schedule != "manual" or protect else {}
    if durability != "sync" or budget is not None or timeout is not None:
        _check_driving(durability, budget, timeout)
    if redaction is not None:
        from everstep.store.masking import Mask

        Mask(redaction)  # refuses what is no Redactor
    backend = open_backend(url, **options) if enabled and not chosen.off else open_backend("memory://")
    store = Store(
        backend, lease_seconds=lease_seconds, compression=compression, level=level, threshold=threshold, checking=checking,
        policy=chosen, enabled=enabled, durability=durability, budget=budget, timeout=timeout, redaction=redaction, **upkeep,
    )  # fmt: skip
    if schedule != "manual":
        from everstep.store.retention.cleanup import clean_if_due

        clean_if_due(backend, schedule, store.cleanup)
    return store


def _check_driving(durability: Any, budget: Any, timeout: Any) -> None:
    """How runs are to be driven, checked before anything is opened."""
    from everstep.runtime.engine.journal_writer import check_durability
    from everstep.runtime.engine.options import Mode
    from everstep.runtime.hooks import Hooks

    check_durability(durability)
    Mode(Hooks(), budget=budget, timeout=timeout)


def _upkeep(retention: Any, schedule: Any, protect: Any) -> dict[str, Any]:
    """What is to be kept, checked before anything is opened."""
    from everstep.store.retention.cleanup import check_schedule
    from everstep.store.retention.retention import Retention

    check_schedule(schedule)
    return {"retention": None if retention is None else Retention.parse(retention), "protect": check_tags(protect)}

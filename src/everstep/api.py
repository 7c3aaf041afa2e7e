"""The public API: `open` and `Store`. The layers below do the work."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, cast, overload

from everstep.backends.registry import open_backend
from everstep.codec.frame import Compression, Framer
from everstep.durations import to_seconds
from everstep.errors import InvalidArgument
from everstep.ids import check_id
from everstep.runtime.engine.leases import TTL_SECONDS
from everstep.runtime.engine_store import EngineStore
from everstep.runtime.limits.policy import Policy, manual
from everstep.runtime.steps.inside import provide
from everstep.runtime.steps.options import step as step
from everstep.store.encryption.begin import framing_of
from everstep.store.query import check_tags, run_fields

if TYPE_CHECKING:  # the engine is imported when a run is opened
    from types import EllipsisType

    from everstep.async_store import AsyncStore
    from everstep.backends.contract.core import Backend
    from everstep.config.settings import Settings
    from everstep.durations import Duration
    from everstep.queues.enqueue import Enqueued, Queue
    from everstep.queues.live_workers import LiveWorker
    from everstep.queues.schedules import Missed
    from everstep.queues.schedules import Schedule as Scheduled
    from everstep.queues.start_types import Enqueues, Starts
    from everstep.queues.stranded import Stranded
    from everstep.queues.worker import Worker
    from everstep.redact import Redactor
    from everstep.runtime.engine.journal_writer import Durability
    from everstep.runtime.engine.options import Replay
    from everstep.runtime.hooks import Hook
    from everstep.runtime.limits.budget import Budget
    from everstep.runtime.lines.line import Line
    from everstep.runtime.lines.together import Together
    from everstep.runtime.outcome import Outcome
    from everstep.runtime.resumable import Resumable
    from everstep.runtime.run import Run
    from everstep.store.events.event import Event
    from everstep.store.retention.cleanup import Schedule
    from everstep.store.retention.retention import Retention
    from everstep.store.views import RunInfo

S = TypeVar("S")
O = TypeVar("O")  # noqa: E741 - an observer


_NO_BACKEND: Any = None  # what `Store()` by hand has


def _transactional(given: Any) -> Any:
    from everstep.transactions.step import TransactionalStep

    return TransactionalStep.of(given)


provide(_transactional)


class Store(EngineStore):
    """A store of durable runs and their states. Created by `everstep.open`; many threads may use it."""

    def __init__(self, backend: Backend = _NO_BACKEND, **options: Any):
        if not hasattr(backend, "commit"):
            raise InvalidArgument(
                f"a store is opened, not created: got everstep.Store({'' if backend is None else repr(backend)[:60]})",
                remedy=f"Call everstep.open({repr(str(backend))[:60] if isinstance(backend, (str, os.PathLike)) else ''}).",
            )
        super().__init__(backend, **options)

    def __dir__(self) -> list[str]:
        """List the methods: the other attributes belong to the runtime."""
        return [name for name in super().__dir__() if name[0] == "_" or hasattr(type(self), name)]

    @overload
    def run(
        self,
        id: str | None = None,
        *,
        state: dict[str, Any] | None = None,
        workflow: str | None = None,
        tags: Iterable[str] | str = (),
        session: str | None = None,
        note: str | None = None,
        meta: Mapping[str, Any] | None = None,
        durability: Durability | None = None,
        policy: Policy | str | None = None,
        budget: Budget | None = None,
        timeout: Duration | None = None,
        accept: Iterable[str] = (),
    ) -> Run[dict[str, Any]]: ...

    @overload
    def run(
        self,
        id: str | None = None,
        *,
        state: S,
        workflow: str | None = None,
        tags: Iterable[str] | str = (),
        session: str | None = None,
        note: str | None = None,
        meta: Mapping[str, Any] | None = None,
        durability: Durability | None = None,
        policy: Policy | str | None = None,
        budget: Budget | None = None,
        timeout: Duration | None = None,
        accept: Iterable[str] = (),
    ) -> Run[S]: ...

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
        timeout: Duration | None = None,
        accept: Iterable[str] = (),
    ) -> Run[Any]:
        """Open a run for writing: `with store.run("id") as run`, or `async with`. Creates the run, or continues it from its resume point.

        `state` is the initial value of a run without checkpoints, and is copied. workflow, tags, session, note and meta describe a new run.
        `durability` is sync, async or exit; `policy` says when checkpoints are made automatically; `budget` and `timeout` say when the run is
        stopped; `accept` lists steps whose recorded result is used although their input has changed. The store has the defaults.
        """
        fields = run_fields(self.mask, workflow, session, tags, note, meta)
        chosen = self.policy if policy is None else Policy.parse(policy)
        if not self.enabled or chosen.off:
            return cast("Run[Any]", self._off(id, state))
        from everstep.runtime.engine.options import AttemptOptions
        from everstep.runtime.run import Run

        budget = self.budget if budget is None else budget
        timeout = self.timeout if timeout is None else timeout
        mode = AttemptOptions(self.hook_registry, chosen, budget, timeout, accept=_addresses(accept))
        chosen_durability = self.durability if durability is None else durability
        return Run(self, self.keeper, id, state, chosen_durability, fields, mode, follows=policy is None)

    def line(
        self,
        id: str,
        *,
        state: Any = None,
        workflow: str | None = None,
        session: str | None = None,
        tags: Iterable[str] | str = (),
        note: str | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> Line:
        """Open a run for appending without a lease, for frameworks that drive their own loops. Writes nothing.

        `state` is the initial value of a run without checkpoints, and is copied. workflow, session, tags, note and meta describe a new run,
        which the first append creates. A run that is written only like this waits; `store.drives` says who resumes it.
        """
        from everstep.runtime.lines.line import Line

        return Line(self, check_id(id), state, run_fields(self.mask, workflow, session, tags, note, meta))

    def together(self) -> Together:
        """Write the appends of several lines in one commit, at the end of the block: `with store.together(): ...`. All are made, or none.

        What is appended inside cannot be read before the end. Also `async with`.
        """
        from everstep.runtime.lines.together import Together

        return Together(self)

    @staticmethod
    def _off(id: str | None, state: Any) -> Any:
        from everstep.runtime.disabled import OffRun

        return OffRun(None if id is None else check_id(id), state)

    if TYPE_CHECKING:

        @property
        def start(self) -> Starts:
            """Run a workflow with this input until it ends or has to wait; return an `Outcome`."""

        @property
        def enqueue(self) -> Enqueues:
            """Add a run of a workflow to a queue; return an `Enqueued` with its id, whose `wait()` returns the outcome."""

    else:

        def start(self, workflow, /, *args, id=None, **kwargs):  # type: ignore[no-untyped-def]
            """Run a workflow with this input until it ends or has to wait; return an `Outcome`.

            If the id exists with the same workflow and input, the run continues, or its recorded outcome is returned; otherwise it is refused.
            For an async workflow, return an awaitable if an event loop runs in this thread.
            """
            return self._start(workflow, args, kwargs, id)

        def enqueue(  # type: ignore[no-untyped-def]
            self, workflow, /, *args, id=None, queue="default", priority=0, delay=None, key=None, dedupe=None, connection=None, **kwargs
        ):
            """Add a run of a workflow to a queue; return an `Enqueued` with its id, whose `wait()` returns the outcome.

            Give the name of a workflow that this process does not define. Workers take the runs of a `queue` by priority, higher first, then
            the longest ready; `delay` is in seconds, a timedelta, or a string such as "30s". `store.limit` sets limits per `key`. If an
            unfinished run of the queue has the same `dedupe`, that run is returned and no second one is created. Inside a run this is a step,
            which a replay does not repeat. With your own `connection` to the store's database, or to a SQLite file, the run is enqueued when
            your transaction commits.
            """
            return self._enqueue(workflow, args, kwargs, id, (queue, priority, key, dedupe), delay, connection)

    def _start(self, workflow: Any, args: tuple[Any, ...], kwargs: dict[str, Any], id: str | None) -> Any:
        from everstep.runtime import workflow as flows

        if not self.enabled:
            return flows.call_plain(workflow, args, kwargs, id)
        return flows.start(self, workflow, args, kwargs, id, {})

    def _enqueue(
        self,
        workflow: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        id: str | None,
        task: tuple[Any, ...],
        delay: Any,
        connection: Any,
    ) -> Enqueued[Any]:
        from everstep.backends.contract.queues import Task
        from everstep.queues import enqueue as queueing

        return queueing.enqueue(self, workflow, args, kwargs, id, Task(*task), delay, connection)

    def wait(self, run_id: str, timeout: Duration | None = None) -> Outcome[Any]:
        """Wait until a run has ended, in whichever process; return its `Outcome`. After `timeout` seconds, return that of an unfinished run.

        Does not execute the run, and blocks this thread. In asyncio: `async with everstep.open() as store: await store.wait(run_id)`.
        """
        from everstep.queues.enqueue import wait

        return wait(self, run_id, timeout)

    def outcome(self, run_id: str) -> Outcome[Any]:
        """Return the outcome of a run now, whether it has ended or not and whichever process runs it: status, result, error and input.

        Reads only: it waits for nothing and executes nothing.
        """
        from everstep.runtime.outcome import outcome_of

        return outcome_of(self, run_id)

    def enqueue_many(
        self,
        items: Iterable[Mapping[str, Any]],
        /,
        *,
        workflow: Callable[..., Any] | str | None = None,
        queue: str = "default",
        priority: int = 0,
        delay: Duration | None = None,
    ) -> list[Enqueued[Any]]:
        """Enqueue many runs in one transaction, all or none; return an `Enqueued` for each item, in order.

        An item is a dict with the arguments of `enqueue`: workflow, args (a list), kwargs (a dict), id, queue, priority, delay, key and
        dedupe. The keywords here are the defaults of items that leave them out. Inside a run this is one step.
        """
        from everstep.queues.bulk import enqueue_many

        return enqueue_many(self, items, workflow, queue, priority, delay)

    def limit(
        self,
        queue: str,
        *,
        concurrency: int | EllipsisType | None = ...,
        per_key: int | EllipsisType | None = ...,
        rate: tuple[int, Duration] | EllipsisType | None = ...,
    ) -> None:
        """Limit how many runs of a queue, and of one key in it, may run at once; `rate=(100, 60)`: how many may be taken in how many seconds.

        The limits apply to all workers together, from now on. A limit that is left out does not change; None removes it.
        """
        from everstep.queues import enqueue as queueing

        queueing.set_limits(self, queue, concurrency, per_key, rate)

    def queues(self, minutes: int = 5) -> list[Queue]:
        """Return each queue with counts of its runs, its limits, and its events in the last `minutes`."""
        from everstep.queues.enqueue import queues

        return queues(self, minutes)

    def workers(self) -> list[LiveWorker]:
        """Return the live processes that run runs of this store, with their queues, workflow versions and runs."""
        from everstep.queues.live_workers import workers

        return workers(self)

    def stranded(self) -> list[Stranded]:
        """Return the runs that no live worker will take, each with the reason: no worker has its queue, its workflow, or its version."""
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
        """Create a worker in this process: `store.worker().run()`. `everstep worker` is the same on the command line.

        With `recover`, it also wakes up and takes over runs of known workflows outside of queues. After `max_deaths` workers died running a
        run that made no progress, the run fails. `orders_in` lists SQLite files in which programs enqueue runs by their own transactions.
        `tell` is called with a dict for each event.
        """
        from everstep.queues.worker import Worker

        names = [queues] if isinstance(queues, str) else _listed(queues, "queues must be a name or a list of names")
        files = _listed(orders_in, "orders_in must be a list of paths")
        return Worker(self, names, concurrency, recover=recover, max_deaths=max_deaths, orders_in=files, tell=tell)

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
        """Enqueue a workflow at the times of a cron expression in a time zone; any worker fires it.

        `missed` says how many runs to enqueue for times that passed without a worker: once (one for all), skip (none) or all. An existing
        schedule with this name is replaced.
        """
        from everstep.backends.contract.queues import Task
        from everstep.queues import schedules

        return schedules.schedule(self, name, workflow, args, kwargs, cron, zone, missed, Task(queue, priority, key))

    def unschedule(self, name: str) -> None:
        """Remove a schedule. The runs that it enqueued stay."""
        from everstep.queues import schedules

        schedules.unschedule(self, name)

    def schedules(self) -> list[Scheduled]:
        """Return all schedules by name."""
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
        timeout: Duration | None = None,
        anyway: bool = False,
    ) -> Outcome[Any]:
        """Continue a run of a workflow; finished steps are not run again. Return an `Outcome`.

        `from_step` forks the run before that step and runs from there. `replay` is normal, validate (run all steps again, write nothing,
        report differences) or republish (first send all recorded events to the hooks again). `accept` lists steps whose recorded result is
        used although their input has changed; `anyway` continues although the definition has changed incompatibly.
        """
        from everstep.runtime import workflow as flows

        options = {"accept": _addresses(accept), "budget": budget, "timeout": timeout, "by_hand": True}
        return cast("Outcome[Any]", flows.resume(self, run_id, from_step, replay, anyway, options))

    def drives(self, workflow: str, function: Any = None, /) -> Any:
        """Make `resume`, `wake` and the workers of this process continue runs with this workflow label; see `everstep.drives`."""
        from everstep.runtime.drivers import drives

        return drives(workflow, function)

    def can_resume(self, run_id: str) -> Resumable:
        """Check whether `resume` would continue a run in this process now; the result has the reasons if not."""
        from everstep.runtime.resumable import can_resume

        return can_resume(self, run_id)

    def failed_by(self, error: str, limit: int | None = None) -> list[RunInfo]:
        """Return the failed runs whose error is of this class, or was caused by one, oldest first: `store.failed_by("StoreUnreachable")`."""
        from everstep.runtime import failed_runs

        return failed_runs.failed_by(self, error, limit)

    def resume_failed(self, error: str, limit: int | None = None) -> list[str]:
        """Mark all runs of `failed_by(error)` for a retry from where they failed, by workers or by `wake`; return their ids."""
        from everstep.runtime import failed_runs

        return failed_runs.resume_failed(self, error, limit)

    def answer(self, run_id: str, gate: str, value: Any, by: str | None = None, early: bool = False) -> None:
        """Answer a gate. The first answer counts; `resume` or `wake` continues the run.

        A gate may be answered before the run reaches it; if the run waits at another one, `early=True` confirms that.
        """
        from everstep.runtime.waits import control

        control.answer(self, run_id, gate, value, by, early)

    def pause(self, run_id: str, reason: str | None = None) -> None:
        """Stop a run and its child runs at their next step, with a checkpoint; `resume` continues it."""
        from everstep.runtime.waits import control

        control.pause(self, run_id, reason)

    def cancel(self, run_id: str, reason: str | None = None) -> bool:
        """End a run and its child runs at their next step; they cannot be resumed. May be called again.

        Return True if the run is cancelled, or will be at its next step; False if it has succeeded and nothing was changed.
        """
        from everstep.runtime.waits import control

        return control.cancel(self, run_id, reason)

    def skip(self, run_id: str, step: str, result: Any = None) -> None:
        """Mark an unfinished step as done, with this result."""
        from everstep.runtime.waits import control

        control.skip(self, run_id, step, result)

    def retry(self, run_id: str, step: str) -> None:
        """Mark a failed step for a retry when the run is resumed, even if the program has handled its error."""
        from everstep.runtime.waits import control

        control.retry(self, run_id, step)

    def wake(self, limit: int | None = None) -> list[Outcome[Any]]:
        """Resume every run that is due: its deadline has come, its gate was answered, or it is to be retried; return the outcomes."""
        from everstep.runtime.waits import control

        return control.wake(self, limit)

    def due(self) -> list[str]:
        """Return the ids of the runs that `wake` would resume."""
        from everstep.runtime.waits import control

        return control.due(self)

    @overload
    def on(self, event: str, /, *, priority: int = 0, timeout: Duration | None = 0.5) -> Callable[[Callable[[Event], Any]], Hook]: ...

    @overload
    def on(self, event: str, function: Callable[[Event], Any], /, *, priority: int = 0, timeout: Duration | None = 0.5) -> Hook: ...

    def on(self, event: str, function: Any = None, /, *, priority: int = 0, timeout: Duration | None = 0.5) -> Any:
        """Call a function with an `Event` when something happens: `store.on("after_step", print)`. Also a decorator.

        Hooks with a higher priority are called first. A hook that fails or takes longer than `timeout` never fails a save.
        """
        if function is None:
            return lambda f: self.on(event, f, priority=priority, timeout=timeout)
        return self.hook_registry.add(event, function, priority=priority, timeout=to_seconds(timeout, "timeout"))

    def observe(self, observer: O) -> O:
        """Call an object's `begin(span)` and `end(span)`, in the same thread or task, when an attempt, a step, the commit of a
        checkpoint or a wait at a gate begins and ends; return the object. For metrics and tracing: keep it fast, a run waits for it.

        An exception in it is reported once, by a warning, and does not reach the run.
        """
        self.observers.add(observer)
        return observer

    def unobserve(self, observer: Any) -> None:
        """Stop calling an observer."""
        self.observers.remove(observer)

    def hooks(self) -> list[Hook]:
        """Return all hooks, with their statistics."""
        return self.hook_registry.registered()

    def __repr__(self) -> str:
        return f"<everstep.Store {self.url}>"

    def __enter__(self) -> Store:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    async def __aenter__(self) -> AsyncStore:
        from everstep.async_store import AsyncStore

        return AsyncStore(self)

    async def __aexit__(self, *problem: Any) -> None:
        import asyncio

        await asyncio.to_thread(self.close)


def _listed(given: Any, wanted: str) -> list[Any]:
    """Return a list. A single string is refused: Python would read it as a list of letters."""
    if isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
        raise InvalidArgument(f"{wanted}, got {given!r:.60}")
    return list(given)


def _addresses(given: Iterable[str]) -> frozenset[str]:
    """Check the step addresses of `accept`. A single string is refused: Python would read it as a list of letters."""
    found = None if isinstance(given, str) or not isinstance(given, Iterable) else list(given)
    if found is None or not all(isinstance(address, str) for address in found):
        raise InvalidArgument(
            f"accept must be a list of step addresses, got {given!r:.60}",
            remedy='Give accept=["ask#0"], as store.steps(run_id) shows them.',
        )
    return frozenset(found)


class _Unset:
    """Marks an argument that was left out, even if the default was given."""

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
    timeout: Duration | None = _UNSET,
    retention: Retention | Mapping[str, Any] | None = _UNSET,
    schedule: Schedule = _UNSET,
    protect: Iterable[str] | str = _UNSET,
    redaction: Redactor | None = _UNSET,
    key: Any = _UNSET,
    old_keys: Sequence[Any] = _UNSET,
    **options: Any,
) -> Store:
    """Open a store: a path, sqlite:///path, postgresql://… or memory://; by default the configured one, or .everstep/store.db in this folder or above.

    `config` says whether to read a configuration: None only if no url is given, True always, False never; or the path of a file.
    Arguments override it. `compression` is none, zstd or gzip for content of `threshold` bytes or more; `checking` encodes every
    state twice and compares (slow, for tests); `policy`, `durability`, `budget` and `timeout` are the defaults of runs;
    `enabled=False` switches everything off: no file is created, and steps are plain calls. `retention` is the default retention of runs,
    `schedule` says when clean-up runs: manual, on_open, or when the store is first opened on a day (daily), in a week or in a month;
    `protect` lists tags whose checkpoints are never pruned; `redaction` is a Redactor that masks values before they are stored.
    `key` encrypts a new store, and opens an encrypted one; `old_keys` are former keys (docs/encryption.md has their forms). Further options
    go to the backend.
    """
    named: dict[str, Any] = {
        "compression": compression, "level": level, "threshold": threshold, "lease_seconds": lease_seconds, "policy": policy,
        "enabled": enabled, "durability": durability, "budget": budget, "timeout": timeout, "retention": retention, "schedule": schedule,
        "protect": protect, "redaction": redaction, "key": key, "old_keys": old_keys,
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
    """Refuse an option that is similar to one of ours: it is a typo, not an option of a backend."""
    from difflib import get_close_matches

    near = get_close_matches(option, names, 1, 0.75)
    if near:
        raise InvalidArgument(f"everstep.open has no option {option!r:.60}", remedy=f"Did you mean {near[0]}?")


def _configured(url: Any, config: Any) -> Settings | None:
    """Return the settings of a configuration, if one is to be read. Without one this costs a few checks for files."""
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
        raise InvalidArgument(f"config must be True, False, None or the path of a file, got {config!r:.60}")
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
    timeout: Duration | None = None,
    retention: Retention | Mapping[str, Any] | None = None,
    schedule: Schedule = "manual",
    protect: Iterable[str] | str = (),
    redaction: Redactor | None = None,
    key: Any = _UNSET,
    old_keys: Sequence[Any] = (),
) -> Store:
    if key is _UNSET:  # also where no configuration is read: a store that should be encrypted must never be made plain
        key = os.environ.get("EVERSTEP_KEY", "").strip() or None
    inner = Framer(compression, level, threshold)  # refuses bad choices before anything is opened
    for name, flag in (("enabled", enabled), ("checking", checking)):
        if type(flag) is not bool:
            raise InvalidArgument(f"{name} must be True or False, got {flag!r:.60}")
    chosen = manual if policy is None else Policy.parse(policy)
    upkeep = _upkeep(retention, schedule, protect) if retention is not None or schedule != "manual" or protect else {}
    if durability != "sync" or budget is not None or timeout is not None:
        _check_driving(durability, budget, timeout)
    if redaction is not None:
        from everstep.store.masking import Mask

        Mask(redaction)  # refuses anything but a Redactor
    backend = open_backend(url, **options) if enabled and not chosen.off else open_backend("memory://")
    try:
        framing = framing_of(backend, inner, key, old_keys)
    except BaseException:
        backend.close()
        raise
    store = Store(
        backend, lease_seconds=lease_seconds, compression=compression, level=level, threshold=threshold, checking=checking,
        policy=chosen, enabled=enabled, durability=durability, budget=budget, timeout=timeout, redaction=redaction, framing=framing, **upkeep,
    )  # fmt: skip
    if schedule != "manual":
        from everstep.store.retention.cleanup import clean_if_due

        clean_if_due(backend, schedule, store.cleanup)
    return store


def _check_driving(durability: Any, budget: Any, timeout: Any) -> None:
    """Check the defaults of runs before anything is opened."""
    from everstep.runtime.engine.journal_writer import check_durability
    from everstep.runtime.engine.options import AttemptOptions
    from everstep.runtime.hooks import Hooks

    check_durability(durability)
    AttemptOptions(Hooks(), budget=budget, timeout=timeout)


def _upkeep(retention: Any, schedule: Any, protect: Any) -> dict[str, Any]:
    """Check retention, schedule and protected tags before anything is opened."""
    from everstep.store.retention.cleanup import check_schedule
    from everstep.store.retention.retention import Retention

    check_schedule(schedule)
    return {"retention": None if retention is None else Retention.parse(retention), "protect": check_tags(protect)}

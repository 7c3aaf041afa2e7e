"""Workflows: functions whose runs are durable. `start` and `resume` execute one until it ends or has to wait.

A workflow is found by its name, among those that this process has defined; a name in a store is never imported.
The function runs from its beginning each time, and the results of finished steps come from the journal.
"""

from __future__ import annotations

import asyncio
import difflib
import functools
import inspect
import textwrap
from collections.abc import Callable
from contextlib import suppress
from copy import copy
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Generic, cast, get_args, overload

from everstep.backends.contract.queues import Claimed
from everstep.codec.values import encode
from everstep.errors import (
    AttemptLost,
    DamagedRecord,
    DefinitionChanged,
    EverstepError,
    ExitInWorkflow,
    IllegalTransition,
    Interrupted,
    InvalidArgument,
    LostLease,
    OtherVersion,
    PlainSecret,
    RunExists,
    StoreError,
    Suspended,
    UnknownWorkflow,
    Unstorable,
)  # fmt: skip
from everstep.generics import P, R
from everstep.ids import check_id, new_id
from everstep.records import Kind, RunRow, Status
from everstep.runtime.drivers import Driver, driver_of, labels
from everstep.runtime.engine.attempt import Attempt
from everstep.runtime.engine.finish import end_of, stopped_by
from everstep.runtime.engine.options import AttemptOptions, Replay, check_limits
from everstep.runtime.engine.owner import current_frame
from everstep.runtime.engine.replay import content, republish
from everstep.runtime.engine.store_trouble import TROUBLE
from everstep.runtime.engine_store import EngineStore
from everstep.runtime.hooks import Hooks
from everstep.runtime.limits import signals
from everstep.runtime.limits.budget import Budget
from everstep.runtime.limits.deaths import DEAD, MAX_DEATHS, release_claimed
from everstep.runtime.limits.policy import Policy
from everstep.runtime.outcome import DIFFERS, Outcome, input_of, recorded
from everstep.runtime.run import Run, attempt_of, give_result
from everstep.runtime.steps.retry import Retry
from everstep.store.journal.driven import driven, has_begun, may_drive
from everstep.store.journal.results import Arguments, result_body
from everstep.store.journal.steps import address_named, name_of
from everstep.store.load import checked, checked_from
from everstep.store.refs import find_run
from everstep.store.store import fork_before

if TYPE_CHECKING:
    from everstep.durations import Duration

Stored = tuple[tuple[Any, ...], dict[str, Any]]
_LONGEST_DEFINITION = 100_000
_ENDED = (Status.SUCCEEDED, Status.FAILED, Status.CANCELLED)


class Workflow(Generic[P, R]):
    """A function whose runs are durable. Calling it inside a run starts a child run; outside of one it is a plain call."""

    replays = True

    def __init__(
        self, function: Callable[P, R], *, name: str | None = None, version: Any = None, definition: str | None = None,
        policy: Policy | str | None = None, retry: Retry | int | None = None, budget: Budget | None = None,
        timeout: Duration | None = None,
        compatible: Callable[[str, set[str]], list[str]] | None = None,
        accepts: Callable[..., Any] | None = None,
    ):  # fmt: skip
        if not callable(function):
            raise InvalidArgument(f"a workflow must be a function, got {function!r:.60}", remedy="Use @everstep.workflow on a function.")
        _refuse_method(function)
        self.function = function
        self.name = name or getattr(function, "__name__", "") or ""
        if not self.name.isprintable() or not 0 < len(self.name) <= 200 or self.name == "<lambda>":
            raise InvalidArgument(f"{self.name!r:.60} is not a valid workflow name", remedy='Give one: @everstep.workflow(name="report").')
        self.version = None if version is None else str(version)
        self.is_async = inspect.iscoroutinefunction(function)
        self.definition = (definition if definition is not None else _source(function))[:_LONGEST_DEFINITION]
        self.policy = None if policy is None else Policy.parse(policy)
        mode = AttemptOptions(Hooks(), budget=budget, timeout=timeout, retry=retry)  # refuses bad options now, not when a run fails
        self.retry, self.budget, self.timeout, self.compatible = mode.retry, budget, mode.timeout, compatible
        self.accepts = accepts or self._bind
        functools.update_wrapper(self, function, updated=())
        self._enter()

    def usage(self) -> str | None:
        """Return a sentence with the parameters of the function; None if it checks its input in its own way."""
        return None if self.accepts != self._bind else f"It takes {self.name}{inspect.signature(self.function)!s:.300}."

    def _enter(self) -> None:
        """Register the workflow by its name. Warn if the name is taken, unless a reloaded module defines its workflows again."""
        before = _known.get(self.name)
        if before is not None and before.definition != self.definition and _origin(before.function) != _origin(self.function):
            import warnings

            warnings.warn(
                f"two workflows are named {self.name!r}: the one in {_origin(self.function)[0]} replaces the one in {_origin(before.function)[0]} "
                "and takes over its runs, too. Rename one of them: @everstep.workflow(name=...)",
                stacklevel=4,
            )
        _known[self.name] = self

    def _bind(self, *args: Any, **kwargs: Any) -> None:
        with suppress(ValueError):  # a function without a signature, written in C
            inspect.signature(self.function).bind(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<everstep.Workflow {self.name!r}>"

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        here = current_frame()
        if here is None or not isinstance(here.run, Attempt):
            return self.function(*args, **kwargs)
        from everstep.runtime.child import child_of

        return cast(R, here.run.called(here.awaits, self.name, child_of(self, here), args, kwargs))


AnyWorkflow = Workflow[..., Any]
_known: dict[str, AnyWorkflow] = {}


def _refuse_method(function: Any) -> None:
    """Refuse a method: a workflow is found by its name in any process and called with its stored input, so there is no object to call it on."""
    name = str(getattr(function, "__qualname__", ""))
    code = getattr(function, "__code__", None)
    owner = name.rpartition(".")[0]
    if not owner or owner.endswith("<locals>") or code is None or inspect.ismethod(function):
        return
    if code.co_argcount and code.co_varnames[0] in ("self", "cls"):
        raise InvalidArgument(
            f"a workflow must be a function, got the method {name.rpartition('<locals>.')[2]}",
            remedy="Make it a module-level function, or a @staticmethod (above @everstep.workflow), and pass what it needs of the object as "
            "arguments: they are stored, so a resume in another process has them.",
        )


def _origin(function: Any) -> tuple[str, str]:
    """Return where a function is defined."""
    return str(getattr(function, "__module__", "")), str(getattr(function, "__qualname__", ""))


@overload
def workflow(
    function: Callable[P, R],
    /,
    *,
    name: str | None = None,
    version: object = None,
    policy: Policy | str | None = None,
    retry: Retry | int | None = None,
    budget: Budget | None = None,
    timeout: Duration | None = None,
) -> Workflow[P, R]: ...


@overload
def workflow(
    *,
    name: str | None = None,
    version: object = None,
    policy: Policy | str | None = None,
    retry: Retry | int | None = None,
    budget: Budget | None = None,
    timeout: Duration | None = None,
) -> Callable[[Callable[P, R]], Workflow[P, R]]: ...


def workflow(
    function: Any = None,
    /,
    *,
    name: str | None = None,
    version: object = None,
    policy: Policy | str | None = None,
    retry: Retry | int | None = None,
    budget: Budget | None = None,
    timeout: Duration | None = None,
) -> Any:
    """Make a function a workflow: `store.start(function, ...)` runs it durably. `@everstep.workflow`, or with options.

    name     under which the store saves its runs; by default the name of the function
    version  a label of the code, for rolling deploys
    policy   when checkpoints are made automatically: every(steps=5), on("llm"), or their text
    retry    how `store.wake()` and workers resume a run that failed: a Retry, or a number of attempts
    budget   the limits of each run: Budget(tokens=50_000)
    timeout  of each attempt at a run: seconds, a timedelta, or a string such as "30s"
    """

    def made(function: Callable[..., Any]) -> AnyWorkflow:
        return Workflow(function, name=name, version=version, policy=policy, retry=retry, budget=budget, timeout=timeout)

    return made if function is None else made(function)


def as_workflow(function: Any) -> AnyWorkflow:
    return function if isinstance(function, Workflow) else Workflow(function)


def _source(function: Any) -> str:
    try:
        return textwrap.dedent(inspect.getsource(inspect.unwrap(function)))
    except (OSError, TypeError):  # typed interactively, or not Python: use the code itself
        code = getattr(function, "__code__", None)
        return (
            sha256(code.co_code + repr((code.co_consts, code.co_names)).encode()).hexdigest() if code is not None else repr(type(function))
        )


def start(store: EngineStore, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], id: str | None, options: dict[str, Any]) -> Any:
    flow = as_workflow(function)
    refuse_misfit(flow, args, kwargs)
    stored = as_stored(store, flow, args, kwargs)
    row = store.backend.run(check_id(id)) if id is not None else None
    changed = ""
    if row is not None:
        said = beginning(store, row)
        refuse_other(store, row, said, flow, args, kwargs)
        if row.status in _ENDED:
            return _ready(flow, _known_before(recorded(store, row), Arguments(args, kwargs)))
        changed = definition_change(store, row, flow, said, False)
    about, chunks = first_words(store, flow.name, stored, flow)
    options = {
        **options, "about": about, "chunks": chunks, "seen": 1 if row is None else row.head_seq,
        "same": lambda digest: same_input(store, flow, args, kwargs, digest),
    }  # fmt: skip
    return WorkflowAttempt(store, flow, id or new_id(), args, kwargs, options, changed).drive()


def first_words(
    store: EngineStore, name: str, stored: Stored, flow: AnyWorkflow | None = None
) -> tuple[dict[str, Any], list[tuple[bytes, bytes]]]:
    """Return the content of a run's first record, and its chunks. Without a workflow, only the name is known."""
    digest = digest_of(*stored, name)
    try:
        form, body, chunks = result_body([list(stored[0]), stored[1]], "arguments", store.framer.inner.wrap)
    except PlainSecret:
        raise _named_argument(*stored, name) from None
    about = {
        "workflow": name, "version": flow and flow.version, "input_digest": digest, "definition": flow and definition_of(store, flow),
        "input": [form, body],
    }  # fmt: skip
    return about, chunks


def _named_argument(args: tuple[Any, ...], kwargs: dict[str, Any], name: str) -> PlainSecret:
    """Return the error about a Secret that names the argument."""
    from everstep.codec.explain import secret_in

    paths = (secret_in(value, f"argument {which} of the workflow {name}") for which, value in (*enumerate(args, 1), *kwargs.items()))
    return PlainSecret(next(path for path in paths if path is not None))


def as_stored(store: EngineStore, flow: AnyWorkflow, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Stored:
    """Return an input as this store saves it."""
    return (args, kwargs) if store.mask is None else store.mask.call(flow.function, args, kwargs, flow.name)


def definition_of(store: EngineStore, flow: AnyWorkflow) -> str:
    return flow.definition if store.mask is None else store.mask.source(flow.definition)


def digest_of(args: tuple[Any, ...], kwargs: dict[str, Any], name: str = "") -> bytes:
    """Return the digest that identifies an input."""
    try:
        return sha256(encode([list(args), kwargs], f"arguments of workflow {name}")).digest()[:16]
    except Unstorable:
        for which, value in (*((f"args[{n}]", value) for n, value in enumerate(args)), *kwargs.items()):
            encode(value, f"workflow {name}: {which}")  # raises an error that names the argument
        raise


def _known_before(outcome: Outcome[Any], given: Arguments) -> Outcome[Any]:
    """Set the reason that nothing was executed."""
    outcome.reason, outcome.input = outcome.reason or "recorded before", given
    return outcome


def refuse_misfit(flow: AnyWorkflow, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Refuse an input that the function does not accept, before a run exists that could only fail."""
    try:
        flow.accepts(*args, **kwargs)
    except TypeError as error:
        raise InvalidArgument(f"invalid arguments for workflow {flow.name!r}: {error}", remedy=flow.usage()) from error


def call_plain(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], id: str | None) -> Any:
    """Do what `start` does in a store that is turned off: call the function, and return its outcome."""
    from everstep.runtime.disabled import OffRun

    flow, run = as_workflow(function), OffRun(id, None)
    if flow.is_async:
        return _acall_plain(flow, run, args, kwargs) if _in_loop() else asyncio.run(_acall_plain(flow, run, args, kwargs))
    with run:
        try:
            return Outcome(run.id, Status.SUCCEEDED.value, flow.function(*args, **kwargs), input=Arguments(args, kwargs))
        except Exception as error:  # noqa: BLE001 - it is the outcome
            return Outcome(run.id, Status.FAILED.value, error=error, input=Arguments(args, kwargs))


async def _acall_plain(flow: AnyWorkflow, run: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Outcome[Any]:
    async with run:
        try:
            return Outcome(run.id, Status.SUCCEEDED.value, await flow.function(*args, **kwargs), input=Arguments(args, kwargs))
        except Exception as error:  # noqa: BLE001 - it is the outcome
            return Outcome(run.id, Status.FAILED.value, error=error, input=Arguments(args, kwargs))


def same_input(store: EngineStore, flow: AnyWorkflow, args: tuple[Any, ...], kwargs: dict[str, Any], digest: Any) -> bool:
    """Whether a recorded input equals this one, also if the call was spelled differently."""
    if digest == digest_of(*as_stored(store, flow, args, kwargs), flow.name):
        return True
    from everstep.runtime.steps.spelling import spellings

    return any(digest == digest_of(*as_stored(store, flow, *way)) for way in spellings(flow.function, args, kwargs))


def is_input_of(store: EngineStore, row: RunRow, said: dict[str, Any], digest: bytes) -> bool:
    """Whether a run was started with the input of this digest, also if the call was spelled differently. Without its workflow: only if equal."""
    flow = _known.get(str(said.get("workflow")))
    if digest == said.get("input_digest") or flow is None:
        return bool(digest == said.get("input_digest"))
    from everstep.runtime.steps.spelling import spellings

    return any(digest == digest_of(*way) for way in spellings(flow.function, *_input(store, row, said)))


def refuse_other(
    store: EngineStore, row: RunRow, said: dict[str, Any], flow: AnyWorkflow, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:  # fmt: skip
    if said.get("workflow") != flow.name:
        owner = f"workflow {said['workflow']!r}" if said.get("workflow") else "no workflow"
        raise RunExists(
            f"run {row.id!r} belongs to {owner}, not to workflow {flow.name!r}",
            remedy=f"Choose another id, or see what this run is: store.outcome({row.id!r}).",
        )
    if not same_input(store, flow, args, kwargs, said.get("input_digest")):
        raise RunExists(
            f"run {row.id!r} of workflow {flow.name!r} was started with a different input",
            remedy=f"Choose another id, or resume the run with its own input: store.resume({row.id!r}).",
        )


def _ready(flow: AnyWorkflow | Driver, outcome: Outcome[Any]) -> Any:
    """Return an existing outcome in the form that the caller of an async workflow expects."""
    if flow.is_async and _in_loop():
        return _give(outcome)
    return outcome


async def _give(outcome: Outcome[Any]) -> Outcome[Any]:
    return outcome


def finish(outcome: Any) -> Outcome[Any]:
    """Return the outcome of an attempt, also if a loop is running in this thread, which then blocks."""
    if not inspect.isawaitable(outcome):
        return cast(Outcome[Any], outcome)
    from concurrent.futures import ThreadPoolExecutor

    async def wait() -> Any:
        return await outcome

    with ThreadPoolExecutor(1, "everstep-wake") as pool:
        return cast(Outcome[Any], pool.submit(lambda: asyncio.run(wait())).result())


def _in_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def resume(store: EngineStore, run_id: str, from_step: str | None, replay: Replay, anyway: bool, options: dict[str, Any]) -> Any:
    return resumed(store, run_id, from_step, replay, anyway, options).drive()


def resumed(
    store: EngineStore, run_id: str, from_step: str | None, replay: Replay, anyway: bool, options: dict[str, Any]
) -> WorkflowAttempt | _Ended:
    """Return the attempt to resume a run. It has read everything it needs to begin."""
    if replay not in get_args(Replay):  # checked for ended runs, too: a misspelt validation must not look like a clean one
        raise InvalidArgument(f"replay must be one of {', '.join(get_args(Replay))}, got {replay!r:.60}")
    check_limits(options.get("budget"), options.get("timeout"))
    row = find_run(store.backend, run_id)
    if options.get("accept"):
        options = options | {"accept": _recorded_steps(store, row, options["accept"])}
    said = beginning(store, row)
    flow = _workflow_of(row, said)
    if isinstance(flow, Driver):
        return _driven(store, flow, row, from_step, replay, options)
    changed = definition_change(store, row, flow, said, anyway)
    if from_step is not None:
        if replay != "normal":
            raise InvalidArgument("from_step needs replay='normal'")
        row = fork_before(store, row, from_step)
    elif replay != "validate" and row.status == Status.SUCCEEDED:
        if replay == "republish":
            republish(store.hook_registry, checked_from(store.backend, row, 1))
        ended = recorded(store, row)
        ended.input = _input(store, row, said)
        return _Ended(flow, ended)
    elif row.status == Status.CANCELLED and replay != "validate" and not options.get("revived"):
        raise IllegalTransition(row.id, row.status, Status.RUNNING)
    args, kwargs = _input(store, row, said)
    return WorkflowAttempt(store, flow, row.id, args, kwargs, {**options, "replay": replay, "seen": row.head_seq}, changed)


def _driven(
    store: EngineStore, driver: Driver, row: RunRow, from_step: str | None, replay: Replay, options: dict[str, Any]
) -> WorkflowAttempt | _Ended:
    """Return the attempt of a driver at a run that its framework continues."""
    if from_step is not None or replay != "normal":
        raise InvalidArgument(
            f"run {row.id!r} is driven by {driver.name!r}, whose steps are not replayed",
            remedy=f"Resume it without from_step and replay, or fork it: store.fork({row.id!r}).",
        )
    if row.status == Status.SUCCEEDED:
        return _Ended(driver, recorded(store, row))
    if row.status == Status.CANCELLED:
        raise IllegalTransition(row.id, row.status, Status.RUNNING)
    return WorkflowAttempt(store, driver, row.id, (), {}, {**options, "seen": row.head_seq})


def _recorded_steps(store: EngineStore, row: RunRow, accept: frozenset[str]) -> frozenset[str]:
    """Return the addresses of steps. Refuse unknown ones: a misspelt address would accept nothing, unnoticed."""
    known = [record.note for record in checked_from(store.backend, row, 1) if record.kind == Kind.STEP]
    addresses = {step: address_named(step, known) for step in accept}
    unknown = {step for step, address in addresses.items() if address not in known}
    if unknown:
        raise InvalidArgument(
            f"accept must name recorded steps of run {row.id!r}, got {', '.join(map(repr, sorted(unknown)))}",
            remedy=f"Give addresses as store.steps({row.id!r}) shows them: accept=['ask#0'].",
        )
    return frozenset(addresses.values())


def take_up(store: EngineStore, claimed: Claimed, max_deaths: int = MAX_DEATHS) -> WorkflowAttempt:
    """Return the attempt at a claimed run. If this process cannot execute it, raise before anything is written, and release the lease."""
    row = claimed.row
    assert row is not None
    try:
        said = beginning(store, row)
        flow = _workflow_of(row, said)
        if isinstance(flow, Driver):
            return WorkflowAttempt(store, flow, row.id, (), {}, {"held": claimed, "max_deaths": max_deaths})
        _refuse_version(store, row, flow, said)
        changed = definition_change(store, row, flow, said, False)
        args, kwargs = _input(store, row, said)
        return WorkflowAttempt(store, flow, row.id, args, kwargs, {"held": claimed, "max_deaths": max_deaths}, changed)
    except BaseException:
        store.keeper.released()
        release_claimed(store, claimed)
        raise


def recover(store: EngineStore, run_id: str, max_deaths: int) -> WorkflowAttempt | _Ended:
    """Return a worker's attempt to resume a run outside of queues. A run of another version is left alone."""
    row = find_run(store.backend, run_id)
    said = beginning(store, row)
    flow = _workflow_of(row, said)
    if not isinstance(flow, Driver):
        _refuse_version(store, row, flow, said)
    return resumed(store, run_id, None, "normal", False, {"max_deaths": max_deaths})


def _refuse_version(store: EngineStore, row: RunRow, flow: AnyWorkflow, said: dict[str, Any]) -> None:
    """Leave a run to the workers of the version that executed it."""
    found = driven(store.backend, row, said)
    if not may_drive(found, has_begun(store.backend, row), flow.version):
        raise OtherVersion(f"version {found.version} of {flow.name} executed run {row.id!r}; this process has version {flow.version}")


def by_name(name: str) -> AnyWorkflow | None:
    """Return the workflow of that name, if this process has it."""
    return _known.get(name)


def is_async(name: str | None) -> bool:
    """Whether the workflow or the driver of that name is async."""
    flow = _known.get(name or "") or driver_of(name)
    return flow is not None and flow.is_async


def known() -> list[str]:
    """Return the names of all workflows and drivers of this process."""
    return list(dict.fromkeys((*_known, *labels())))


def versions() -> dict[str, str | None]:
    """Return the versions of all workflows and drivers of this process, by name."""
    return {**dict.fromkeys(labels()), **{name: flow.version for name, flow in list(_known.items())}}


def _input(store: EngineStore, row: RunRow, said: dict[str, Any]) -> Arguments:
    """Return the input that a run was started with."""
    found = input_of(store, row, said)
    if found is None:
        raise DamagedRecord(row.id, 1, "it does not contain the input of a workflow")
    return found


def definition_change(store: EngineStore, row: RunRow, flow: AnyWorkflow, said: dict[str, Any], anyway: bool) -> str:
    """Return the diff between the definition that a run began with and this one; raise if the run cannot continue under it."""
    before = driven(store.backend, row, said)
    if not before.ever:
        return ""  # the code of the program that enqueued it executed nothing
    changed = _difference(definition_of(store, flow), before.definition)
    if not changed or flow.compatible is None:
        return changed
    begun = {name_of(r.note) for r in checked_from(store.backend, row, 1) if r.kind in (Kind.STEP, Kind.GATE, Kind.ANSWER) and r.note}
    reasons = flow.compatible(before.definition or "", begun)
    if reasons and not anyway:
        raise DefinitionChanged(f"run {row.id!r} began under another definition of {flow.name}: {'; '.join(reasons)}", changed)
    return changed


def workflow_of(store: EngineStore, run_id: str) -> AnyWorkflow | Driver:
    """Return the workflow or the driver of a run, if this process knows it."""
    row = find_run(store.backend, run_id)
    return _workflow_of(row, beginning(store, row))


def beginning(store: EngineStore, row: RunRow) -> dict[str, Any]:
    """Return the content of a run's first record."""
    return content(checked(store.backend, row, 1, 1)[0])


def _workflow_of(row: RunRow, said: dict[str, Any]) -> AnyWorkflow | Driver:
    name = said.get("workflow")
    driver = driver_of(row.workflow) if name is None else None
    if driver is not None:
        return driver
    if name is None and row.workflow:
        raise UnknownWorkflow(
            f"run {row.id!r} belongs to {row.workflow!r}, and this process has defined no driver for it",
            remedy="Run the program that opens it again. If a framework drives it, import the module that calls "
            f"everstep.drives({row.workflow!r}, ...) or the resume(...) of the framework's adapter, then resume the run.",
        )
    if name is None:
        raise InvalidArgument(
            f"run {row.id!r} was opened with store.run() or store.line(); only workflows and runs with a driver can be resumed by name",
            remedy=f"Run the program that calls store.run({row.id!r}) again; for an agent, the one that calls loop.run(store, {row.id!r}).",
        )
    if name not in _known:
        raise UnknownWorkflow(f"run {row.id!r} belongs to the workflow {name!r}, which this process has not defined")
    return _known[name]


def _difference(definition: str, before: str | None) -> str:
    if before == definition:
        return ""
    lines = difflib.unified_diff((before or "").splitlines(), definition.splitlines(), "began with", "now", lineterm="")
    return "\n".join(lines)


class _Ended:
    """Takes the role of an attempt for a run that has already ended."""

    def __init__(self, flow: AnyWorkflow | Driver, outcome: Outcome[Any]):
        self._flow = flow
        self._outcome = outcome

    def drive(self) -> Any:
        return _ready(self._flow, self._outcome)


class WorkflowAttempt:
    """One attempt to execute a run of a workflow."""

    def __init__(
        self,
        store: EngineStore,
        flow: AnyWorkflow | Driver,
        id: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        options: dict[str, Any],
        changed: str = "",
    ):
        self._store = store
        self._flow = flow
        self._args = args
        self._kwargs = kwargs
        given = {k: v for k, v in options.items() if v is not None and k not in ("fields", "durability")}
        if isinstance(flow, Workflow):
            given |= {"version": flow.version, "definition": definition_of(store, flow)}
        for name in ("policy", "budget", "timeout", "retry"):
            given.setdefault(name, getattr(flow, name))
        follows = given["policy"] is None
        for name, default in (("policy", store.policy), ("budget", store.budget), ("timeout", store.timeout)):
            given[name] = default if given[name] is None else given[name]
        self._validate = options.get("replay") == "validate"
        mode = AttemptOptions(hooks=store.hook_registry, workflow=flow.replays, framework=not flow.replays, **given)
        fields = {**(options.get("fields") or {}), "workflow": flow.name}
        self._handle: Run[Any] = Run(store, store.keeper, id, None, options.get("durability") or store.durability, fields, mode, follows)
        self._changed = changed

    @property
    def run(self) -> Attempt:
        """The engine's attempt."""
        return attempt_of(self._handle)

    def drive(self) -> Any:
        if not self._flow.is_async:
            return self._sync()
        return self._async() if _in_loop() else asyncio.run(self._async())

    def _sync(self) -> Outcome[Any]:
        handle, error = self._handle, None
        try:
            handle.__enter__()
        except Interrupted:
            return self._cancelled()
        self.run.report.changed = self._changed
        try:
            give_result(self.run, self._flow.function(*self._args, **self._kwargs))
        except BaseException as problem:  # noqa: BLE001 - it becomes the outcome, or is raised again
            error = self._problem(problem)
        error = end_of(self.run, error)
        return self._outcome(error, _exit(handle, error))

    async def _async(self) -> Outcome[Any]:
        error: BaseException | None = None
        try:
            await self._handle.__aenter__()
        except Interrupted:
            return self._cancelled()
        self.run.report.changed = self._changed
        try:
            give_result(self.run, await self._flow.function(*self._args, **self._kwargs))
        except BaseException as problem:  # noqa: BLE001 - it becomes the outcome, or is raised again
            error = self._problem(problem)
        error = end_of(self.run, error)
        trouble: BaseException | None = None
        try:
            await self._handle.__aexit__(type(error) if error else None, error, None)
        except BaseException as problem:  # noqa: BLE001 - raised by _outcome
            trouble = problem
        return self._outcome(error, trouble)

    def _problem(self, problem: BaseException) -> BaseException | None:
        """Return the error that a workflow ended with. In a worker, an attempt to end the process becomes an error: it has other runs."""
        error = signals.error_of(self.run, stopped_by(problem))
        if self.run.stop_flag is None or isinstance(error, (Exception, Suspended)):
            return error
        made = ExitInWorkflow(f"the workflow {self._flow.name!r} tried to end its worker ({type(error).__name__}: {error})")
        made.__cause__ = error
        return made

    def _cancelled(self) -> Outcome[Any]:
        """Return the recorded outcome of a run that cannot start: it was cancelled, has ended meanwhile, or was given up for its deaths."""
        assert self.run.row is not None
        outcome = recorded(self._store, self.run.row, self.run.report)
        outcome.input = Arguments(self._args, self._kwargs)
        if self.run.buried:
            outcome.reason, outcome.report.deaths = DEAD, self.run.buried
        return outcome

    def _outcome(self, error: BaseException | None, trouble: BaseException | None) -> Outcome[Any]:
        """Return the outcome; raise the error if the attempt itself broke."""
        run = self.run
        if isinstance(trouble, AttemptLost):
            trouble = trouble.error
        if isinstance(trouble, TROUBLE):
            raise resumable(run.id, trouble) from trouble
        if trouble is not None:
            raise trouble
        if error is not None and not isinstance(error, (Exception, Suspended)):
            raise error
        if isinstance(error, Interrupted) and error.exit_code is not None:
            raise error  # a child run: its caller stops, too
        failure = run.failure or (error if isinstance(error, LostLease) else None)
        if failure is not None:
            raise resumable(run.id, failure) from failure
        assert run.row is not None
        if self._validate:
            return self._validated(error)
        outcome = recorded(self._store, run.row, run.report)
        outcome.input = Arguments(self._args, self._kwargs)
        if isinstance(error, Exception):
            outcome.error = error
        elif error is None and outcome.status == Status.SUCCEEDED:
            outcome.result = run.result
        return outcome

    def _validated(self, error: BaseException | None) -> Outcome[Any]:
        """Return the outcome of a validation. If it found differences, its status is not that of the run."""
        from everstep.runtime.steps import validate

        run = self.run
        assert run.row is not None
        validate.conclude(run, error)
        outcome = Outcome(run.row.id, run.row.status, run.result, error if isinstance(error, Exception) else None, report=run.report)
        outcome.input = Arguments(self._args, self._kwargs)
        count = len(run.report.differences)
        if count:
            outcome.status = DIFFERS
            outcome.reason = f"{count:,} difference{'s' if count > 1 else ''}; the run itself is unchanged, {run.row.status}"
        return outcome


def resumable(run: str, failure: EverstepError) -> EverstepError:
    """Return the error of the store with a remedy for this run. A copy: others may have the same error object."""
    shown = copy(failure)
    if isinstance(failure, StoreError):
        shown.remedy = (
            f"Run {run!r} did not fail: no end was recorded. When the store works again, store.resume({run!r}) continues after the last "
            "recorded step; a step whose result could not be recorded runs again, with the same step_key. A worker resumes it automatically."
        )
    return shown


def _exit(run: Run[Any], error: BaseException | None) -> BaseException | None:
    try:
        run.__exit__(type(error) if error is not None else None, error, None)
    except BaseException as trouble:  # noqa: BLE001 - raised by _outcome
        return trouble
    return None

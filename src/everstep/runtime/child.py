"""Child runs: a workflow that is called inside a run. Executed as a step of its caller, with its own journal and id."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from hashlib import sha256
from typing import Any, cast

from everstep.backends.contract.core import Query
from everstep.errors import (
    LeaseHeld,
    RunExists,
    StepFailed,
    Waiting,
)  # fmt: skip
from everstep.fields import replace
from everstep.records import CHILD, Kind, RunRow, Status
from everstep.runtime.engine.context import Frame, frame
from everstep.runtime.engine.store_trouble import TROUBLE
from everstep.runtime.engine_store import EngineStore
from everstep.runtime.limits.deaths import is_buried
from everstep.runtime.outcome import Outcome, recorded
from everstep.runtime.steps.lookup import given_again
from everstep.runtime.workflow import AnyWorkflow, beginning, refuse_other, resume, start
from everstep.store.journal.entries import said_in
from everstep.store.load import newest_of


def child_of(flow: AnyWorkflow, here: Frame) -> Callable[..., Any]:
    """Return the step function that executes a child run. A crash in it is harmless: the child resumes where it was."""

    def drive(*args: Any, **kwargs: Any) -> Any:
        try:
            outcome = _child(flow, args, kwargs)
        except LeaseHeld as error:
            raise held(error) from error
        except TROUBLE as error:  # the child was released, and so is its caller
            here.run.met(error, step=True)
            raise
        try:
            return settle(outcome)
        except Waiting as waiting:
            raise here.run.stopped_by(waiting) from None

    async def adrive(*args: Any, **kwargs: Any) -> Any:
        try:
            attempt = _child(flow, args, kwargs)
            outcome = await attempt if inspect.isawaitable(attempt) else attempt
        except LeaseHeld as error:
            raise held(error) from error
        except TROUBLE as error:
            here.run.met(error, step=True)
            raise
        return settle(outcome)

    def held(error: LeaseHeld) -> Waiting:
        """Wait: another process executes the child, and wakes its caller when it ends."""
        return Waiting(here.run.id, f"a child run ({error.message})")

    def settle(outcome: Outcome[Any]) -> Any:
        return _of_child(outcome, here.run.id)

    chosen: Any = adrive if flow.is_async else drive
    chosen.is_child = True
    chosen.__wrapped__ = flow.function  # its parameters decide which arguments are masked, and which calls are the same
    return cast("Callable[..., Any]", chosen)


def _child(flow: AnyWorkflow, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    here = frame.get()
    assert here is not None
    assert here.ticket is not None
    run, address = here.run, here.ticket.address
    store = cast(EngineStore, run.store)
    id = child_id(run.id, address)
    token = frame.set(None)  # the child counts its own steps
    try:
        row = store.backend.run(id)
        if run.dry:
            return _validated(store, row, here)
        if row is not None:
            _refuse_stranger(store, row, run.id, flow, args, kwargs)
        options = {"driven": True, "caller": run.account, "by_hand": run.options.by_hand, "max_deaths": run.options.max_deaths}
        if row is not None and row.status == Status.FAILED:
            if not run.options.by_hand and _was_given_up(store, row):
                return recorded(store, row)  # another attempt would kill this process, too
            return resume(store, id, None, "normal", False, options)
        if row is not None and _was_cancelled_by_caller(store, row):
            return resume(store, id, None, "normal", False, {**options, "revived": True})
        fields = {"parent": run.id, "parent_number": CHILD, "session": run.live()[0].session}
        return start(store, flow, args, kwargs, id, {"fields": fields, **options})
    finally:
        frame.reset(token)


CANCELLED_BY_CALLER = "its caller cancelled the call"


def cancel_child(run: Any, address: str) -> None:
    """Cancel the child run of a call that the program cancelled, if it has not ended. Calling this twice is harmless."""
    from everstep.runtime.waits import control

    store = cast(EngineStore, run.store)
    row = store.backend.run(child_id(run.id, address))
    if row is not None and row.parent == run.id and row.parent_number == CHILD:
        control.cancel_for_caller(store, row, CANCELLED_BY_CALLER)


def cancel_open_children(run: Any) -> None:
    """Cancel the unfinished child runs of a caller that returns."""
    from everstep.runtime.waits import control

    store = cast(EngineStore, run.store)
    for status in (Status.RUNNING, Status.WAITING):
        for _, row in store.backend.runs(Query(parent=run.id, status=status.value)):
            if row.parent_number == CHILD:
                control.cancel_for_caller(store, row, CANCELLED_BY_CALLER)


def _was_cancelled_by_caller(store: EngineStore, row: RunRow) -> bool:
    """Whether a child run was cancelled because its caller cancelled the call. If the caller makes the call again, the child runs again, too."""
    if row.status != Status.CANCELLED:
        return False
    found = newest_of(store.backend, row, Kind.STATUS)
    return found is not None and said_in(found).get("reason") == f"cancel: {CANCELLED_BY_CALLER}"


def _was_given_up(store: EngineStore, row: RunRow) -> bool:
    """Whether a child run failed because it kills the processes that execute it."""
    found = newest_of(store.backend, row, Kind.STATUS)
    return found is not None and is_buried(said_in(found))


def _validated(store: EngineStore, row: RunRow | None, here: Frame) -> Any:
    """Validate a child with its caller. The caller then gets the recorded outcome, so that each difference is reported once."""
    run, ticket = here.run, here.ticket
    assert ticket is not None
    if row is None:  # it was deleted: only its caller still has its outcome
        if not ticket.done:
            from everstep.runtime.steps import validate

            raise validate.ends_at(run, ticket.address)
        return given_again(ticket)
    found = resume(store, row.id, None, "validate", True, {"driven": True})
    known = recorded(store, row)
    return _tell_later(run, found, known) if inspect.isawaitable(found) else _tell(run, found, known)


async def _tell_later(run: Any, found: Any, known: Outcome[Any]) -> Outcome[Any]:
    return _tell(run, await found, known)


def _tell(run: Any, found: Outcome[Any], known: Outcome[Any]) -> Outcome[Any]:
    for one in found.report.differences:
        run.report.differences.append(replace(one, address=f"{found.run}: {one.address}"))
    return known


def _refuse_stranger(
    store: EngineStore, row: RunRow, caller: str, flow: AnyWorkflow, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    """Refuse a run that has the id of a child, unless this caller made it, of this workflow and with this input."""
    if row.parent != caller or row.parent_number != CHILD:
        raise RunExists(f"run {row.id!r} already exists, and run {caller!r} did not call it")
    refuse_other(store, row, beginning(store, row), flow, args, kwargs)


def child_id(run: str, address: str) -> str:
    """Return the id of a child: readable, and unique for each address."""
    name = f"{run}.{address.replace('#', '.').replace('/', '.')}"
    shown = "".join(c if c.isprintable() and not c.isspace() and c not in "@~" else "-" for c in name)
    if shown == name and "." not in address and len(name) <= 200:
        return name
    return f"{shown[:180]}-{sha256(f'{run}.{address}'.encode()).hexdigest()[:16]}"


def _of_child(outcome: Outcome[Any], parent: str) -> Any:
    if outcome.status == Status.SUCCEEDED:
        return outcome.result
    if outcome.error is not None:
        raise outcome.error
    if outcome.status == Status.CANCELLED:
        raise StepFailed(outcome.run, "Cancelled", outcome.reason or "the child run was cancelled")
    raise Waiting(parent, f"the child run {outcome.run!r} ({outcome.reason or outcome.status})")

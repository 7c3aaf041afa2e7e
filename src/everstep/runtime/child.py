"""Child runs: a workflow that is called inside a run. Driven as a step of its caller, with a journal and an id of its own."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from hashlib import sha256
from typing import Any, cast

from everstep.errors import (
    LeaseHeld,
    RunExists,
    StepFailed,
    Suspended,
    Waiting,
)  # fmt: skip
from everstep.records import CHILD, RunRow, Status
from everstep.runtime.context import Frame, frame
from everstep.runtime.host import Host
from everstep.runtime.outcome import Outcome
from everstep.runtime.workflow import Workflow, beginning, refuse_other, resume, start


def child_of(flow: Workflow, here: Frame) -> Callable[..., Any]:
    """The step of a run that drives a child run. Dying in it is no harm: the child goes on where it was."""

    def drive(*args: Any, **kwargs: Any) -> Any:
        try:
            outcome = _child(flow, args, kwargs)
        except LeaseHeld as error:
            raise held(error) from error
        try:
            return settle(outcome)
        except Waiting as waiting:
            raise _stopped_by(here.run, waiting) from None

    async def adrive(*args: Any, **kwargs: Any) -> Any:
        try:
            attempt = _child(flow, args, kwargs)
            outcome = await attempt if inspect.isawaitable(attempt) else attempt
            return settle(outcome)
        except LeaseHeld as error:
            await _let_others_proceed(held(error))
        except Waiting as waiting:
            await _let_others_proceed(waiting)

    def held(error: LeaseHeld) -> Waiting:
        """Somebody else drives the child, and wakes its caller when it ends."""
        return Waiting(here.run.id, f"a child run ({error.message})")

    def settle(outcome: Outcome) -> Any:
        return _of_child(outcome, here.run.id)

    chosen: Any = adrive if flow.is_async else drive
    chosen.__wrapped__ = flow.function  # its parameters say which arguments are masked, and which calls are the same
    return cast("Callable[..., Any]", chosen)


def _child(flow: Workflow, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    here = frame.get()
    assert here is not None
    assert here.ticket is not None
    run, address = here.run, here.ticket.address
    store = cast(Host, run._store)
    id = child_id(run.id, address)
    token = frame.set(None)  # the child counts its own steps
    try:
        row = store.backend.run(id)
        if row is not None:
            _refuse_stranger(store, row, run.id, flow, args, kwargs)
        if row is not None and row.status == Status.FAILED:
            return resume(store, id, None, "normal", False, {"driven": True, "caller": run._account})
        fields = {"parent": run.id, "parent_number": CHILD, "session": run._open()[0].session}
        return start(store, flow, args, kwargs, id, {"fields": fields, "driven": True, "caller": run._account})
    finally:
        frame.reset(token)


def _stopped_by(run: Any, waiting: Waiting) -> Suspended:
    """What stops the caller of a child that waits: its own limit, if that is what stopped the child."""
    reason = run._stops() if f" of run {run.id!r}: " in waiting.what else None
    return waiting if reason is None else cast("Suspended", run._interrupt(reason))


async def _let_others_proceed(waiting: Waiting) -> None:
    """A child that waits suspends its caller, too, when no other task of the caller can proceed."""
    here = frame.get()
    if here is not None and here.ticket is not None and hasattr(here.handle, "completions"):
        from everstep.runtime.agates import park

        await park(here.handle, f"{here.ticket.address}/", lambda: False, lambda: _stopped_by(here.run, waiting))
    raise waiting


def _refuse_stranger(store: Host, row: RunRow, caller: str, flow: Workflow, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """A run that has the id of a child is the child only if this caller made it, of this workflow and with this input."""
    if row.parent != caller or row.parent_number != CHILD:
        raise RunExists(f"run {row.id!r} exists and was not called by run {caller!r}")
    refuse_other(store, row, beginning(store, row), flow, args, kwargs)


def child_id(run: str, address: str) -> str:
    """The id of a child: readable, and another one for each address."""
    name = f"{run}.{address.replace('#', '.').replace('/', '.')}"
    shown = "".join(c if c.isprintable() and not c.isspace() and c not in "@~" else "-" for c in name)
    if shown == name and "." not in address and len(name) <= 200:
        return name
    return f"{shown[:180]}-{sha256(f'{run}.{address}'.encode()).hexdigest()[:16]}"


def _of_child(outcome: Outcome, parent: str) -> Any:
    if outcome.status == Status.SUCCEEDED:
        return outcome.result
    if outcome.error is not None:
        raise outcome.error
    if outcome.status == Status.CANCELLED:
        raise StepFailed(outcome.run, "Cancelled", outcome.reason or "the child run was cancelled")
    raise Waiting(parent, f"the child run {outcome.run!r} ({outcome.reason or outcome.status})")

"""Looks up the record of a step's call: whether it is the same call, how far it got, and its result or error. Writes nothing."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from everstep.codec.explain import secret_in
from everstep.codec.secret_bytes import may_hold, refuse_secret
from everstep.codec.values import hook, pack
from everstep.errors import EverstepError, Reentered
from everstep.runtime.steps.options import shape_of
from everstep.runtime.steps.ticket import Ticket, Turn
from everstep.store.journal.entries import FAILED, RUNNING, StepEntry
from everstep.store.journal.results import SHORT_INPUT, input_of, preview, show_input

if TYPE_CHECKING:
    from everstep.runtime.engine.attempt import Attempt

_OPEN_ARGUMENT = (
    "Leave the argument out with ignore=, identify the step by a key=, or read the secret inside the step. "
    "Or give the store a key, or allow it to store secrets readable: everstep.open(..., plain_secrets=True)."
)
_UNSTORABLE = "Identify the step by a key=, leave the argument out with ignore=, or make it storable."


def look_up(ticket: Ticket) -> Ticket:
    """Fill in the identity of a call, and its record."""
    _identify(ticket)
    _find(ticket)
    return ticket


def look_again(ticket: Ticket) -> None:
    """Look up a step with a key again: it may have been recorded between its call and its turn."""
    if ticket.turn is not None and ticket.found is None:
        _find(ticket)


def input_bytes(address: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
    """Return the bytes that identify an input; an error names the part that cannot be stored."""
    try:
        if not kwargs:
            return pack([*args], hook)  # the same bytes, without a name for errors: every step comes here
    except Reentered:
        raise
    except (TypeError, ValueError, RecursionError, EverstepError):
        pass
    try:
        return input_of(address, args, kwargs)
    except EverstepError as error:
        error.remedy = _UNSTORABLE
        raise


def masked_input(run: Attempt, function: Any, address: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
    args, kwargs = _masked(run, function, address, args, kwargs)
    return input_bytes(address, args, kwargs)


def _masked(run: Attempt, function: Any, address: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return a masked input as it is stored: a resumed run sees the masked values, and must get the same input."""
    mask = run.mask
    assert mask is not None
    try:
        return mask.call(function, args, kwargs, address)
    except EverstepError as error:
        error.remedy = _UNSTORABLE
        raise


def _identify(ticket: Ticket) -> None:
    args, kwargs, options = ticket.args, ticket.kwargs, ticket.options
    shape = shape_of(ticket.function, options)
    if options.ignore:
        bound = inspect.signature(shape).bind(*args, **kwargs)
        args, kwargs = (), {k: v for k, v in bound.arguments.items() if k not in options.ignore}
    try:
        if ticket.run.mask is not None:
            args, kwargs = _masked(ticket.run, shape, ticket.address, args, kwargs)
        data = input_bytes(ticket.address, args, kwargs)
        if may_hold(data):
            _refuse_secret(ticket, data, list(args), kwargs)
    except EverstepError:
        if options.key is None:
            raise
        return  # the key identifies the step
    if options.key is None:
        ticket.digest = sha256(data).digest()[:16]
    ticket.input = data if len(data) <= SHORT_INPUT else preview(data, args, kwargs)


def _refuse_secret(ticket: Ticket, data: bytes, args: list[Any], kwargs: dict[str, Any]) -> None:
    """Refuse an argument whose value would be stored readable."""
    which, part = ("args", args) if secret_in(args, "") is not None else ("kwargs", kwargs)
    refuse_secret(ticket.run.store.framer.inner.wrap, data, part, f"{ticket.address}: {which}", _OPEN_ARGUMENT)


def _find(ticket: Ticket) -> None:
    run = ticket.run
    found = run.replay.recorded(ticket.address)
    if found is None:
        ticket.again = run.unsure or ticket.address in run.replay.doubtful
        return
    step = found.entry
    status, flags, ticket.attempt = step.status, step.flags, step.attempt
    if run.dry and flags.get("again") and step.error is not None:
        status = FAILED  # a resume runs it again, but it did fail: validation compares that
        found.entry = step._replace(status=FAILED)
    elif is_other_input(ticket, step) and not run.dry:
        raise run.diverge(ticket.address, show_input(step.input), show_input(ticket.input))
    if status == RUNNING or (status == FAILED and flags.get("next") is not None):
        ticket.unsure = not flags.get("again") and status == RUNNING
        cut_off = ticket.unsure or bool(flags.get("cancelled"))  # how far it got is unknown
        ticket.again = cut_off or run.unsure or ticket.address in run.replay.doubtful
        ticket.attempt += 1
        ticket.tried = 0 if flags.get("again") else flags.get("tried", 0 if status == RUNNING else found.attempts + 1)
        ticket.found = found if not flags.get("again") else None
        run_again(run, flags.get("inner", ()))
        return
    ticket.found, ticket.done = found, True


def is_other_input(ticket: Ticket, step: StepEntry) -> bool:
    """Whether a recorded step had a different input from this call."""
    if not step.digest or step.digest == ticket.digest or not ticket.digest or step.status == RUNNING:
        return False
    return ticket.address not in ticket.run.options.accept and not _same_call(ticket, step.digest)


def _same_call(ticket: Ticket, digest: bytes) -> bool:
    """Whether a recorded input is that of this call, spelled differently."""
    if ticket.options.ignore:
        return False  # all of it was passed by name
    from everstep.runtime.steps.spelling import spellings

    run, shape = ticket.run, shape_of(ticket.function, ticket.options)
    ways = spellings(shape, ticket.args, ticket.kwargs)
    if run.mask is not None:
        ways = (_masked(run, shape, ticket.address, *way) for way in ways)
    return any(sha256(input_bytes(ticket.address, *way)).digest()[:16] == digest for way in ways)


def run_again(run: Attempt, addresses: Iterable[str]) -> None:
    """Have failed steps run again when they are called next."""
    for address in addresses:
        run.replay.forget(address)


def kept(run: Attempt, address: str, step: StepEntry) -> None:
    """Count a step whose result was taken from the journal."""
    report = run.report
    report.kept += 1
    report.seconds_saved += (step.ended - step.started) / 1e6
    if step.tokens or step.cost:
        report.tokens_saved += step.tokens
        report.cost_saved += step.cost
    run.saves.last_step = address


def recorded_outcome(ticket: Ticket) -> Any:
    """Return the recorded result, or raise the recorded error."""
    assert ticket.found is not None
    kept(ticket.run, ticket.address, ticket.found.entry)
    return given_again(ticket)


def given_again(ticket: Ticket) -> Any:
    """Return the recorded result, or raise the recorded error, without counting it as kept."""
    run, found = ticket.run, ticket.found
    assert found is not None
    step = found.entry
    if step.status == FAILED:
        if step.flags.get("cancelled"):
            raise run.diverge(ticket.address, "a step that the program cancelled", "a step that it does not cancel")
        from everstep.store.journal.failures import rebuilt  # only when something failed

        run.branches.failed(ticket.address, run.branch())
        raise rebuilt(step.error or {}, ticket.address)
    return run.replay.loaded(step)


# Steps with a key take turns.


def take_turn(ticket: Ticket) -> Turn | None:
    """Return the running call with the same key that a step has to wait for, and whose result it then gets; None if there is none."""
    run = ticket.run
    if ticket.options.key is None or ticket.done:
        return None
    from concurrent.futures import Future

    with run.numbering:
        other = run.steps.turns.get(ticket.address)
        if other is None:
            run.steps.turns[ticket.address] = ticket.turn = Turn(Future())
    return other


def end_turn(ticket: Ticket) -> None:
    """End the turn of a step: drop the records of its inner steps, and let calls with the same key look for its result."""
    run, turn = ticket.run, ticket.turn
    if ticket.reserved:  # it was stopped, or could not be recorded
        ticket.reserved = False
        run.account.release()
    for address in ticket.inner:
        run.replay.entries.pop(address, None)
    if turn is not None:
        ticket.turn = None
        with run.numbering:
            run.steps.turns.pop(ticket.address, None)
        turn.future.set_result(None)

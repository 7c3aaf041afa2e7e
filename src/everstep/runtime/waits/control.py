"""Controls a run from outside: answer, pause, cancel, skip, retry, wake.

Nothing here needs the run's lease: the process that executes it reads its messages between two steps. If no process executes it, the lease is
taken for a moment, so that the change takes effect at once.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from everstep.backends.contract.capability import need
from everstep.backends.contract.core import Query
from everstep.backends.contract.mailbox import Mailbox
from everstep.clock import clock, iso
from everstep.codec.values import decode, encode
from everstep.errors import (
    AlreadyAnswered,
    AnswerTooLate,
    BadAnswer,
    Damaged,
    DamagedRun,
    EverstepError,
    IllegalTransition,
    InvalidArgument,
    LeaseHeld,
    NotFound,
    UnknownWorkflow,
)
from everstep.records import CHILD, Kind, Message, Record, RunRow, Status
from everstep.runtime import workflow
from everstep.runtime.engine.finish import wake_caller
from everstep.runtime.engine.messages import verified as verified_message
from everstep.runtime.engine.replay import taken_over
from everstep.runtime.engine_store import EngineStore
from everstep.runtime.outcome import Outcome
from everstep.runtime.waits.answer_instances import plain_of
from everstep.runtime.waits.answer_schema import check_stored
from everstep.runtime.waits.wake_callers import wake_waiters
from everstep.store.chain import Chain
from everstep.store.encryption.frames import content_of_message, new_message
from everstep.store.gates import Gate, list_gates
from everstep.store.journal.entries import FAILED, SUCCEEDED, StepEntry, open_as
from everstep.store.journal.steps import address_named
from everstep.store.load import checked_from
from everstep.store.query import check_text, to_us
from everstep.store.refs import find_run, verified

_OVER = (Status.SUCCEEDED, Status.CANCELLED)


def answer(store: EngineStore, run_id: str, gate: str, value: Any, by: str | None, early: bool) -> None:
    need(store.backend, Mailbox)
    row = find_run(store.backend, run_id)
    asked = list_gates(store.backend, row)
    address, found = _which(row, asked, gate)
    posted = {message.name for message in store.backend.messages(row.id)}
    waiting = [one.address for one in asked if one.open and f"answer:{one.address}" not in posted]
    if found is None and waiting and not early:
        raise NotFound(
            f"run {row.id!r} has not reached a gate {gate!r}; it waits at {', '.join(waiting)}",
            remedy="Check the name. To answer a gate before the run reaches it: store.answer(..., early=True).",
        )
    if row.status == Status.CANCELLED and (found is None or not found.answered):
        raise NotFound(f"run {row.id!r} was cancelled and has no open gate", remedy="A cancelled run can be forked: store.fork(run_id).")
    if found is not None and found.cancelled:
        raise AlreadyAnswered(
            f"the program cancelled gate {address!r} of run {row.id!r}; the answer was not recorded",
            remedy=f"To answer it after all, fork the run before the gate: store.resume({row.id!r}, from_step={address!r}).",
        )
    if found is not None and found.answered and found.by == "timeout" and found.deadline is not None:
        raise _too_late(row, address, found.deadline)
    if found is not None and found.answered:
        raise AlreadyAnswered(
            f"gate {address!r} of run {row.id!r} was already answered with {found.answer!r:.100}", remedy=_other_answer(row, address)
        )
    if row.status in _OVER:
        raise NotFound(
            f"run {row.id!r} has ended ({row.status}) and has no open gate",
            remedy="A run that has ended can be forked: store.fork(run_id).",
        )
    if found is not None and found.schema is not None:
        value = plain_of(value)
    if store.mask is not None:
        value = decode(encode(store.mask(value, "answer")))  # the stored value must match, too: the run sees only that
    fault = check_stored(found.schema, value) if found is not None and found.schema is not None else None
    if fault:
        raise BadAnswer(
            f"the answer to gate {address!r} of run {row.id!r} is invalid: {fault}",
            remedy=f"See what the gate asks for: store.gates({row.id!r}).",
        )
    said = {"value": value, "by": check_text(by, "by")}
    now = clock.now_us()
    if found is not None and found.deadline is not None and now >= (to_us(found.deadline) or 0):
        raise _too_late(row, address, found.deadline)
    if not post(store, row, f"answer:{address}", said, now, "answer", now):
        raise AlreadyAnswered(f"gate {address!r} of run {row.id!r} already has an answer", remedy=_other_answer(row, address))


def _too_late(row: RunRow, address: str, deadline: datetime) -> AnswerTooLate:
    return AnswerTooLate(
        f"the deadline of gate {address!r} of run {row.id!r} passed at {iso(to_us(deadline) or 0)}; the answer was not recorded",
        remedy=_other_answer(row, address).replace("The first answer counts.", "The outcome of the deadline counts."),
    )


def _other_answer(row: RunRow, address: str) -> str:
    return f"The first answer counts. To try another one, fork the run before the gate: store.resume({row.id!r}, from_step={address!r})."


def _which(row: RunRow, asked: list[Gate], gate: str) -> tuple[str, Gate | None]:
    """Return the address that a name means: the newest question of that name, or the first one to come."""
    if not isinstance(gate, str) or not gate:
        raise InvalidArgument(f"gate must be a name or an address, got {gate!r:.60}", remedy="store.gates(run_id) shows the addresses.")
    exact = [g for g in asked if g.address == gate]
    if exact:
        return gate, exact[0]
    named = [g for g in asked if g.name == gate]
    outer = {g.address.rpartition("/")[0] for g in named if g.open}
    if len(outer) > 1:
        raise InvalidArgument(
            f"run {row.id!r} has several open gates {gate!r}", remedy=f"Use one of {', '.join(g.address for g in named)}."
        )
    waiting = [g for g in named if g.open] or named
    if waiting:
        return waiting[-1].address, waiting[-1]
    return (gate if "#" in gate or "?" in gate else f"{gate}#0"), None


def post(store: EngineStore, row: RunRow, name: str, said: Any, due: int | None, what: str, at: int | None = None) -> bool:
    if store.mask is not None:
        said = store.mask(said, what)
    return store.backend.post(new_message(store.backend, row, name, due, clock.now_us() if at is None else at, said, what), row.id)


def pause(store: EngineStore, run_id: str, reason: str | None) -> None:
    _stop(store, run_id, "pause", reason, Status.WAITING)


def cancel(store: EngineStore, run_id: str, reason: str | None) -> bool:
    """Cancel a run. Return False if the run has succeeded, which cannot be changed any more."""
    row = find_run(store.backend, run_id)
    if row.status in _OVER:
        return row.status == Status.CANCELLED
    _stop(store, run_id, "cancel", reason, Status.CANCELLED)
    return find_run(store.backend, row.id).status != Status.SUCCEEDED


def cancel_for_caller(store: EngineStore, row: RunRow, reason: str) -> None:
    """Cancel a child run whose caller cancelled the call. Does not wake the caller, which knows. A failed child without a retry stays failed."""
    if verified(row, store.backend.seal).status in _OVER:
        return
    if row.status == Status.FAILED and all(message.name != "retry" for message in store.backend.messages(row.id)):
        return
    _stop(store, row.id, "cancel", reason, Status.CANCELLED, wakes=False)


def obey_cancel(store: EngineStore, row: RunRow, message: Message) -> None:
    """Apply a cancel message that came when the run was being closed. Its sender has cancelled the children."""
    reason = content_of_message(store.backend, row, verified_message(row, message, store.backend.seal))
    _apply(store, row, "cancel", reason, Status.CANCELLED, wakes=True)


def _stop(store: EngineStore, run_id: str, name: str, reason: str | None, status: Status, wakes: bool = True) -> None:
    need(store.backend, Mailbox)
    row = find_run(store.backend, run_id)
    if name == "pause" and row.status in (*_OVER, Status.FAILED):
        message = f"run {row.id!r} has ended ({row.status}): it can no longer be paused"
        raise IllegalTransition(row.id, row.status, status, message)
    if store.mask is not None:
        reason = store.mask.text(reason)
    post(store, row, name, check_text(reason, "reason"), None, "reason")
    for _, child in store.backend.runs(
        Query(parent=row.id)
    ):  # before their caller: if this process dies here, cancelling the caller again also cancels them
        if child.parent_number == CHILD and child.status not in (*_OVER, Status.FAILED):
            _stop(store, child.id, name, reason, status, wakes=False)
    _apply(store, row, name, reason, status, wakes)


def _apply(store: EngineStore, row: RunRow, name: str, reason: str | None, status: Status, wakes: bool) -> None:
    """Apply a message if no process executes the run: no process would read it."""
    if row.status == status:
        return
    try:
        held = verified(store.keeper.acquire(row.id), store.backend.seal)
    except LeaseHeld:
        return
    try:
        if held.status in _OVER:  # it has ended in the meantime
            store.keeper.release(held)
            return
        chain = Chain(store.framer, held, held, store.backend.seal)
        if row.worker is not None:
            chain.entries([taken_over()])
        chain.status(status, reason=f"{name}: {reason}" if reason else name)
        if status == Status.CANCELLED and wakes:
            wake_caller(
                store, held
            )  # before and after the commit: this process may die between the two, and the caller may check too early
        store.backend.commit(chain.commit(worker=None, since=0))
        if status == Status.CANCELLED and wakes:
            wake_caller(store, held)
    except BaseException:
        store.keeper.release(held)
        raise
    finally:
        store.keeper.released()
    if status == Status.CANCELLED:
        wake_waiters(store.backend, held, caller=wakes)


def skip(store: EngineStore, run_id: str, step: str, result: Any) -> None:
    need(store.backend, Mailbox)
    row = find_run(store.backend, run_id)
    if row.status in _OVER:
        message = f"run {row.id!r} has ended ({row.status}): its steps can no longer be skipped"
        raise IllegalTransition(row.id, row.status, Status.RUNNING, message)
    records = _steps(store, row)
    address = address_named(step, (record.note for record in records))
    if _newest(records, address) == SUCCEEDED:
        raise InvalidArgument(
            f"step {address} of run {row.id!r} already has a result", remedy="Fork before it: store.resume(run, from_step=...)."
        )
    if not post(store, row, f"skip:{address}", result, None, "result"):
        raise InvalidArgument(f"step {address} of run {row.id!r} is already marked to be skipped")


def retry(store: EngineStore, run_id: str, step: str) -> None:
    need(store.backend, Mailbox)
    row = find_run(store.backend, run_id)
    records = _steps(store, row)
    address = address_named(step, (record.note for record in records))
    status = _newest(records, address)
    if status is None:
        raise NotFound(f"run {row.id!r} has no recorded step {address!r}", remedy="See store.steps(run_id).")
    if status != FAILED:
        raise InvalidArgument(
            f"step {address} of run {row.id!r} has {status}; only a failed step can be retried",
            remedy=f"To run it again, fork before it: store.resume({row.id!r}, from_step={address!r}).",
        )
    parts = address.split("/")
    around = ["/".join(parts[:count]) for count in range(1, len(parts))]
    for outer in around:
        if _newest(records, outer) == SUCCEEDED:
            raise InvalidArgument(
                f"step {address} of run {row.id!r} is inside {outer}, which has succeeded and is not called again",
                remedy=f"To run it again, fork before it: store.resume({row.id!r}, from_step={address!r}).",
            )
    for failed in (*around, address):  # a step inside another one is called only if that runs again
        if _newest(records, failed) == FAILED:
            post(store, row, f"again:{failed}", None, None, "nothing")


def _steps(store: EngineStore, row: RunRow) -> list[Record]:
    return [record for record in checked_from(store.backend, row, 1) if record.kind == Kind.STEP]


def _newest(records: list[Record], address: str) -> str | None:
    found = [record for record in records if record.note == address]
    return open_as(found[-1], StepEntry).status if found else None


def due(store: EngineStore, limit: int | None = None, outside: bool = False) -> list[str]:
    """Return the runs with a message that is due. A failed run is resumed only by its retry, not by an answer or a timer."""
    now = clock.now_us()
    return [run for run in store.backend.due(now, outside=outside) if _worth_waking(store, run, now)][:limit]


def due_or_damaged(store: EngineStore) -> list[str]:
    """Return the due runs outside of queues, whose limits only workers keep. Includes damaged runs: waking one reports that, and the others still run."""
    now = clock.now_us()
    found: list[str] = []
    for run in store.backend.due(now, outside=True):
        try:
            if not _worth_waking(store, run, now):
                continue
        except Damaged:
            pass
        found.append(run)
    return found


def _worth_waking(store: EngineStore, run: str, now: int) -> bool:
    row = store.backend.run(run)
    if row is None:
        return False
    messages = [message for message in store.backend.messages(run) if message.due is not None and message.due <= now]
    if any(message.key != verified(row, store.backend.seal).key for message in messages) and row == store.backend.run(run):
        raise DamagedRun(f"run {run!r} has a message for another run", remedy="Check the store: store.verify('full').")
    return any(message.name == "retry" or row.status != Status.FAILED for message in messages)


def wake(store: EngineStore, limit: int | None) -> list[Any]:
    """Resume due runs until there are none. Skips runs that another process executes, that are in a queue, or whose workflow is unknown here."""
    if limit is not None and (type(limit) is not int or limit < 0):
        raise InvalidArgument(f"limit must be an integer of at least 0, got {limit!r:.60}")
    outcomes: list[Any] = []
    seen: set[str] = set()
    while limit is None or len(outcomes) < limit:
        ready = [run for run in due_or_damaged(store) if run not in seen]
        if not ready:
            return outcomes
        for run in ready[: None if limit is None else limit - len(outcomes)]:
            seen.add(run)
            try:
                outcomes.append(workflow.finish(workflow.resume(store, run, None, "normal", False, {})))
            except (LeaseHeld, UnknownWorkflow, InvalidArgument, NotFound):
                continue  # another worker's, or opened with store.run(): the process that executes it finds the message
            except EverstepError as error:  # reported in its outcome; the other runs still wake up
                row = store.backend.run(run)  # unverified: the row itself may be damaged
                outcomes.append(Outcome(run, row.status if row is not None else Status.FAILED.value, error=error))
    return outcomes

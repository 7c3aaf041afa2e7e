"""Records a step: that it begins, how it ended, and what follows from that for the run.

`before_step` does everything before a step runs; `commit_step`, or that of `TaskWriter` in a task, makes its end durable; `after_step` does
everything after it.
"""

from __future__ import annotations

import os
from functools import partial
from threading import get_ident
from typing import TYPE_CHECKING, Any

from everstep.backends.contract.core import Commit, submit
from everstep.clock import clock
from everstep.codec.values import encode
from everstep.errors import EverstepError, Interrupted, StepFailed, StoreClosed
from everstep.runtime.engine.in_flight import Waiter
from everstep.runtime.steps.lookup import run_again
from everstep.runtime.steps.retry import chance
from everstep.runtime.steps.ticket import Ticket
from everstep.store.encryption.frames import content_of_message
from everstep.store.journal.entries import FAILED, INLINE, RUNNING, SUCCEEDED, StepEntry, StepFlags
from everstep.store.journal.results import result_body
from everstep.threads.at_once import at_once

if TYPE_CHECKING:
    from everstep.runtime.engine.attempt import Attempt
    from everstep.runtime.steps.inside import Work


def before_step(ticket: Ticket) -> tuple[Any] | None:
    """Do everything that comes before a step runs. Return (result,) if it need not run."""
    run = ticket.run
    run.live()
    if os.getpid() != run.pid:
        raise StoreClosed(f"run {run.id!r} was opened before this process was forked", remedy="Open the store again in the child.")
    run.boundary()
    if run.waits and get_ident() == run.owner:
        raise next(iter(run.waits.values()))  # a `finally` while the run is suspended: the program has not left its block yet
    if run.account.limited:
        afford(ticket)
    if run.messages.waiting and f"skip:{ticket.address}" in run.messages.waiting:
        return _skip(ticket)
    if ticket.options.at_most_once:
        instead = _begin_once(ticket)
        if instead is not None:
            return instead
    if not run.options.silent:
        run.saves.before_step()
    if run.options.hooks.wanted("before_step"):
        run.fire("before_step", step=ticket.address, attempt=ticket.attempt)
    run.steps.flight[ticket.address] = ticket
    return None


def _skip(ticket: Ticket) -> tuple[Any]:
    """Skip a step, as an operator asked."""
    run = ticket.run
    if ticket.options.transactional is not None:
        ticket.options.transactional.skip(ticket)
    message = run.messages.waiting.pop(f"skip:{ticket.address}")
    result = content_of_message(run.store.backend, run.live()[0], message)
    ticket.started = clock.now_us()
    mask = run.mask
    kept = result if mask is None else mask(result, f"result of {ticket.address}")
    form, data, chunks = result_body(kept, f"result of {ticket.address}", run.store.framer.inner.wrap)
    ticket.record(SUCCEEDED, form, data, None, {"skipped": True}, chunks)
    with run.writer.lock:
        run.messages.read.append(message.name)
    try:
        write(ticket, None)
    except BaseException:
        with run.writer.lock:
            run.messages.put_back_read(message)
        raise
    return (result,)


# Steps that run at most once.


def _begin_once(ticket: Ticket) -> tuple[Any] | None:
    """Record that an at-most-once step begins. If it began before and has no end, a person decides."""
    if ticket.unsure:
        from everstep.runtime.waits.gates import ask_about

        answer = ask_about(ticket)
        if answer != "run":
            return _settle_once(ticket, answer)
    _write_intent(ticket)
    return None


def _write_intent(ticket: Ticket) -> None:
    """Record that an attempt begins, and how many came before it."""
    writer = ticket.run.writer
    ticket.started = clock.now_us()
    ticket.record(RUNNING, flags={"tried": ticket.tried} if ticket.tried else {})

    def build() -> Commit:
        _take_up(ticket)
        return writer.note()

    writer.commit(build)
    ticket.run.messages.look_after_commit()


def _settle_once(ticket: Ticket, answer: str) -> tuple[Any]:
    run = ticket.run
    ticket.started = clock.now_us()
    if answer == "skip":
        ticket.record(SUCCEEDED, flags={"skipped": True})
        write(ticket, None)
        return (None,)
    error = StepFailed(ticket.address, "ProcessDied", "the process died inside the step, and the answer was not to run it again")
    ticket.record(FAILED, error=run.error_body(error))
    write(ticket, error)
    raise error


def try_again(ticket: Ticket) -> None:
    """Begin the next attempt at a step."""
    ticket.attempt += 1
    if ticket.options.at_most_once:
        _write_intent(ticket)


# Budgets.


def afford(ticket: Ticket) -> None:
    """Reserve a slot in the budgets, also in those of the callers, or stop the run."""
    if ticket.run.account.limited and not has_slot(ticket):
        raise over_budget(ticket)


def has_slot(ticket: Ticket) -> bool:
    if not ticket.reserved:
        ticket.over = ticket.run.account.reserve()
        ticket.reserved = ticket.over is None
    return ticket.reserved


def over_budget(ticket: Ticket) -> Interrupted:
    return ticket.run.interrupt(ticket.over or "budget")


# The record.


def succeeded(ticket: Ticket, result: Any) -> None:
    """Prepare the record of a result. If it cannot be stored, the step fails, which is recorded and raised."""
    run = ticket.run
    mask, name = run.mask, f"result of {ticket.address}"
    try:
        kept = result if mask is None else mask(result, name)
        form, data, chunks = result_body(kept, name, run.store.framer.inner.wrap)
    except EverstepError as error:
        ticket.undo(error)
        failed(ticket, error, final=True)
        write(ticket, error)
        raise
    run.branches.succeeded(ticket.address)
    ticket.record(SUCCEEDED, form, data, chunks=chunks)


def failed(ticket: Ticket, error: Exception, final: bool = False) -> float | None:
    """Prepare the record of a failed attempt; return the delay before the next one, or None if there is none."""
    run, retry = ticket.run, ticket.options.retry
    ticket.tried += 1
    delay = None
    if retry is not None and not final and retry.again(ticket.tried, error):
        delay = retry.delay_after(ticket.tried, chance())
    flags: StepFlags = {"tried": ticket.tried}
    if delay is not None:
        flags["next"] = clock.now_us() + int(delay * 1e6)
        inner = run.branches.unseen(f"{ticket.address}/")
        if inner:
            flags["inner"] = inner  # they made it fail: the next attempt runs them again
        run_again(run, inner)
    else:
        run.branches.failed(ticket.address, run.branch())
    ticket.record(FAILED, error=run.error_body(error), flags=flags)
    return delay


def remaining(ticket: Ticket) -> float:
    """Return what is left of a wait between two attempts that another process began."""
    found, ticket.found = ticket.found, None
    if found is None:
        return 0.0
    due, retry = found.entry.flags.get("next"), ticket.options.retry
    if due is None or retry is None:
        return 0.0
    return float(min(retry.max_delay, max(0.0, (due - clock.now_us()) / 1e6)))  # a changed clock must not make it wait for years


def drawn(run: Attempt, value: Any) -> StepEntry:
    """Return the record of a drawn value: a time, a random number."""
    now = clock.now_us()
    return StepEntry(SUCCEEDED, 1, b"", b"", INLINE, encode(value), None, now, now, 0, 0.0, run.worker, {"value": True})


# The commit.


async def commit_step(ticket: Ticket, due: tuple[str, str] | None) -> Commit:
    """Make the end of a step, or of one attempt, durable in this thread, with the checkpoint that is due. Never waits for an event loop."""
    run, writer = ticket.run, ticket.run.writer
    waiter: Waiter | None = None
    commit, before = None, run.row
    writer.lock.check()
    try:
        with writer.lock:
            before = run.row
            commit = build(ticket, due)
            if ticket.work is not None and ticket.work.inside:
                _commit_inside(ticket.work, run, commit)
            elif not writer.is_sync:
                writer.defer(commit)
            elif len(run.steps.flight) > 1:
                waiter = Waiter(partial(writer.note_messages, commit))
                submit(run.store.backend, commit, waiter.done)
            else:
                writer.note_messages(commit, run.store.backend.commit(commit))
        if waiter is not None:
            waiter.wait()
    except BaseException as trouble:
        writer.take_back(commit, before, trouble)
        run.steps.not_recorded(ticket, trouble)
        raise
    return commit


def build(ticket: Ticket, due: tuple[str, str] | None) -> Commit:
    """Return the commit that records a step, together with the checkpoint that is due."""
    run, saves = ticket.run, ticket.run.saves
    run.account.add(ticket.tokens, ticket.cost, ticket.reserved)
    ticket.reserved = False
    saves.steps_since += 1
    saves.last_step = ticket.address
    if ticket.entry is not None:
        _take_up(ticket)
    return run.writer.note() if due is None else saves.built(*due)


def _take_up(ticket: Ticket) -> None:
    """Put the record of a step into the commit that is being built, and into no other, whose failure could lose it unnoticed."""
    if ticket.entry is not None:
        ticket.run.writer.entries.append(ticket.entry)
        ticket.entry = None


def take_along(ticket: Ticket) -> None:
    """Add the record of a step to the next commit of the run: if that is lost, the next attempt does the same again."""
    with ticket.run.writer.lock:
        _take_up(ticket)


def _commit_inside(work: Work, run: Attempt, commit: Commit) -> None:
    """End the transaction of a step with a commit. It follows all earlier commits of this run, and none follows until its outcome is known."""
    if not run.writer.is_sync:
        run.writer.catch_up()
    run.writer.note_messages(commit, work.commit(commit))


def write(ticket: Ticket, error: Exception | None) -> None:
    """Make the end of a step durable in this thread, and do everything that follows."""
    after_step(ticket, error, at_once(commit_step(ticket, ticket.run.saves.due(ticket, error))))


def after_step(ticket: Ticket, error: Exception | None, commit: Commit) -> None:
    """Do everything that follows the recorded end of a step."""
    run = ticket.run
    ticket.seq = commit.run.head_seq
    run.steps.flight.pop(ticket.address, None)
    run.report.executed += 1
    if run.unsure:
        run.unsure = not run.steps.is_alone(ticket.address)
    if ticket.options.key is not None or "/" in ticket.address:
        run.steps.remember(ticket, commit)
    if commit.run.checkpoints != (commit.was.checkpoints if commit.was else 0):
        saving, ticket.saving = ticket.saving, None
        run.saves.made(commit, saving)
    else:
        run.messages.look_after_commit()
    if ticket.span is not None:
        ticket.end_span(error)
    hooks = run.options.hooks
    if hooks.wanted("after_step") or (error is not None and hooks.wanted("error")):
        status = "failed" if error else "succeeded"
        run.fire("after_step", step=ticket.address, status=status, attempt=ticket.attempt, tokens=ticket.tokens, cost=ticket.cost)
        if error is not None:
            run.fire("error", step=ticket.address, error=repr(error))
    run.boundary()

"""Ends an attempt at a run: decides how it ended, and makes the last commit.

`leave` does all of it: the status, the last checkpoint, the messages and the lease are in one commit. If the store failed under the attempt,
the run is released instead, see `release`. An error of the program takes precedence over one of Everstep.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from everstep.backends.contract.core import Commit
from everstep.clock import clock
from everstep.errors import Conflict, EverstepError, Interrupted, LostLease, Suspended, Waiting
from everstep.fields import Shape, field
from everstep.records import CHILD, Kind, Message, RunRow, Status
from everstep.runtime.engine.release import release_run
from everstep.runtime.engine.replay import taken_over
from everstep.runtime.engine.store_trouble import trouble_in
from everstep.runtime.limits import signals
from everstep.runtime.limits.deaths import DEAD
from everstep.runtime.steps.retry import chance
from everstep.runtime.waits.wake_callers import wake_waiters
from everstep.snapshot.saver import Saved, Saver
from everstep.store.chain import Chain
from everstep.store.encryption.frames import new_message
from everstep.store.journal.entries import EventEntry, pack
from everstep.store.load import checkpoint_record
from everstep.store.views import Checkpoint, asked_for, own_text

if TYPE_CHECKING:
    from everstep.runtime.engine.attempt import Attempt
    from everstep.store.store import BaseStore

_CHECKPOINT = Kind.CHECKPOINT.value
_ENDED = (Status.SUCCEEDED, Status.FAILED, Status.CANCELLED)
_EMPTY = b"\x90"


class Ending(Shape):
    """The content of an attempt's last commit. `status` None: the run keeps its status; `kind` None: without a checkpoint."""

    status: Status | None = None
    kind: str | None = None
    reason: str | None = None
    about: dict[str, Any] = field(default_factory=dict)
    messages: list[Message] = field(default_factory=list)
    chunks: list[tuple[bytes, bytes]] = field(default_factory=list)
    changes: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.reason:
            self.about["reason"] = self.reason

    def fail(self, error: dict[str, Any]) -> None:
        self.status, self.about = Status.FAILED, {"error": error}


def leave(run: Attempt, error: BaseException | None) -> None:
    """Record how an attempt ended, and close it."""
    error = end_of(run, stopped_by(error))
    _notice_trouble(run, error)
    run.saves.stop_clock()  # no other thread commits from here on
    try:
        if run.dry:
            return
        if run.failure is not None:
            release_run(run)
            _tell_broken(run, run.failure, error)
            return
        _end(run, error)
    except BaseException as trouble:
        release_run(run, trouble)
        if error is None or not isinstance(trouble, EverstepError):
            raise
        error.add_note(f"Everstep could not record the end of run {run.id!r}: {trouble}")
    finally:
        run.report.seconds = time.monotonic() - run.began  # final
        run.report.unused = run.replay.unused()
        run.close()
        run.fire("after_run", status=run.row.status if run.row else None)


def _end(run: Attempt, error: BaseException | None) -> None:
    if error is None and run.is_async and run.options.workflow:
        run.steps.cancel_left_behind()
    if run.steps.lost and (error is None or isinstance(error, (Exception, Waiting))):
        run.steps.cancel_lost()
    ending = ending_of(run, error)
    tell_caller(run, ending)
    built = _announce(run, ending)
    with run.writer.lock:  # a task that was left behind writes before this, or not at all
        _add_loose(run, ending)
        began = time.monotonic()
        made = end(run, ending, built)
        for call in run.at_end:
            call()
        run.saver = None
    tell_caller(run, ending)  # once more: a caller that checked between the two found the run open
    if made is not None:
        if run.observers.active:  # only now is it known that there is a checkpoint
            span = run.observers.begin("checkpoint", run.id, str(made.number), kind=ending.kind)
            span.started = began
            run.observers.end(span)
        run.fire("after_checkpoint", checkpoint=made)


def _tell_broken(run: Attempt, failure: EverstepError, error: BaseException | None) -> None:
    """Raise the store's failure, or add a note to the program's error; the end of this attempt was not recorded."""
    told = run.writer.is_sync and isinstance(
        failure, (LostLease, Conflict)
    )  # already raised by the call that got it; another process has the run
    if error is None and not told:
        raise failure
    if isinstance(error, Exception) and error is not failure:
        error.add_note(f"Run {run.id!r} was released and its end not recorded, because the store failed: {failure.message}")


def _notice_trouble(run: Attempt, error: BaseException | None) -> None:
    """Set the failure if the program ended with an error of the store itself: the run did not fail and can be resumed."""
    if run.failure is None and error is not None and not run.dry:
        run.failure = trouble_in(error, run.store.backend.url, run.trouble)


def ending_of(run: Attempt, error: BaseException | None) -> Ending:
    """Return what a program's way of leaving its run means for the run."""
    if error is None:
        ending = _succeeded(run)
    elif isinstance(error, Waiting):
        ending = Ending(Status.WAITING, "gate", error.what)
        _leave_behind(run, "another step waits")
        _sleep_well(run)
        if error.until is not None:
            ending.about["until"] = error.until
    elif isinstance(error, Interrupted):
        ending = _interrupted(run, error)
    elif isinstance(error, Exception):
        ending = _failed(run, error)
    else:
        _break_off(run, type(error).__name__)
        ending = Ending()
    if run.unsure and error is not None:
        run.writer.entries.append(taken_over())
    seconds = run.replay.used.seconds + time.monotonic() - run.began
    if run.options.budget is not None:
        ending.about["seconds"] = round(seconds, 3)
    if run.live()[0].parent_number == CHILD and ending.status is not None:
        ending.about["used"] = run.account.for_caller(run.options.driven).as_list()
    return ending


def stopped_by(error: BaseException | None) -> BaseException | None:
    """Return the exception that stops a run, if it came in a group of tasks together with others; otherwise the error itself."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    inner = [stopped_by(one) for one in error.exceptions]
    if any(not isinstance(one, (Exception, Suspended)) for one in inner):
        return error
    return next((one for one in inner if isinstance(one, Suspended)), error)


def end_of(run: Attempt, error: BaseException | None) -> BaseException | None:
    """Return what a program ended with. A program that waits or was stopped is unwound: its result or error after that is not its end.

    `gather(gate("a"), gate("b"), return_exceptions=True)` returns the waits as results, and a program that inspects them may raise an error.
    """
    if error is not None and not isinstance(error, Exception):
        return error
    return run.diverged or next(iter(run.waits.values()), None) or run.interrupted or error


def _sleep_well(run: Attempt) -> None:
    """Make sure that an answer to a gate that was not reached yet does not wake a run that waits for something else."""
    for name in list(run.messages.waiting):
        address = name.removeprefix("answer:")
        if name != address and address not in run.replay.requested and address not in run.replay.asked:
            run.messages.keep_asleep(name)


def tell_caller(run: Attempt, ending: Ending) -> None:
    """Wake the caller of a child run that was resumed on its own. An early wake-up is harmless: the caller checks again."""
    assert run.row is not None
    if not run.options.driven and ending.status not in (None, Status.WAITING):
        wake_caller(run.store, run.row)


def wake_caller(store: BaseStore, row: RunRow) -> None:
    """Have the caller of a child run check it again."""
    if row.parent is None or row.parent_number != CHILD:
        return
    caller = store.backend.run(row.parent)
    if caller is not None and caller.status in (Status.WAITING, Status.RUNNING):  # a running caller may be about to wait for this run
        now = clock.now_us()
        store.backend.post(new_message(store.backend, caller, f"child:{row.id}", now, now), caller.id)


def _succeeded(run: Attempt) -> Ending:
    ending = Ending(Status.SUCCEEDED, "final")
    tags = run.live()[0].tags
    if DEAD in tags:
        ending.changes["tags"] = tuple(tag for tag in tags if tag != DEAD)
    if run.options.workflow or run.options.framework:
        form, data, chunks = run.returned
        ending.about["result"] = [form, data]
        ending.chunks = chunks
    return ending


def _failed(run: Attempt, error: Exception) -> Ending:
    ending = Ending(Status.FAILED, "error", about={"error": run.error_body(error)})
    _leave_behind(run, "another step failed")
    retry = run.options.retry
    if retry is None:
        return ending
    row = run.live()[0]
    others = tuple(tag for tag in row.tags if tag != DEAD)
    dead = others != row.tags  # all attempts were used up, and the run was resumed by hand: it has as many again
    failures = ending.about["failures"] = 1 if dead else run.replay.failures + 1
    if retry.again(failures, error):
        due = clock.now_us() + int(retry.delay_after(failures, chance()) * 1e6)
        ending.messages.append(new_message(run.store.backend, row, "retry", due, clock.now_us(), failures))
        ending.about["retry_at"] = due
        if dead:
            ending.changes["tags"] = others
    elif not dead:
        ending.changes["tags"] = (*row.tags, DEAD)
    return ending


def _add_loose(run: Attempt, ending: Ending) -> None:
    """List the failed steps that a resume runs again: those whose failure no record can depend on."""
    if ending.status != Status.FAILED:
        return
    unseen, seen = run.branches.unseen(), run.branches.seen()
    if unseen:
        ending.about["steps"] = unseen
    inner = [step for step in seen if not any(one.startswith(f"{step}/") for one in seen)]  # a step around it only replays the handling
    if all(any(one.startswith(f"{outer}/") for one in inner) for outer in unseen):
        run.report.handled = inner


def _leave_behind(run: Attempt, reason: str) -> None:
    """Record the steps of tasks that were not awaited, or were cancelled: how far they got is unknown."""
    if run.steps.flight:
        run.writer.put("event", pack(EventEntry.of("interrupted", {"reason": reason, "steps": list(run.steps.flight)})), None)


def _interrupted(run: Attempt, error: Interrupted) -> Ending:
    _break_off(run, error.reason)
    if error.exit_code is not None:
        return Ending(None, "interrupt")  # the status stays running without an owner: the next process resumes it
    if error.reason.startswith("cancel"):
        return Ending(Status.CANCELLED, "interrupt", error.reason)
    return Ending(Status.WAITING, "interrupt", error.reason)


def _break_off(run: Attempt, reason: str) -> None:
    """Record which steps have no end: the next attempt cannot know how far they got."""
    steps = [*run.steps.flight, *run.steps.take_back_given_up()]
    if steps or run.options.workflow or not run.options.plain or run.root.counts:
        run.writer.put("event", pack(EventEntry.of("interrupted", {"reason": reason, "steps": steps})), None)
    run.fire("interrupt", reason=reason, steps=steps)


def _announce(run: Attempt, ending: Ending) -> Saved | None:
    """Call the hooks of the checkpoint that ends an attempt, if there will be one. Return what was built to find out, for `end`."""
    if ending.kind is None or run.failure is not None or not run.options.hooks.wanted("before_checkpoint"):
        return None
    saved, saver = None, run.live()[1]
    with run.writer.lock:
        new = True if run.writer.stale else _is_new(run, saver, ending.kind)
        if new is None:
            saved = _built(saver)
            new = saved is not None and not _is_empty(run, saved)
    if not new:
        return saved
    run.fire("before_checkpoint", kind=ending.kind)
    if saved is None:
        return None
    with run.writer.lock:
        again = _built(saver)
        if again is not None and again.delta == _EMPTY:
            return saved
        saver.lost()  # a hook changed the state: the whole state has to be saved
        return None


def _built(saver: Saver) -> Saved | None:
    try:
        return saver.build(thorough=True)
    except EverstepError:
        return None  # `end` gets the same error, and reports it


def end(run: Attempt, ending: Ending, saved: Saved | None = None) -> Checkpoint | None:
    """Write the last checkpoint, the status and the end of the lease, in one commit."""
    run.writer.catch_up()
    row, saver = run.live()
    if run.writer.stale:
        saver.lost()
        saved = None
    _find_resume_point(run, row)
    chain = Chain(run.store.framer, row, row, run.store.backend.seal)
    chain.entries(run.writer.entries)
    chain.chunks(ending.chunks)
    unsaved = _add_last_checkpoint(run, chain, saver, ending, saved)
    if ending.status is not None:
        chain.status(ending.status, **ending.about)
    commit = run.messages.carry(chain.commit(worker=None, since=0, **ending.changes))
    commit.messages = [*commit.messages, *ending.messages]
    waiting = run.store.backend.commit(commit).waiting
    run.writer.entries = []
    run.row = commit.run
    if ending.status in _ENDED and (waiting or _has_caller(run)):
        wake_waiters(run.store.backend, commit.run)
    elif ending.status not in _ENDED and waiting != _expected(run, commit):
        _obey_late(run)
    if unsaved is not None:
        raise unsaved
    return next((Checkpoint(r) for r in commit.records if r.kind == _CHECKPOINT), None)


def _expected(run: Attempt, commit: Commit) -> int:
    """Return how many messages there are after a commit, if none came since this attempt last checked."""
    return len(run.messages.waiting.keys() - set(commit.read) | {message.name for message in commit.messages})


def _obey_late(run: Attempt) -> None:
    """Apply a cancellation that came while the attempt ended: it found the lease held, and no process would read its message."""
    assert run.row is not None
    message = next((one for one in run.store.backend.messages(run.row.id) if one.name == "cancel"), None)
    if message is not None:
        from everstep.runtime.waits.control import obey_cancel

        obey_cancel(run.store, run.row, message)
        run.row = run.store.backend.run(run.row.id) or run.row


def _has_caller(run: Attempt) -> bool:
    """Whether this is a child run that was resumed on its own, so that its caller may wait for it."""
    row = run.live()[0]
    return row.parent is not None and row.parent_number == CHILD and not run.options.driven


def _find_resume_point(run: Attempt, row: RunRow) -> None:
    """Find the resume point: a signal may have come after the program's newest checkpoint was saved, and before that was noted here."""
    if signals.seen(run) is None or not row.checkpoints or run.saves.resume_point == row.checkpoints:
        return
    if asked_for(checkpoint_record(run.store.backend, row, row.checkpoints).own):
        run.saves.resume_point = row.checkpoints


def _add_last_checkpoint(run: Attempt, chain: Chain, saver: Saver, ending: Ending, saved: Saved | None) -> EverstepError | None:
    """Add the checkpoint that ends an attempt, unless the newest one has the same state. If the state cannot be stored, return the error."""
    if ending.kind is None:
        return None
    try:
        saved = saved or saver.build(thorough=True)
    except EverstepError as error:
        if ending.status == Status.SUCCEEDED:
            ending.fail(run.error_body(error))
        return error
    new = _is_new(run, saver, ending.kind)
    if new is False or (new is None and _is_empty(run, saved)):
        return None
    chain.checkpoint(saved, own=own_text(run.saves.header(ending.kind, None, False)))
    return None


def _is_new(run: Attempt, saver: Saver, kind: str) -> bool | None:
    """Whether a last checkpoint would contain something new; None if only building it can tell. For a workflow that was only replayed, False."""
    row = run.live()[0]
    if run.saves.steps_since or run.writer.entries:
        return True
    if run.options.workflow:
        return kind in ("final", "error") or not row.checkpoints
    if not row.checkpoints:
        return bool(saver.state != {})
    return None


def _is_empty(run: Attempt, saved: Saved) -> bool:
    return saved.delta == _EMPTY and saved.base is None and run.saves.resume_point == run.live()[0].checkpoints

"""Makes a workflow wait for an enqueued run. While it waits, the workflow takes no slot of its worker.

The wait is a step. While the awaited run has not ended, the step stops the workflow as a gate does. A message to the awaited run asks for
a wake-up at its end. A timer message to the workflow itself holds when the wait began and when it times out, and makes it check again now
and then: if a process dies between recording the end and sending the wake-up, the workflow still wakes up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from everstep.clock import clock
from everstep.durations import to_seconds
from everstep.errors import InvalidArgument, NotFound, Waiting
from everstep.fields import Shape
from everstep.records import Message, RunRow, Status
from everstep.runtime.engine.context import Frame, frame
from everstep.runtime.engine_store import EngineStore
from everstep.runtime.outcome import Outcome, recorded
from everstep.runtime.waits.wake_callers import request_wakeup
from everstep.store.encryption.frames import content_of_message
from everstep.store.journal.failures import rebuilt
from everstep.store.refs import find_run

if TYPE_CHECKING:
    from everstep.runtime.engine.attempt import Attempt

STEP = "wait:run"
_ENDED = (Status.SUCCEEDED, Status.FAILED, Status.CANCELLED)
_SOONEST = 5_000_000
_LATEST = 300_000_000
_NOT_SEEN = 1_000_000


class _Wait(Shape):
    """One wait, as its timer message stores it. `seen`: the awaited run existed once."""

    began: int
    deadline: int | None
    seen: bool


def is_over(store: EngineStore, id: str) -> bool:
    """Whether a run has ended. A failed run that will be retried has not: it still has its queue entry."""
    row = store.backend.run(id)
    return row is not None and row.status in _ENDED and (row.status != Status.FAILED or store.backend.queue_entry(id) is None)


def check_timeout(timeout: Any) -> float | None:
    """Return a timeout in seconds; raise if it is not a duration."""
    seconds: float | None = to_seconds(timeout, "timeout")
    if seconds is not None and (isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 <= seconds < 1e9):
        raise InvalidArgument(f"timeout must be a number of seconds of at least 0, got {timeout!r:.60}")
    return seconds


def wait_inside(here: Frame, id: str, timeout: float | None) -> Outcome[Any]:
    """Return the outcome of a run, recorded as a step of the workflow that waits for it."""
    return _outcome(here.run.called(False, STEP, _look, (id, timeout), {}))


def _look(id: str, timeout: float | None) -> dict[str, Any]:
    """Return the outcome of the run; stop the workflow if the run has not ended."""
    inside = frame.get()
    assert inside is not None
    assert inside.ticket is not None
    run, name = cast("Attempt", inside.run), f"timer:{inside.ticket.address}"
    store, now = run.store, clock.now_us()
    if run.dry:  # a validation writes nothing
        return _said(run, outcome_now(store, id))
    wait = _wait_of(run, run.messages.waiting.get(name)) or _Wait(now, None if timeout is None else now + int(timeout * 1e6), False)
    row = _register(store, run, id)
    if row is None and wait.seen:
        raise NotFound(f"run {id!r} was deleted while run {run.id!r} waited for it to end", remedy="Enqueue it again under another id.")
    wait.seen = row is not None
    if is_over(store, id) or (wait.deadline is not None and now >= wait.deadline):
        run.messages.take(name)
        return _said(run, outcome_now(store, id))
    _sleep(run, name, wait, now)
    raise Waiting(run.id, f"the end of run {id!r}", wait.deadline)


def _register(store: EngineStore, run: Attempt, id: str) -> RunRow | None:
    """Ask for a wake-up before checking the run: if it ends in between, either its process sees the message or the check sees the end."""
    row = store.backend.run(id)
    if row is not None and not is_over(store, id):
        try:
            request_wakeup(store.backend, run.live()[0], row)
        except NotFound:  # the run was deleted since it was read
            return None
    return row


def _sleep(run: Attempt, name: str, wait: _Wait, now: int) -> None:
    """Set the timer again: the longer the wait, the longer the interval between checks."""
    pause = min(max(now - wait.began, _SOONEST), _LATEST) if wait.seen else _NOT_SEEN
    due = now + pause if wait.deadline is None else min(now + pause, wait.deadline)
    with run.writer.lock:
        if name in run.messages.waiting:
            run.messages.read.append(name)
        run.messages.send(name, due, [wait.began, wait.deadline, wait.seen], now)


def _wait_of(run: Attempt, message: Message | None) -> _Wait | None:
    match content_of_message(run.store.backend, run.live()[0], message) if message is not None else None:
        case [int() as began, int() | None as deadline, bool() as seen]:
            return _Wait(began, deadline, seen)
    return None


def outcome_now(store: EngineStore, id: str) -> Outcome[Any]:
    """Return the current outcome of a run, which may not have ended."""
    if store.backend.run(id) is None:
        return Outcome(id, Status.QUEUED.value, reason="no worker has read the order yet, or its transaction was not committed")
    return recorded(store, find_run(store.backend, id))


def _said(run: Attempt, outcome: Outcome[Any]) -> dict[str, Any]:
    error = None if outcome.error is None else run.error_body(cast(Exception, outcome.error))
    return {"run": outcome.run, "status": str(outcome.status), "result": outcome.result, "error": error, "reason": outcome.reason}


def _outcome(said: dict[str, Any]) -> Outcome[Any]:
    error = None if said["error"] is None else rebuilt(said["error"], f"run {said['run']}")
    return Outcome(said["run"], said["status"], said["result"], error, said["reason"])

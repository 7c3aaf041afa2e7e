"""How an attempt at a run ends: the status, the last checkpoint, and what is to happen next. Decides; `Run` writes it down."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from everstep.clock import clock
from everstep.codec.values import encode
from everstep.errors import Interrupted, Suspended, Waiting
from everstep.fields import Shape, field
from everstep.records import CHILD, Letter, RunRow, Status
from everstep.runtime.engine.replay import taken_over
from everstep.runtime.limits.deaths import DEAD
from everstep.runtime.waits.gates import keep_asleep
from everstep.store.journal.entries import EventEntry, pack

if TYPE_CHECKING:
    from everstep.runtime.run import Run
    from everstep.store.store import BaseStore


class Ending(Shape):
    """What the last commit of an attempt says. `status` None: the run is left as it is; `kind` None: without a checkpoint."""

    status: Status | None = None
    kind: str | None = None
    reason: str | None = None
    about: dict[str, Any] = field(default_factory=dict)
    letters: list[Letter] = field(default_factory=list)
    chunks: list[tuple[bytes, bytes]] = field(default_factory=list)
    changes: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.reason:
            self.about["reason"] = self.reason

    def fail(self, error: dict[str, Any]) -> None:
        self.status, self.about = Status.FAILED, {"error": error}


def ending_of(run: Run, error: BaseException | None) -> Ending:
    """What the way in which a program left its run means for it."""
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
    if run._unsure and error is not None:
        run._entries.append(taken_over())
    seconds = run._played.used.seconds + time.monotonic() - run._began
    if run._mode.budget is not None:
        ending.about["seconds"] = round(seconds, 3)
    if run._open()[0].parent_number == CHILD and ending.status is not None:
        ending.about["used"] = run._account.for_caller(run._mode.driven).as_list()
    return ending


def stopped_by(error: BaseException | None) -> BaseException | None:
    """What stops a run, if that came out of a group of tasks together with others; otherwise the error itself."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    inner = [stopped_by(one) for one in error.exceptions]
    if any(not isinstance(one, (Exception, Suspended)) for one in inner):
        return error
    return next((one for one in inner if isinstance(one, Suspended)), error)


def end_of(run: Run, error: BaseException | None) -> BaseException | None:
    """What a program ended with. One that waits or was stopped is unwound: what it returns then, or raises because of that, is not its end.

    `gather(gate("a"), gate("b"), return_exceptions=True)` gives it the waits as results, and a program that looks at these may well raise an error.
    """
    if error is not None and not isinstance(error, Exception):
        return error
    return run._diverged or next(iter(run._waits.values()), None) or run._interrupted or error


def _sleep_well(run: Run) -> None:
    """An answer to a gate that has not been asked yet does not wake a run that waits for something else."""
    for name in list(run._letters):
        address = name.removeprefix("answer:")
        if name != address and address not in run._asked and address not in run._played.asked:
            keep_asleep(run, address)


def tell_caller(run: Run, ending: Ending) -> None:
    """A child run that was resumed by itself wakes the run that called it. Told too early is no harm: the caller looks again."""
    assert run._row is not None
    if not run._mode.driven and ending.status not in (None, Status.WAITING):
        wake_caller(run._store, run._row)


def wake_caller(store: BaseStore, row: RunRow) -> None:
    """Have the run that called a child look at it again."""
    if row.parent is None or row.parent_number != CHILD:
        return
    caller = store.backend.run(row.parent)
    if caller is not None and caller.status in (Status.WAITING, Status.RUNNING):  # one that runs may be about to wait for this one
        now = clock.now_us()
        store.backend.post(
            Letter.make(caller.key, f"child:{row.id}", now, now, store.framer.wrap(encode(None)), store.backend.seal), caller.id
        )


def _succeeded(run: Run) -> Ending:
    ending = Ending(Status.SUCCEEDED, "final")
    tags = run._open()[0].tags
    if DEAD in tags:
        ending.changes["tags"] = tuple(tag for tag in tags if tag != DEAD)
    if run._mode.workflow:
        form, data, chunks = run._returned
        ending.about["result"] = [form, data]
        ending.chunks = chunks
    return ending


def _failed(run: Run, error: Exception) -> Ending:
    ending = Ending(Status.FAILED, "error", about={"error": run._error_body(error)})
    _leave_behind(run, "another step failed")
    retry = run._mode.retry
    if retry is None:
        return ending
    row = run._open()[0]
    others = tuple(tag for tag in row.tags if tag != DEAD)
    dead = others != row.tags  # all tries were used up, and somebody resumed it: it has as many again
    failures = ending.about["failures"] = 1 if dead else run._played.failures + 1
    if retry.again(failures, error):
        due = clock.now_us() + int(retry.delay_after(failures, run._chance()) * 1e6)
        ending.letters.append(
            Letter.make(row.key, "retry", due, clock.now_us(), run._store.framer.wrap(encode(failures)), run._store.backend.seal)
        )
        ending.about["retry_at"] = due
        if dead:
            ending.changes["tags"] = others
    elif not dead:
        ending.changes["tags"] = (*row.tags, DEAD)
    return ending


def add_loose(run: Run, ending: Ending) -> None:
    """Name the failed steps that a resume runs again: those whose failure nothing recorded can depend on."""
    if ending.status != Status.FAILED:
        return
    unseen, seen = run._branches.unseen(), run._branches.seen()
    if unseen:
        ending.about["steps"] = unseen
    inner = [step for step in seen if not any(one.startswith(f"{step}/") for one in seen)]  # one around it only replays what it handled
    if all(any(one.startswith(f"{outer}/") for one in inner) for outer in unseen):
        run.report.handled = inner


def _leave_behind(run: Run, reason: str) -> None:
    """Tasks that were not waited for, or were cancelled: how far their steps came is not known."""
    if run._flight:
        run._put("event", pack(EventEntry.of("interrupted", {"reason": reason, "steps": list(run._flight)})), None)


def _interrupted(run: Run, error: Interrupted) -> Ending:
    _break_off(run, error.reason)
    if error.exit_code is not None:
        return Ending(None, "interrupt")  # still running, and nobody drives it: whoever comes next goes on
    if error.reason.startswith("cancel"):
        return Ending(Status.CANCELLED, "interrupt", error.reason)
    return Ending(Status.WAITING, "interrupt", error.reason)


def _not_given_up(run: Run) -> list[str]:
    """The steps that were cancelled while the whole program was stopped, and not yet recorded as cancelled: they run again."""
    with run._lock:
        dropped = {address: entry for address, entry in run._given_up.items() if any(entry is one for one in run._entries)}
        run._entries = [entry for entry in run._entries if not any(entry is one for one in dropped.values())]
    return list(dropped)


def _break_off(run: Run, reason: str) -> None:
    """Note which steps have no end: the next attempt cannot know how far they came."""
    steps = [*run._flight, *_not_given_up(run)]
    if steps or run._mode.workflow or not run._mode.plain or run._root.counts:
        run._put("event", pack(EventEntry.of("interrupted", {"reason": reason, "steps": steps})), None)
    run._fire("interrupt", reason=reason, steps=steps)

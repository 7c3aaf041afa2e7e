"""The common part of a run's handles, sync and async: the live state, facts about the run and the step, drawn values, events.

Nothing here is awaited: `run.Run` and `aio.AsyncRun` add steps, checkpoints and waits, which are.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, cast
from uuid import UUID, uuid4

from everstep.clock import clock
from everstep.codec.secret_bytes import refuse_secret
from everstep.errors import DamagedRecord, InvalidArgument, RunClosed
from everstep.generics import S
from everstep.runtime.engine import owner
from everstep.runtime.limits.children_used import know_children
from everstep.runtime.report import Report
from everstep.runtime.steps.options import check_name
from everstep.runtime.steps.record import drawn
from everstep.runtime.steps.retry import chance
from everstep.runtime.steps.ticket import Ticket, check_usage, step_key
from everstep.store.journal.entries import EventEntry, pack
from everstep.store.views import when

if TYPE_CHECKING:
    from everstep.runtime.engine.attempt import Attempt


class RunHandle(Generic[S]):
    """The part of a run's handle that is the same in tasks and in threads."""

    _attempt: Attempt

    def _repr_html_(self) -> str:
        from everstep.notebook import pairs

        run = self._attempt
        row, saver = run.row, run.saver or run.left
        if row is None or saver is None:
            return pairs("a run that is not open", [("id", run.given[0])])
        status = row.status if run.saver is None else "open"
        about = [("status", status), ("workflow", row.workflow), ("checkpoints", row.checkpoints), ("state", saver.state)]
        return pairs(f"run {row.id}", about)

    @property
    def id(self) -> str:
        """The id of the run, which never changes."""
        return self._attempt.id

    @property
    def state(self) -> S:
        """The live state. Change it as you like; `checkpoint` saves the changes. After the block it can still be read."""
        run = self._attempt
        saver = run.saver or run.left
        return cast(S, saver.state if saver is not None else run.live()[1].state)

    @state.setter
    def state(self, value: S) -> None:
        self._attempt.live()[1].state = value

    @property
    def number(self) -> int:
        """The number of the newest checkpoint, 0 if there is none yet."""
        run = self._attempt
        return (run.row if run.row is not None and run.left is not None else run.live()[0]).checkpoints

    @property
    def report(self) -> Report:
        """The steps that this attempt took from the journal and those it executed, so far."""
        run = self._attempt
        if run.saver is not None:
            run.report.seconds = time.monotonic() - run.began
        return run.report

    @property
    def used(self) -> dict[str, float]:
        """The seconds, steps, tokens and cost of the run and its children so far, over all attempts."""
        run = self._attempt
        if run.row is not None:
            know_children(run.store.backend, run.row, run.account)
        used, below = run.replay.used, run.account.below
        seconds = used.seconds + (time.monotonic() - run.began if run.saver is not None else 0.0)
        return {
            "seconds": seconds + below.seconds + run.account.lost, "steps": used.steps + below.steps, "tokens": used.tokens + below.tokens,
            "cost": used.cost + below.cost,
        }  # fmt: skip

    @property
    def step_key(self) -> str:
        """The idempotency key of the current step: the same for all its attempts, for the services that it calls."""
        return step_key(self._attempt.live()[0], _ticket_here(self._attempt).address)

    @property
    def step_attempt(self) -> int:
        """The number of the current step's attempt: 1 for the first known one, 2 for the second, …"""
        return _ticket_here(self._attempt).attempt

    @property
    def step_again(self) -> bool:
        """Whether a process that died may have run the current step before."""
        return _ticket_here(self._attempt).again

    def usage(self, tokens: int = 0, cost: float = 0.0) -> None:
        """Report, inside a step, what it used. It is recorded with the step and counts towards budgets."""
        check_usage(tokens, cost)
        ticket = _ticket_here(self._attempt)
        ticket.tokens += tokens
        ticket.cost += cost

    def now(self) -> datetime:
        """Return the time (UTC), recorded: a replay returns the same."""
        return cast(datetime, self._drawn("now", clock.now_us, when))

    def random(self) -> float:
        """Return a number from 0 up to 1, recorded: a replay returns the same."""
        return cast(float, self._drawn("random", chance, float))

    def uuid(self) -> UUID:
        """Return a random UUID, recorded: a replay returns the same."""
        return cast(UUID, self._drawn("uuid", lambda: str(uuid4()), UUID))

    def _drawn(self, name: str, draw: Callable[[], Any], made: Callable[[Any], Any]) -> Any:
        """Record a drawn value. Needs no commit of its own: everything that depends on the value is recorded after it, or not at all."""
        run = self._attempt
        run.live()
        address = run.address(run.here(), name)
        found = run.replay.recorded(address)
        if found is not None:
            try:
                return made(run.replay.loaded(found.entry))
            except (AttributeError, OSError, OverflowError, TypeError, ValueError) as error:
                raise DamagedRecord(self.id, found.record.seq, f"it does not contain a value of {address}") from error
        value = draw()
        if not run.dry:
            run.writer.put("step", pack(drawn(run, value)), address)
        return made(value)

    def progress(self, done: float, total: float) -> None:
        """Report how far the work is; the next checkpoint records it."""
        if not (isinstance(done, (int, float)) and isinstance(total, (int, float)) and 0 <= done <= total and total > 0):
            raise InvalidArgument(f"progress needs 0 <= done <= total and total > 0, got progress({done!r:.40}, {total!r:.40})")
        self._attempt.saves.progress = (done, total)

    def emit(self, name: str, **data: Any) -> None:
        """Write your own event to the journal, with the next commit; policies, hooks and the store's events name it `custom:name`."""
        check_name(name)
        self._record_event(f"custom:{name}", data)

    def milestone(self, name: str, note: str | None = None) -> None:
        """Report that a milestone was reached; a policy `on("milestone")` makes a checkpoint of it."""
        self._record_event("milestone", {"milestone": name, "note": note})

    def _record_event(self, event: str, data: dict[str, Any]) -> None:
        """Record an event of the program. A replayed event is not recorded twice."""
        run = self._attempt
        run.live()
        address = run.address(run.here(), f"event:{event}")
        if run.dry or address in run.replay.words:
            return
        mask = run.mask
        kept = data if mask is None else mask(data, f"event {event}")
        entry = EventEntry.of(event, kept, f"event {event}")
        refuse_secret(run.store.framer.inner.wrap, entry.data, kept, f"event {event}")
        run.writer.put("event", pack(entry), address)
        if run.options.policy.due(event, None, 0, 0.0) is not None:
            run.saves.save("automatic", f"on {event}", safe=True)
        run.fire(event if event.startswith("custom:") else f"custom:{event}", **data)


def _ticket_here(run: Attempt) -> Ticket:
    here = owner.within(run)
    if here is None or here.ticket is None:
        raise RunClosed("this code is not inside a step", remedy="Use it inside the function that run.step calls.")
    return here.ticket

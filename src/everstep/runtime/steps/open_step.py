"""Steps that other code executes: `run.begin` begins one, `complete` or `fail` records how it ended.

For adapters of frameworks that call tools and models themselves. The step has the address, replay, retries, budgets and crash semantics of
`run.step`; only its function is not called here. While it is open, it counts as running: if the process dies, the step has no end, and the
next attempt begins it again, with `again` True. Relies on `drive` and `record` for all of it.
"""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, Any

from everstep.errors import InvalidArgument, RunClosed
from everstep.runtime.steps.call import begin
from everstep.runtime.steps.drive import Ended, Ways, raised_or_given, record_failure, start_step
from everstep.runtime.steps.in_thread import IN_THREAD
from everstep.runtime.steps.lookup import end_turn
from everstep.runtime.steps.record import after_step, succeeded, try_again
from everstep.runtime.steps.ticket import Ticket, check_usage, step_key
from everstep.threads.at_once import at_once

if TYPE_CHECKING:
    from everstep.runtime.engine.attempt import Attempt


class _Begun:
    """The common part of both kinds. `ended` is the end of a step that did not have to run."""

    def __init__(self, ticket: Ticket, ways: Ways, ended: Ended | None):
        self._ticket = ticket
        self._ways = ways
        self._ended = ended
        self._is_open = ended is None
        self._claiming = Lock()

    def __repr__(self) -> str:
        return f"<everstep step {self.address!r} of run {self._ticket.run.name!r}{', open' if self._is_open else ''}>"

    @property
    def address(self) -> str:
        """The address of the step, as `store.steps` shows it."""
        return self._ticket.address

    @property
    def key(self) -> str:
        """A key that stays the same for all attempts at this step, for the services that it calls."""
        return step_key(self._ticket.run.live()[0], self._ticket.address)

    @property
    def attempt(self) -> int:
        """1 for the first known attempt, 2 for the second…"""
        return self._ticket.attempt

    @property
    def again(self) -> bool:
        """Whether a process that died may have run it before."""
        return self._ticket.again

    @property
    def recorded(self) -> bool:
        """Whether the step has already ended: do not run it, use `result`."""
        return self._ended is not None

    @property
    def result(self) -> Any:
        """The recorded result; raises the recorded error of a failed step."""
        if self._ended is None:
            raise InvalidArgument(
                f"step {self.address} has no recorded result: run it", remedy="Read result only if step.recorded is True."
            )
        result, error = self._ended
        return result if error is None else raised_or_given(self._ticket, error)

    def usage(self, tokens: int = 0, cost: float = 0.0) -> None:
        """Report what this attempt used. It is recorded with the step and counts towards budgets."""
        check_usage(tokens, cost)
        self._ticket.tokens += tokens
        self._ticket.cost += cost

    def _claim(self) -> None:
        """Let only one caller end the step, and only while its run is open."""
        run = self._ticket.run
        with self._claiming:
            if not self._is_open:
                raise InvalidArgument(f"step {self.address} has already ended", remedy="Call complete or fail once for each attempt.")
            if run.saver is None:
                raise RunClosed(
                    f"run {run.name!r} was closed before step {self.address} ended", remedy="Resume the run: the step begins again."
                )
            self._is_open = False

    async def _complete(self, result: Any) -> None:
        self._claim()
        ticket, ways = self._ticket, self._ways
        try:
            succeeded(ticket, result)
            after_step(ticket, None, await ways.commit(ticket, ticket.run.saves.due(ticket, None)))
            if ways.awaits:
                await ways.ended(ticket, None)
        except BaseException as stopped:
            ways.left(ticket, stopped)
            ticket.end_span(stopped)
            raise
        finally:
            _end(ticket)

    async def _fail(self, error: Exception) -> float | None:
        if not isinstance(error, Exception):
            raise InvalidArgument(f"error must be the exception that ended the step, got {error!r:.60}", remedy="Use step.fail(error).")
        self._claim()
        ticket, ways, delay = self._ticket, self._ways, None
        try:
            delay = await record_failure(ticket, ways, error)
            if delay is not None:
                await ways.afford(ticket)
                try_again(ticket)
                ticket.begin()
        except BaseException as stopped:
            delay = None
            ways.left(ticket, stopped)
            ticket.end_span(stopped)
            raise
        finally:
            if delay is None:
                _end(ticket)
        self._is_open = delay is not None
        return delay


class OpenStep(_Begun):
    """A step that its caller executes. Call `complete` or `fail` once for each attempt, from any thread."""

    def complete(self, result: Any) -> None:
        """Record that the step succeeded; when this returns, its result is durable."""
        at_once(self._complete(result))

    def fail(self, error: Exception) -> float | None:
        """Record that an attempt failed. Return the seconds to wait before the next one, which is then open; None if there is none."""
        return at_once(self._fail(error))


class AsyncOpenStep(_Begun):
    """An `OpenStep` whose `complete` and `fail` are awaited."""

    async def complete(self, result: Any) -> None:
        """Record that the step succeeded; see `OpenStep.complete`."""
        await self._complete(result)

    async def fail(self, error: Exception) -> float | None:
        """Record that an attempt failed; see `OpenStep.fail`."""
        return await self._fail(error)


def number(
    run: Attempt, name: Any, args: tuple[Any, ...], kwargs: dict[str, Any], key: Any, retry: Any, kind: str | None
) -> Ticket:  # fmt: skip
    """Number the call, and look up its record."""
    if not isinstance(name, str):
        raise InvalidArgument(f"the name of a step must be text, got {name!r:.60}", remedy='Use run.begin("name", *input).')
    given = {option: value for option, value in (("key", key), ("retry", retry), ("kind", kind)) if value is not None}
    return begin(run, run.here(), name, _run_elsewhere, args, kwargs, given)


def open_step(ticket: Ticket) -> OpenStep:
    """Begin a step in this thread."""
    return OpenStep(ticket, IN_THREAD, at_once(_begin(ticket, IN_THREAD)))


async def open_step_in_task(ticket: Ticket, ways: Ways) -> AsyncOpenStep:
    """Begin a step in this task."""
    return AsyncOpenStep(ticket, ways, await _begin(ticket, ways))


async def _begin(ticket: Ticket, ways: Ways) -> Ended | None:
    run = ticket.run
    try:
        if run.dry and ticket.done:
            return await _compared(ticket, ways)
        ended = await start_step(ticket, ways)
    except BaseException as stopped:
        ways.left(ticket, stopped)
        end_turn(ticket)
        raise
    if ended is not None:
        end_turn(ticket)
        return ended
    ticket.begin()
    run.steps.elsewhere[ticket.address] = ticket
    return None


async def _compared(ticket: Ticket, ways: Ways) -> Ended:
    """Compare only the input: a validation cannot run the step."""
    from everstep.runtime.steps import validate

    validate.skipped(ticket)
    await ways.recorded_turn(ticket)
    return validate.GIVEN


def _end(ticket: Ticket) -> None:
    ticket.run.steps.elsewhere.pop(ticket.address, None)
    end_turn(ticket)


def _run_elsewhere(*args: Any, **kwargs: Any) -> None:
    """Take the role of the function of a step that other code executes: it accepts any input."""

"""Steps: named calls whose result is recorded once.

`begin` gives a call its address and looks it up in what was recorded; a ticket that is not done is then run, by `drive` in a
thread or by `asteps.adrive` in a task, and what came of it is recorded in one commit. Numbers are given at `begin`, in the order of the
program, before anything runs at the same time.
"""

from __future__ import annotations

import inspect
import threading
import time
from collections.abc import Callable, Iterable
from contextvars import copy_context
from hashlib import sha256
from threading import get_ident
from typing import TYPE_CHECKING, Any

from everstep.clock import clock
from everstep.codec.values import encode
from everstep.errors import EverstepError, InvalidArgument, Reentered, StepTimeout
from everstep.runtime.engine.context import Frame, frame
from everstep.runtime.steps.options import ABSENT, PLAIN, StepOptions, check_key, check_name, name_for, shape_of, with_options
from everstep.store.chain import Entry
from everstep.store.journal.entries import FAILED, INLINE, NOTHING, RUNNING, SUCCEEDED, Recorded, StepEntry, StepFlags, pack
from everstep.store.journal.results import SHORT_INPUT, Chunks, input_of, preview, result_body, show_input

if TYPE_CHECKING:
    from concurrent.futures import Future  # imports logging, which takes longer than all of this

    from everstep.runtime.engine.driver import Driver
    from everstep.runtime.steps.inside import Inside, Work


class Unrecorded(Exception):
    """Carries an error past those of a function: the step did not fail, it could not be recorded."""

    def __init__(self, error: Exception):
        self.error = error


class Ticket:
    """One call of a step on its way."""

    __slots__ = (
        "address",
        "again",
        "args",
        "attempt",
        "cost",
        "digest",
        "done",
        "entry",
        "found",
        "function",
        "inner",
        "input",
        "kind",
        "kwargs",
        "options",
        "over",
        "reserved",
        "run",
        "started",
        "tokens",
        "tried",
        "turn",
        "unsure",
        "work",
    )  # fmt: skip

    def __init__(
        self, run: Driver, function: Callable[..., Any], address: str, args: tuple[Any, ...], kwargs: dict[str, Any], options: StepOptions
    ):
        self.run = run
        self.function = function
        self.address = address
        self.args = args
        self.kwargs = kwargs
        self.options = options
        self.kind = options.kind
        self.digest = b""
        self.input: bytes | str = b""
        self.found: Recorded[StepEntry] | None = None
        self.done = False  # a recorded end was found: a result, or an error that the program saw
        self.attempt = 1
        self.tried = 0  # attempts of this round of retries
        self.again = False
        self.unsure = False  # it was written down that it began, and not how it ended
        self.started = 0
        self.tokens = 0
        self.cost = 0.0
        self.entry: Entry | None = None  # how it ended, for the commit that records it and for no other
        self.turn: Turn | None = None  # others of the same key wait for it
        self.inner: list[str] = []  # the steps inside of it that have ended, which its next attempt asks for again
        self.work: Work | None = None  # the transaction of this attempt
        self.reserved = False  # it has its place in the budget
        self.over: str | None = None  # or the budget that had none

    @property
    def played(self) -> bool:
        """Whether the recorded end is all there is to it."""
        return self.done and not self.run._dry

    def given(self) -> tuple[Any, ...]:
        """What the function gets."""
        return self.args if self.work is None else (self.work.connection, *self.args)

    def undo(self, error: BaseException) -> None:
        """Roll back the transaction, if there is one. After a timeout, or in a task that was cancelled, a thread may still be at it."""
        work, self.work = self.work, None
        if work is not None:
            work.rollback(abandoned=not isinstance(error, Exception) or isinstance(error, StepTimeout))

    def cancelled(self) -> Entry:
        """The record of a step that the program cancelled."""
        error = {"type": "asyncio.CancelledError", "message": "the program cancelled the step", "traceback": ""}
        self.record(FAILED, error=error, flags={"tried": self.tried, "cancelled": True})
        entry, self.entry = self.entry, None
        assert entry is not None
        return entry

    def record(
        self, status: str, form: int = NOTHING, result: bytes | None = None, error: dict[str, Any] | None = None,
        flags: StepFlags | None = None, chunks: Chunks | None = None,
    ) -> None:  # fmt: skip
        """Put up what is to be recorded of this step."""
        step = StepEntry(
            status, self.attempt, self.digest, self.input, form, result, error, self.started, clock.now_us(), self.tokens, self.cost,
            self.run._worker, flags or {},
        )  # fmt: skip
        self.entry = Entry("step", pack(step), self.address, chunks or ())


def begin(
    run: Driver, here: Frame, name: Any, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], given: dict[str, Any]
) -> Ticket:
    """Number a call, and look up what was recorded of it."""
    plain, options, title, key, args = _resolve(name, function, args, given)
    return _look_up(Ticket(run, plain, _number(run, here, title, key), args, kwargs, options))


def call(run: Driver, here: Frame, name: Any, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], given: dict[str, Any]) -> Any:
    """Number a call and run it to its end, in this thread. The short way to a recorded result is what replay spends its time on."""
    plain, options, title, key, args = _resolve(name, function, args, given)
    address = _number(run, here, title, key)
    found = run._played.entries.get(address)
    if found is not None and key is None and not options.ignore and not run._dry:
        step = found.entry
        data = (
            _input_of(address, args, kwargs) if run._mask is None else _masked_input(run, shape_of(plain, options), address, args, kwargs)
        )
        if step.status == SUCCEEDED and step.digest == sha256(data).digest()[:16]:
            run._asked.add(address)
            run._kept(address, step)
            return run._loaded(step)
    return drive(_look_up(Ticket(run, plain, address, args, kwargs, options)))


def _resolve(name: Any, function: Any, args: tuple[Any, ...], given: dict[str, Any]) -> Any:
    """What a call means: the function itself, how it is to be run, its name, its key, and its arguments."""
    if not isinstance(name, str):
        args = args if function is ABSENT else (function, *args)
        name, function = None, name
    if not callable(function):
        raise no_function(name, function)
    plain, options = getattr(function, "__everstep__", None) or (function, PLAIN)
    if not isinstance(options, StepOptions):
        plain, options = function, PLAIN
    if given:
        options = with_options(options, given)
    title = check_name(name) if name is not None else name_for(plain, options)
    return plain, options, title, None if options.key is None else check_key(options.key), args


def no_function(name: Any, function: Any) -> InvalidArgument:
    """The error of a step that has nothing to call."""
    said = f"a step must be a function, got {function!r:.60}"
    if function is ABSENT:
        said = f"run.step must get a function, got {'nothing' if name is None else f'only the name {name!r:.60}'}"
    return InvalidArgument(said, remedy='Use run.step("name", function, *args) or run.step(function, *args).')


def _number(run: Driver, here: Frame, title: str, key: str | None) -> str:
    if run._numbering.owned():
        run._numbering.check()  # interrupted in the middle of this: two calls would get one number
    with run._numbering:
        if run._async or not run._branches.ask_alone():
            run._branches.ask(run._branch())
        return here.address(title, key)


def _look_up(ticket: Ticket) -> Ticket:
    _identify(ticket)
    _find(ticket)
    return ticket


_UNSTORABLE = "Give the step a key= that says what it is known by, leave the argument out with ignore=, or make it storable."


def _input_of(address: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
    try:
        return input_of(address, args, kwargs)
    except EverstepError as error:
        error.remedy = _UNSTORABLE
        raise


def _masked_input(run: Driver, function: Any, address: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
    args, kwargs = _masked(run, function, address, args, kwargs)
    return _input_of(address, args, kwargs)


def _masked(run: Driver, function: Any, address: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """An input as it is stored, where what is stored is masked: a resumed run, which sees the masked values, asks for the same."""
    mask = run._mask
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
        if ticket.run._mask is not None:
            args, kwargs = _masked(ticket.run, shape, ticket.address, args, kwargs)
        data = _input_of(ticket.address, args, kwargs)
    except EverstepError:
        if options.key is None:
            raise
        return  # the program says what the step is known by
    if options.key is None:
        ticket.digest = sha256(data).digest()[:16]
    ticket.input = data if len(data) <= SHORT_INPUT else preview(data, args, kwargs)


def _find(ticket: Ticket) -> None:
    run = ticket.run
    found = run._recorded(ticket.address)
    if found is None:
        ticket.again = run._unsure or ticket.address in run._played.doubtful
        return
    step = found.entry
    status, flags, ticket.attempt = step.status, step.flags, step.attempt
    if run._dry and flags.get("again") and step.error is not None:
        status = FAILED  # a resume runs it again, but it did fail: validation compares that
        found.entry = step._replace(status=FAILED)
    elif is_other_input(ticket, step) and not run._dry:
        raise run._diverge(ticket.address, show_input(step.input), show_input(ticket.input))
    if status == RUNNING or (status == FAILED and flags.get("next") is not None):
        ticket.unsure = not flags.get("again") and status == RUNNING
        cut_off = ticket.unsure or bool(flags.get("cancelled"))  # how far it came is not known
        ticket.again = cut_off or run._unsure or ticket.address in run._played.doubtful
        ticket.attempt += 1
        ticket.tried = 0 if flags.get("again") else flags.get("tried", 0 if status == RUNNING else found.attempts + 1)
        ticket.found = found if not flags.get("again") else None
        _redo(run, flags.get("inner", ()))
        return
    ticket.found, ticket.done = found, True


def is_other_input(ticket: Ticket, step: StepEntry) -> bool:
    """Whether a recorded step had another input than this call."""
    if not step.digest or step.digest == ticket.digest or not ticket.digest or step.status == RUNNING:
        return False
    return ticket.address not in ticket.run._accept and not _same_call(ticket, step.digest)


def _same_call(ticket: Ticket, digest: bytes) -> bool:
    """Whether a recorded input is that of this call, written in another way."""
    if ticket.options.ignore:
        return False  # all of it was given by name
    from everstep.runtime.steps.spelling import spellings

    run, shape = ticket.run, shape_of(ticket.function, ticket.options)
    ways = spellings(shape, ticket.args, ticket.kwargs)
    if run._mask is not None:
        ways = (_masked(run, shape, ticket.address, *way) for way in ways)
    return any(sha256(_input_of(ticket.address, *way)).digest()[:16] == digest for way in ways)


def _redo(run: Driver, addresses: Iterable[str]) -> None:
    for address in addresses:
        run._played.forget(address)


def recorded_outcome(ticket: Ticket) -> Any:
    """What was recorded: the result, or the error raised again."""
    assert ticket.found is not None
    ticket.run._kept(ticket.address, ticket.found.entry)
    return given_again(ticket)


def given_again(ticket: Ticket) -> Any:
    """The recorded result, or the recorded error raised again, without counting it as kept."""
    run, found = ticket.run, ticket.found
    assert found is not None
    step = found.entry
    if step.status == FAILED:
        if step.flags.get("cancelled"):
            raise run._diverge(ticket.address, "a step that the program cancelled", "a step that it does not cancel")
        from everstep.store.journal.failures import rebuilt  # only when something failed

        run._branches.failed(ticket.address, run._branch())
        raise rebuilt(step.error or {}, ticket.address)
    return run._loaded(step)


def drive(ticket: Ticket) -> Any:
    """Run a step to its end, in this thread."""
    if ticket.played:
        return recorded_outcome(ticket)
    if ticket.run._dry:
        from everstep.runtime.steps import validate

        return validate.check(ticket)
    while (other := take_turn(ticket)) is not None:
        other.wait()
    try:
        return _drive(ticket)
    finally:
        end_turn(ticket)


class Turn:
    """The call of a step with a key that is running, and for which others of the same key wait."""

    __slots__ = ("future", "thread")

    def __init__(self, future: Future[None]):
        self.future = future
        self.thread = get_ident()

    def wait(self) -> None:
        if self.thread == get_ident():
            raise Reentered("a step with the same key is running in this thread; waiting for it would never end. Nothing was recorded")
        self.future.result()


def take_turn(ticket: Ticket) -> Turn | None:
    """What a step has to wait for: another call of the same key that is running, whose result it then gets."""
    run = ticket.run
    if ticket.options.key is None or ticket.done:
        return None
    from concurrent.futures import Future

    with run._numbering:
        other = run._turns.get(ticket.address)
        if other is None:
            run._turns[ticket.address] = ticket.turn = Turn(Future())
    return other


def end_turn(ticket: Ticket) -> None:
    """A step is over: its inner ones are not asked for again, and others of its key may look for its result."""
    run, turn = ticket.run, ticket.turn
    run._give_back_place(ticket)
    for address in ticket.inner:
        run._played.entries.pop(address, None)
    if turn is not None:
        ticket.turn = None
        with run._numbering:
            run._turns.pop(ticket.address, None)
        turn.future.set_result(None)


def look_again(ticket: Ticket) -> None:
    """A step with a key may have been recorded between its call and its turn."""
    if ticket.turn is not None and ticket.found is None:
        _find(ticket)


def _drive(ticket: Ticket) -> Any:
    run = ticket.run
    look_again(ticket)
    if ticket.played:
        return recorded_outcome(ticket)
    attempt = call_once if ticket.options.transactional is None else _transaction(ticket)
    instead = run._before_step(ticket)
    if instead is not None:
        return instead[0]
    while True:
        wait = remaining(ticket)
        if wait:
            run._nap(wait)
        try:
            result = attempt(ticket)
        except Unrecorded as trouble:
            run._not_recorded(ticket, trouble.error)
            raise trouble.error  # noqa: B904 - it has its own cause
        except Exception as error:
            run._refuse_unwound(ticket)
            run._refuse_trouble(error)
            delay = failed(ticket, error)
            run._write_step(ticket, error)
            if delay is None:
                raise
            run._nap(delay)
            run._afford(ticket)
            run._try_again(ticket)
        except BaseException as error:
            run._break_off(ticket, error)
            raise
        else:
            if ticket.options.transactional is None:  # otherwise it is recorded already
                run._refuse_unwound(ticket)
                succeeded(ticket, result)
                run._write_step(ticket, None)
            return result


def _transaction(ticket: Ticket) -> Callable[[Ticket], Any]:
    """What makes an attempt at a transactional step, and records it with that."""
    inside: Inside = ticket.options.transactional
    inside.check(ticket)
    return inside.attempt


def remaining(ticket: Ticket) -> float:
    """What is left of a wait between two attempts that another process began."""
    found, ticket.found = ticket.found, None
    if found is None:
        return 0.0
    due, retry = found.entry.flags.get("next"), ticket.options.retry
    if due is None or retry is None:
        return 0.0
    return float(min(retry.max_delay, max(0.0, (due - clock.now_us()) / 1e6)))  # a clock that was set must not make it wait for years


def call_once(ticket: Ticket) -> Any:
    """Make one attempt at a step, in this thread."""
    ticket.started, ticket.tokens, ticket.cost = clock.now_us(), 0, 0.0
    ticket.run._flight[ticket.address] = ticket
    inside = Frame(ticket.run, ticket.run, f"{ticket.address}/", None, ticket)
    token = frame.set(inside)
    try:
        if ticket.options.timeout is not None:
            return _call_limited(ticket, ticket.options.timeout, inside)
        result = ticket.function(*ticket.given(), **ticket.kwargs)
        return _finish(result) if inspect.iscoroutine(result) else result
    finally:
        frame.reset(token)


def _finish(result: Any) -> Any:
    """A coroutine in a program that has no loop."""
    import asyncio

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(result)
    result.close()
    raise InvalidArgument(
        "an async function cannot be a step of a run that was opened without async",
        remedy="Open it with: async with store.run(id) as run, and await run.step(...).",
    )


def _call_limited(ticket: Ticket, timeout: float, inside: Frame) -> Any:
    """Python cannot stop a thread: after the timeout the call is left to itself, and what it returns is thrown away."""
    box: list[tuple[bool, Any]] = []

    def work() -> None:
        try:
            result = ticket.function(*ticket.given(), **ticket.kwargs)
            box.append((True, _finish(result) if inspect.iscoroutine(result) else result))
        except BaseException as error:  # noqa: BLE001 - it is raised where the step was called
            box.append((False, error))

    thread = threading.Thread(target=copy_context().run, args=(work,), name=f"everstep-{ticket.address}", daemon=True)
    thread.start()
    until = time.monotonic() + timeout
    while thread.is_alive() and (left := until - time.monotonic()) > 0:
        thread.join(min(left, 0.5))  # a signal that comes just before a wait is heard after it
    if not box:
        inside.dead = True
        ticket.run._lose_children(ticket)
        raise StepTimeout(f"step {ticket.address} took longer than {timeout:g} s")
    good, value = box[0]
    if good:
        return value
    raise value


def succeeded(ticket: Ticket, result: Any) -> None:
    """Put up the record of a result."""
    run = ticket.run
    mask = run._mask
    try:
        kept = result if mask is None else mask(result, f"result of {ticket.address}")
        form, data, chunks = result_body(kept, f"result of {ticket.address}", run._store.framer.wrap)
    except EverstepError as error:
        ticket.undo(error)
        failed(ticket, error, final=True)
        run._write_step(ticket, error)
        raise
    run._branches.succeeded(ticket.address)
    ticket.record(SUCCEEDED, form, data, chunks=chunks)


def failed(ticket: Ticket, error: Exception, final: bool = False) -> float | None:
    """Put up the record of a failed attempt; the delay before the next one, or None if there is none."""
    run, retry = ticket.run, ticket.options.retry
    ticket.tried += 1
    delay = None
    if retry is not None and not final and retry.again(ticket.tried, error):
        delay = retry.delay_after(ticket.tried, run._chance())
    flags: StepFlags = {"tried": ticket.tried}
    if delay is not None:
        flags["next"] = clock.now_us() + int(delay * 1e6)
        inner = run._branches.unseen(f"{ticket.address}/")
        if inner:
            flags["inner"] = inner  # they are why it failed: the next attempt runs them again
        _redo(run, inner)
    else:
        run._branches.failed(ticket.address, run._branch())
    ticket.record(FAILED, error=run._error_body(error), flags=flags)
    return delay


def value_entry(run: Driver, value: Any) -> StepEntry:
    """The record of a value that was drawn: time, chance."""
    now = clock.now_us()
    return StepEntry(SUCCEEDED, 1, b"", b"", INLINE, encode(value), None, now, now, 0, 0.0, run._worker, {"value": True})

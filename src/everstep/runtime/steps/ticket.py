"""One call of a step, from its number to its record. No I/O."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from threading import get_ident
from typing import TYPE_CHECKING, Any

from everstep.clock import clock
from everstep.errors import InvalidArgument, Reentered, StepTimeout
from everstep.records import RunRow
from everstep.runtime.steps.options import StepOptions
from everstep.store.chain import Entry
from everstep.store.journal.entries import FAILED, NOTHING, Recorded, StepEntry, StepFlags, pack_step
from everstep.store.journal.results import Chunks

if TYPE_CHECKING:
    from concurrent.futures import Future  # imports logging, which takes longer than all the rest

    from everstep.runtime.engine.attempt import Attempt
    from everstep.runtime.observe import Span
    from everstep.runtime.steps.inside import Work


def step_key(row: RunRow, address: str) -> str:
    """Return a key that is the same for every attempt at a step of a run."""
    return sha256(row.key + address.encode()).hexdigest()[:32]


def check_usage(tokens: Any, cost: Any) -> None:
    if not isinstance(tokens, int) or not isinstance(cost, (int, float)) or not 0 <= tokens < 2**53 or not 0 <= cost < 1e12:
        raise InvalidArgument(f"tokens and cost must be numbers of at least 0, got tokens={tokens!r:.40}, cost={cost!r:.40}")


class Unrecorded(Exception):
    """Carries an error past those of a function: the step did not fail, it could not be recorded."""

    def __init__(self, error: Exception):
        self.error = error


class Raised(Exception):
    """Carries a StopIteration of the program's function, which Python does not let out of a coroutine."""

    def __init__(self, error: StopIteration):
        self.error = error


def raised(error: Exception) -> Exception:
    """Return the error itself, if a coroutine had to carry it."""
    return error.error if isinstance(error, Raised) else error


class Turn:
    """The running call of a step with a key, for which other calls with the same key wait."""

    __slots__ = ("future", "thread")

    def __init__(self, future: Future[None]):
        self.future = future
        self.thread = get_ident()

    def wait(self) -> None:
        if self.thread == get_ident():
            raise Reentered("a step with the same key is running in this thread, so waiting for it would never end. Nothing was recorded")
        self.future.result()


class Ticket:
    """One call of a step. `run` is the attempt that it belongs to."""

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
        "saving",
        "seq",
        "span",
        "started",
        "tokens",
        "tried",
        "turn",
        "unsure",
        "work",
    )  # fmt: skip

    def __init__(
        self, run: Attempt, function: Callable[..., Any], address: str, args: tuple[Any, ...], kwargs: dict[str, Any], options: StepOptions
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
        self.tried = 0  # attempts in this round of retries
        self.again = False
        self.unsure = False  # its beginning is recorded, but not its end
        self.started = 0
        self.tokens = 0
        self.cost = 0.0
        self.entry: Entry | None = None  # its end, for the commit that records it and for no other
        self.turn: Turn | None = None  # other calls with the same key wait for it
        self.inner: list[str] = []  # the ended steps inside of it, which its next attempt calls again
        self.work: Work | None = None  # the transaction of this attempt
        self.reserved = False  # whether it has a slot in the budget
        self.span: Span | None = None  # the observers' span of this attempt
        self.saving: Span | None = None  # the observers' span of the checkpoint that goes with its end
        self.seq = 0  # the sequence number of its end in the journal
        self.over: str | None = None  # the budget that was used up, if it has no slot

    @property
    def played(self) -> bool:
        """Whether the recorded end only has to be replayed."""
        return self.done and not self.run.dry

    @property
    def is_child(self) -> bool:
        """Whether it executes a child run."""
        return getattr(self.function, "is_child", False)

    @property
    def waits_for_turn(self) -> bool:
        """Whether another call of the same key is running, whose result this one gets."""
        return self.turn is None and self.options.key is not None and not self.done

    def given(self) -> tuple[Any, ...]:
        """Return the arguments of the function."""
        return self.args if self.work is None else (self.work.connection, *self.args)

    def begin(self) -> None:
        """Begin an attempt."""
        self.started, self.tokens, self.cost = clock.now_us(), 0, 0.0
        run = self.run
        run.steps.flight[self.address] = self
        if run.observers.active:
            self.span = run.observers.begin("step", run.id, self.address, self.attempt, self.kind)

    def end_span(self, error: BaseException | None) -> None:
        """Tell observers that the attempt has ended, and that the checkpoint that should go with it was not made."""
        span, self.span = self.span, None
        saving, self.saving = self.saving, None
        if saving is not None and error is not None:
            self.run.saves.not_made(saving, error)
        if span is not None:
            span.tokens, span.cost = self.tokens, self.cost
            self.run.observers.end(span, error=error)

    def undo(self, error: BaseException) -> None:
        """Roll back the transaction, if there is one. After a timeout or a cancelled task, a thread may still be using it."""
        work, self.work = self.work, None
        if work is not None:
            work.rollback(abandoned=not isinstance(error, Exception) or isinstance(error, StepTimeout))

    def cancelled(self) -> Entry:
        """Return the record of a step that the program cancelled."""
        error = {"type": "asyncio.CancelledError", "message": "the program cancelled the step", "traceback": ""}
        self.record(FAILED, error=error, flags={"tried": self.tried, "cancelled": True})
        entry, self.entry = self.entry, None
        assert entry is not None
        return entry

    def record(
        self, status: str, form: int = NOTHING, result: bytes | None = None, error: dict[str, Any] | None = None,
        flags: StepFlags | None = None, chunks: Chunks | None = None,
    ) -> None:  # fmt: skip
        """Prepare the record of this step."""
        packed = pack_step(
            status, self.attempt, self.digest, self.input, form, result, error, self.started, clock.now_us(), self.tokens, self.cost,
            self.run.worker, flags or {},
        )  # fmt: skip
        self.entry = Entry("step", packed, self.address, chunks or ())

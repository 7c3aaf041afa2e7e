"""Observers: objects that are called when something begins and ends, in the thread or task that does it. For metrics and tracing.

A hook has its own thread and a timeout; an observer is called synchronously, so that it can set thread-local or task-local data, such as the
current span of a tracer. Its exceptions are reported once, by a warning, and do not reach the run. The run waits for it, however slow it is.

    attempt ── checkpoint, gate, step ── step (inside of it)

Relies on no part of the engine: the engine calls `begin` and `end` only if an observer is set.
"""

from __future__ import annotations

import time
import warnings
from typing import Any, Literal

from everstep.errors import InvalidArgument, Suspended

What = Literal["attempt", "step", "checkpoint", "gate"]


class Span:
    """Something that begins and ends: an attempt at a run, an attempt at a step, the commit of a checkpoint, a wait at a gate.

    `status` is None until it ends, then succeeded, failed, waiting (it was suspended) or cancelled; for an attempt it is the status of the
    run. `notes` belongs to the observer, which finds there at the end whatever it put there at the beginning.
    """

    __slots__ = ("attempt", "cost", "error", "kind", "name", "notes", "run", "seconds", "started", "status", "tokens", "what")

    def __init__(self, what: What, run: str, name: str, attempt: int = 1, kind: str | None = None):
        self.what: What = what
        self.run = run
        self.name = name  # the run's id, the address of the step or gate, or the number of the checkpoint
        self.attempt = attempt
        self.kind = kind  # of a step or a checkpoint
        self.started = time.monotonic()
        self.seconds = 0.0
        self.status: str | None = None
        self.error: BaseException | None = None
        self.tokens = 0
        self.cost = 0.0
        self.notes: dict[Any, Any] = {}

    def __repr__(self) -> str:
        return f"<everstep.Span {self.what} {self.name!r} of run {self.run!r}: {self.status or 'open'}>"


def _status_of(error: BaseException | None) -> str:
    if error is None:
        return "succeeded"
    if isinstance(error, Suspended):
        return "waiting"
    return "failed" if isinstance(error, Exception) else "cancelled"


class Observers:
    """The observers of one store. `active` is empty while there are none, which is all that a run checks."""

    def __init__(self) -> None:
        self.active: tuple[Any, ...] = ()
        self._reported: set[int] = set()

    def add(self, observer: Any) -> None:
        if not callable(getattr(observer, "begin", None)) and not callable(getattr(observer, "end", None)):
            raise InvalidArgument(
                f"an observer must have a method begin(span) or end(span), got {observer!r:.60}",
                remedy="Pass an object with one or both of them: store.observe(observer).",
            )
        self.active = (*self.active, observer)

    def remove(self, observer: Any) -> None:
        self.active = tuple(one for one in self.active if one is not observer)

    def begin(self, what: What, run: str, name: str, attempt: int = 1, kind: str | None = None) -> Span:
        """Report that something begins."""
        span = Span(what, run, name, attempt, kind)
        for observer in self.active:
            self._tell(observer, "begin", span)
        return span

    def end(self, span: Span, status: str | None = None, error: BaseException | None = None) -> None:
        """Report that it has ended. Without a status, the error decides it."""
        span.seconds = time.monotonic() - span.started
        span.error = error
        span.status = status or _status_of(error)
        for observer in reversed(self.active):
            self._tell(observer, "end", span)

    def _tell(self, observer: Any, name: str, span: Span) -> None:
        method = getattr(observer, name, None)
        if method is None:
            return
        try:
            method(span)
        except Exception as error:  # noqa: BLE001 - it must not harm the run
            self._report(observer, name, error)

    def _report(self, observer: Any, name: str, error: Exception) -> None:
        if id(observer) in self._reported:
            return
        self._reported.add(id(observer))
        try:
            warnings.warn(
                f"observer {observer!r:.100} raised {type(error).__name__} in {name}: {error}. Runs continue; the observer missed this event. "
                "This is reported once",
                stacklevel=2,
            )
        except Warning:  # if warnings are errors, this one must not harm the run either
            return

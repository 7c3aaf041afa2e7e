"""The run, and the step of it, that the code of this thread or task belongs to. No I/O.

A frame counts steps: those of the run itself, or those inside one step. Threads that `run.map` starts and tasks inherit it. A thread that
the program starts on its own does not, and belongs to no run unless it uses the handle.

A context variable holds the frame. A generator shares that variable with its caller, so the variable alone can't tell which of two
generators is running: `owner` knows, and `current_frame` asks it when a run was opened inside a generator.
"""

from __future__ import annotations

import threading
import warnings
from contextlib import suppress
from contextvars import ContextVar, Token
from typing import TYPE_CHECKING, Any, overload

from everstep.errors import InvalidArgument, RunClosed

if TYPE_CHECKING:
    from types import FrameType

    from everstep.runtime.aio import AsyncRun
    from everstep.runtime.engine.attempt import Attempt
    from everstep.runtime.run import Run
    from everstep.runtime.steps.ticket import Ticket


_NONE: Any = frozenset()


class Frame:
    """Counts the uses of each name, in a run or in a step. `handle` is the object that the program calls: the run, or its async face."""

    __slots__ = ("counts", "dead", "flow", "guests", "handle", "left", "outer", "owner", "path", "run", "ticket")

    def __init__(self, run: Attempt, handle: Any, path: str = "", counts: dict[str, int] | None = None, ticket: Ticket | None = None):
        self.run: Any = run
        self.handle = handle
        self.path = path
        self.counts: dict[str, int] = {} if counts is None else counts
        self.ticket = ticket
        self.dead = False  # the step was given up, but its thread continues
        self.left = False  # the block of the run has ended
        self.outer: Frame | None = None  # of a run: the frame that was current when it was opened
        self.owner: FrameType | None = None  # of a run: the generator that opened it
        self.flow: tuple[int, Any] = (0, None)  # of a run: the thread and the task that opened it
        self.guests: set[Frame] = _NONE  # of a run: open runs of generators that were opened inside of it

    @property
    def awaits(self) -> bool:
        """Whether the code here awaits its calls."""
        return self.handle is not self.run.handle

    def address(self, name: str, key: str | None = None) -> str:
        """Return the address of the next use of a name here."""
        if key is not None:
            return f"{self.path}{name}@{key}"
        number = self.counts.get(name, 0)
        self.counts[name] = number + 1
        return f"{self.path}{name}#{number}"


frame: ContextVar[Frame | None] = ContextVar("everstep", default=None)


_open_runs = 0
_warned: set[str] = set()


def leave(token: Token[Frame | None]) -> None:
    """Restore the frame that was current before a step. The garbage collector closes a coroutine that is never awaited in the context of the
    code it interrupts: nothing needs to be restored there, and an error would look like one of the step."""
    with suppress(ValueError):
        frame.reset(token)


def opened(change: int) -> None:
    """Count the open runs of this process."""
    global _open_runs
    _open_runs += change


def warn_if_stray(name: str) -> None:
    """Warn about a step that is called in a thread without a run: it is not recorded, which is hardly intended while runs are open."""
    if not _open_runs or name in _warned or threading.current_thread() is threading.main_thread():
        return
    _warned.add(name)
    warnings.warn(
        f"step {name!r} was called in a thread that belongs to no run, so it is not recorded. Use run.map, or start the thread with "
        "contextvars.copy_context().run",
        stacklevel=3,
    )


@overload
def current() -> Run[Any]: ...


@overload
def current(kind: type[AsyncRun[Any]], /) -> AsyncRun[Any]: ...


@overload
def current(kind: type[Run[Any]], /) -> Run[Any]: ...


def current(kind: Any = None, /) -> Any:
    """Return the run that this code belongs to: inside a `with store.run(...)` block, a workflow, or a step.

    In async code this is the async handle, whose steps are awaited. Say so for a type checker: `current(everstep.AsyncRun)`.
    """
    from everstep.runtime.engine.owner import current_frame

    here = current_frame()
    if here is None:
        raise RunClosed("no run is open here", remedy="Call this inside a workflow, or inside: with store.run(id) as run: ...")
    if kind is not None and here.awaits is not (kind.__name__ == "AsyncRun"):
        raise InvalidArgument(
            f"the run here is {'async' if here.awaits else 'not async'}, so everstep.current({kind.__name__}) does not fit",
            remedy=f"Use everstep.current({'everstep.AsyncRun' if here.awaits else ''}).",
        )
    return here.handle

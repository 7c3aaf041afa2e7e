"""Ctrl-C and SIGTERM while runs are open: the first lets the running step finish, the second stops at once.

Handlers are installed when a run is opened in the main thread, and removed with the last one; a program that has its own handlers keeps
them. A handler only sets a flag, which is checked at the end of each step. If no step is running, there is nothing to finish, and the
program stops where it is. When a worker is asked to stop, only its own runs stop.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any
from weakref import ref

from everstep.errors import Interrupted, Suspended

if TYPE_CHECKING:
    from everstep.runtime.engine.attempt import Attempt

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class _Watched:
    """The runs that are open in the main thread, in order. A run that is garbage-collected without being closed is dropped."""

    def __init__(self) -> None:
        self._runs: list[ref[Attempt]] = []

    def __iter__(self) -> Iterator[Attempt]:
        return iter([run for known in list(self._runs) if (run := known()) is not None])

    def __len__(self) -> int:
        return sum(1 for _ in self)

    @property
    def newest(self) -> Attempt:
        return list(self)[-1]

    def append(self, run: Attempt) -> None:
        self._runs = [*(known for known in self._runs if known() is not None), ref(run)]

    def remove(self, run: Attempt) -> None:
        self._runs = [known for known in self._runs if known() not in (None, run)]


_open = _Watched()
_before: dict[int, Any] = {}
_seen: int | None = None
_missed: int | None = None


def watch(run: Attempt) -> None:
    """Add a run that was opened."""
    if threading.current_thread() is not threading.main_thread():
        return
    _open.append(run)
    if len(_open) == 1:
        _install()


def unwatch(run: Attempt) -> None:
    global _seen, _missed
    in_main = threading.current_thread() is threading.main_thread()
    if run not in _open or (run.is_async and not in_main):
        return  # an async run is closed in another thread, and removed here when its task continues
    _open.remove(run)
    if not _open:
        _missed, _seen = _seen, None
        if in_main:
            _restore()


def abandon(store: object) -> None:
    """Remove the runs of a store that was closed: runs that were never closed have nothing to finish."""
    for run in [run for run in _open if run.store is store]:
        unwatch(run)


def missed() -> int | None:
    """Return a signal that came while the last run was being closed, or that stopped this run; each one only once."""
    global _missed
    found, _missed = _missed, None
    return found


def error_of(run: Attempt, error: BaseException | None) -> BaseException | None:
    """Return the error that a run ends with; `Interrupted` if a signal caused another exception.

    A task is stopped by cancelling it, and a run around another one gets the exit exception of that one.
    """
    found = seen(run)
    if found is None or error is None or isinstance(error, (Exception, Suspended)):
        return error
    by_signal = type(error).__name__ == "CancelledError" or isinstance(error.__cause__, Interrupted)
    return Interrupted(run.id, f"signal {found[0]}", found[1]) if by_signal else error


class StopFlag:
    """The stop flag of one worker: its runs check it at the end of each step, like a signal."""

    __slots__ = ("signal",)

    def __init__(self) -> None:
        self.signal: int | None = None


stop_flag: ContextVar[StopFlag | None] = ContextVar("everstep-stop-flag", default=None)
"""The flag of the worker that opened the run; its children use it, too."""


def seen(run: Attempt | None = None) -> tuple[str, int] | None:
    """Return the signal that asked the process, or this run, to stop, and its exit code; None without one."""
    number = _seen if run is None or run.stop_flag is None else run.stop_flag.signal or _seen
    return None if number is None else (signal.Signals(number).name, 128 + number)


def _install() -> None:
    for number in _SIGNALS:
        handler = signal.getsignal(number)
        if _replaceable(handler):
            _before[number] = handler
            signal.signal(number, _handle)


def _replaceable(handler: Any) -> bool:
    """Whether Python or asyncio installed the handler, and not the program."""
    if handler in (signal.default_int_handler, signal.SIG_DFL):
        return True
    return getattr(getattr(handler, "func", None), "__qualname__", "") == "Runner._on_sigint"


def _restore() -> None:
    for number, handler in list(_before.items()):
        if signal.getsignal(number) is _handle:
            signal.signal(number, handler)
        del _before[number]


def _handle(number: int, stack: Any) -> None:
    global _seen
    if not _open:  # the last run was closed in another thread, where handlers cannot be changed
        _restore()
        signal.raise_signal(number)
        return
    if _seen is not None:
        _stop_now(number)
        return
    _seen = number
    _say(number)
    if any(run.steps.flight or run.is_leaving for run in _open):
        return
    if not _open.newest.is_async:
        raise Interrupted(_open.newest.name, f"signal {signal.Signals(number).name}", 128 + number)
    for task in {run.task for run in _open if run.is_async and not run.options.driven}:  # raising here would hit the loop instead
        task.get_loop().call_soon_threadsafe(_cancel, task)


def _cancel(task: Any) -> None:
    """Stop a task where it waits, unless it reached the end or start of a step meanwhile and stops by itself."""
    if not any(run.is_leaving for run in _open if run.task is task):
        task.cancel()


def stop_idle(run: Attempt) -> None:
    """Cancel the task of an async run of a stopping worker, unless a step is running: that one is finished first. Callable from any thread."""
    task = run.task
    if run.is_async and task is not None:
        task.get_loop().call_soon_threadsafe(lambda: None if run.steps.flight or run.is_leaving else task.cancel())


def _say(number: int) -> None:
    """Tell the user at a terminal that the signal was received, and what a second one does."""
    steps = [address for run in _open for address in run.steps.flight]
    if steps and os.isatty(2):
        os.write(2, f"\neverstep: {signal.Signals(number).name}: finishing {', '.join(steps[:3])}; repeat to stop at once\n".encode())


def _stop_now(number: int) -> None:
    if number == signal.SIGTERM:
        raise SystemExit(128 + number)
    raise KeyboardInterrupt

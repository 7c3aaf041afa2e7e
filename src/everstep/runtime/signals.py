"""Ctrl-C and SIGTERM while runs are open: the first lets the running step finish, the second stops at once.

Handlers are installed when a run is opened in the main thread, and taken away with the last one; a program that has handlers of its
own keeps them. A handler only notes the signal: whoever drives the run asks at the end of each step. Where no step is running there
is nothing to finish, and the program stops where it is.
"""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING, Any

from everstep.errors import Interrupted

if TYPE_CHECKING:
    from everstep.runtime.run import Run

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_open: list[Run] = []
_before: dict[int, Any] = {}
_seen: int | None = None


def watch(run: Run) -> None:
    """A run is open from now on."""
    if threading.current_thread() is not threading.main_thread():
        return
    _open.append(run)
    if len(_open) == 1:
        _install()


def unwatch(run: Run) -> None:
    global _seen
    if run not in _open:
        return
    _open.remove(run)
    if not _open:
        _seen = None
        if threading.current_thread() is threading.main_thread():
            _restore()


def seen() -> tuple[str, int] | None:
    """The signal that asked to stop, and the exit code that goes with it."""
    return None if _seen is None else (signal.Signals(_seen).name, 128 + _seen)


def _install() -> None:
    for number in _SIGNALS:
        handler = signal.getsignal(number)
        if _replaceable(handler):
            _before[number] = handler
            signal.signal(number, _handle)


def _replaceable(handler: Any) -> bool:
    """What Python or asyncio installed, not the program."""
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
    if _seen is not None:
        _stop_now(number, stack)
        return
    _seen = number
    if any(run._flight or run._saving for run in _open):
        return
    handler = _before.get(number)
    if _open and _open[-1]._async:
        if callable(handler) and handler is not signal.default_int_handler:
            handler(number, stack)  # asyncio cancels the main task: raising here would hit the loop instead
            return
        _stop_now(number, stack)
        return
    raise Interrupted(_open[-1]._name() if _open else "", f"signal {signal.Signals(number).name}", 128 + number)


def _stop_now(number: int, stack: Any) -> None:
    if number == signal.SIGTERM:
        raise SystemExit(128 + number)
    raise KeyboardInterrupt

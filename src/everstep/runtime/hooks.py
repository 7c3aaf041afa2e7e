"""Functions of the user's that are called when something happens, and that cannot do harm by it.

Each hook has one thread of its own, started at its first call and used for all of them, so that a call costs a handover. The
caller waits for the call, at most the hook's timeout; then it goes on, and the hook is passed over until that call has returned.
What a hook raises is counted, never passed on.

The caller holds no lock while it waits, here or elsewhere, so that a hook may use the store, fire events and change hooks.
A signal handler may fire too: the few locks taken here are reentrant and never held during a call. Threads do not survive a fork,
and a lock may be held by one of them at that moment; so the child begins with new ones.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import Context, ContextVar, copy_context
from functools import partial
from inspect import isawaitable
from itertools import count
from math import inf
from queue import Empty, SimpleQueue
from threading import TIMEOUT_MAX, Lock, RLock, Thread, current_thread
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from everstep.clock import clock
from everstep.codec.explain import shown
from everstep.errors import InvalidArgument, StoreClosed
from everstep.fields import Shape, as_dict
from everstep.runtime.limits.checks import check_number
from everstep.runtime.limits.policy import is_custom
from everstep.threads.guard import refuse_inside

if TYPE_CHECKING:
    from asyncio import Runner

    from everstep.store.events.event import Event

EVENTS = (
    *(
        f"{when}_{what}"
        for what in ("checkpoint", "load", "step", "gate", "fork", "resume", "delete", "run")
        for when in ("before", "after")
    ),
    "error",
    "interrupt",
)
TIMEOUT = 0.5
_LONGEST_ERROR = 20_000
_SLICE = 0.5


class HookStats(Shape, frozen=True):
    """What became of a hook's calls up to now.

    `calls` began; of those, `failures` raised and `timeouts` were left behind by their caller (and may have ended well since).
    `skipped` never began: an earlier call was still hanging, the line was too long, or the hook itself had caused the event.
    `seconds` is the time spent in calls that have ended; `last_error` the traceback of the newest failure, as text.
    """

    calls: int = 0
    failures: int = 0
    timeouts: int = 0
    skipped: int = 0
    seconds: float = 0.0
    last_error: str | None = None


class _Call:
    """One call of one hook: who claims it first (the thread to run it, or its caller to withdraw it), and whether it is over."""

    __slots__ = ("claim", "context", "done", "hook", "left", "over", "trouble", "work")

    def __init__(self, hook: Hook, work: Callable[[], Any], context: Context):
        self.hook = hook
        self.work = work
        self.context = context
        self.claim = Lock()
        self.done = Lock()
        self.done.acquire()
        self.left = False  # its caller waits no more
        self.over = False
        self.trouble: str | None = None

    def ends_within(self, seconds: float) -> bool:
        """Wait for its end. In slices: a Ctrl-C that comes just before a wait begins is seen only when that wait is over."""
        while seconds > 0:
            if self.done.acquire(timeout=min(seconds, _SLICE)):
                return True
            seconds -= _SLICE
        return False


_within: ContextVar[tuple[_Call, ...]] = ContextVar("everstep_hooks", default=())


class _Worker:
    """The thread of one hook. It knows the hook only through the calls that it is given, so that a forgotten hook can go."""

    __slots__ = ("current", "ended", "inbox", "lost", "thread")

    def __init__(self, name: str):
        self.inbox: SimpleQueue[_Call | None] = SimpleQueue()
        self.current: _Call | None = None
        self.ended = False
        self.lost = False  # left behind by a fork
        self.thread = Thread(target=self._serve, name=name, daemon=True)
        try:
            self.thread.start()
        except BaseException:  # Ctrl-C while it starts: nobody will know this thread
            self.inbox.put(None)
            raise

    def stop(self) -> None:
        self.inbox.put(None)

    def hangs(self) -> bool:
        call = self.current
        return call is not None and call.left

    def give(self, call: _Call) -> None:
        """Put a call in line. One that comes too late for the thread is sent back at once: done, and not over."""
        self.inbox.put(call)
        if self.ended:
            self._send_back()

    def _send_back(self) -> None:
        with suppress(Empty):
            while True:
                call = self.inbox.get_nowait()
                if call is not None:
                    call.claim.acquire(blocking=False)
                    call.done.release()

    def _serve(self) -> None:
        runner: Runner | None = None
        try:
            while not self.lost and (call := self.inbox.get()) is not None:
                try:
                    if call.claim.acquire(blocking=False):
                        self.current = call
                        runner = call.hook._run(call, runner)
                finally:
                    self.current = None
                    call.done.release()
                    del call  # or it would live, and its hook with it, until the next one comes
        finally:
            self.ended = True  # before the line is emptied: who comes later sees it, and empties it again
            self._send_back()
            if self.lost:  # the hook has forked, and in the child this thread is the program: other hooks' threads must not keep it alive
                _close_all()
            elif runner is not None:
                runner.close()


class Hook:
    """A function that is called at an event. Made by `store.on`; `stats` tells how it fares, `remove` ends it."""

    def __init__(self, owner: Hooks, number: int, event: str, fn: Callable[[Event], Any], priority: int, timeout: float | None):
        self.event = event
        self.fn = fn
        self.priority = priority
        self.timeout = timeout
        self._number = number
        self._owner = owner
        self._removed = False
        self._lock = RLock()
        self._counts: dict[str, Any] = as_dict(HookStats())
        self._warned = False
        self._workers: dict[str, _Worker] = {}  # none or one; a dict, because its setdefault cannot be interrupted

    def __repr__(self) -> str:
        return f"<everstep.Hook {self._name} at {self.event}{', removed' if self._removed else ''}>"

    def __del__(self) -> None:
        for worker in self._workers.values():
            worker.stop()

    @property
    def _name(self) -> str:
        return getattr(self.fn, "__qualname__", None) or f"a {type(self.fn).__qualname__}"

    @property
    def stats(self) -> HookStats:
        """What became of its calls up to now; a copy that does not change."""
        with self._lock:
            return HookStats(**self._counts)

    def remove(self) -> None:
        """Call it no more, not even for an event that is being told right now. A call that has begun goes on. Does nothing the second time."""
        self._removed = True
        self._owner._forget(self)
        for worker in self._workers.values():
            worker.stop()

    def _tell(self, event: Event) -> None:
        """Call the function and wait for it, as long as it may take."""
        if self._removed:
            return
        if any(call.hook is self and not call.over for call in _within.get()):
            self._count(skipped=1)  # its own doing: it would wait for itself, or go round in circles
        elif self.timeout is None:
            self._tell_here(event)
        else:
            self._tell_there(_Call(self, partial(self.fn, event), copy_context()))

    def _tell_here(self, event: Event) -> None:
        """Call it in this thread. What it may return to be awaited is for its own thread: here, a loop may be running already."""
        call = _Call(self, partial(self.fn, event), copy_context())
        result = self._guarded(call, partial(call.context.run, _begin, call), Exception)
        if isawaitable(result):
            self._count(calls=-1)  # it goes on over there, as the same call
            self._tell_there(_Call(self, lambda: result, copy_context()))
        elif call.trouble is not None:
            self._warn(call.trouble)

    def _tell_there(self, call: _Call) -> None:
        worker = self._worker()
        if worker is None or worker.hangs():
            self._count(skipped=1)
            return
        try:
            worker.give(call)
            in_time = call.ends_within(inf if self.timeout is None else self.timeout)
        except BaseException:
            call.left = True
            call.claim.acquire(blocking=False)
            raise
        if not in_time:
            self._leave(call)
        elif not call.over:
            self._count(skipped=1)  # removed in the meantime
        elif call.trouble is not None:
            self._warn(call.trouble)

    def _leave(self, call: _Call) -> None:
        """Wait no more: withdraw the call if it has not begun, otherwise leave it to itself."""
        call.left = True
        if call.claim.acquire(blocking=False):
            self._count(skipped=1)
        else:
            self._count(timeouts=1)
            self._warn(f"takes longer than its {self.timeout} s and is passed over until it returns")

    def _worker(self) -> _Worker | None:
        """The hook's thread, started if need be; None if there can be no thread any more."""
        if sys.is_finalizing():
            return None  # threads stand still already, and nobody would ever answer
        worker = self._workers.get("")
        if worker is None:
            try:
                fresh = _Worker(f"everstep-hook-{self._name}")
            except RuntimeError as error:  # no more threads, or the interpreter is about to end
                self._count(last_error=f"RuntimeError: {error}")
                self._warn(f"got no thread: {error}")
                return None
            worker = self._workers.setdefault("", fresh)
            if worker is not fresh:
                fresh.stop()
        return worker

    def _run(self, call: _Call, runner: Runner | None) -> Runner | None:
        """In the hook's thread: run a call to its end, whatever it does. Its loop is kept for the calls to come."""

        def work() -> None:
            nonlocal runner
            result = call.context.run(_begin, call)
            if isawaitable(result):
                from asyncio import Runner

                runner = runner or Runner()
                runner.run(_awaited(result), context=call.context)

        self._guarded(call, work, BaseException)
        return runner

    def _guarded(self, call: _Call, work: Callable[[], Any], caught: type[BaseException]) -> Any:
        """Do the work and count it. Returns what it returned, or None if it raised."""
        began = clock.boot_us()
        failed: dict[str, Any] = {}
        try:
            return work()
        except caught as error:
            import traceback

            call.trouble = f"raised {''.join(traceback.format_exception_only(error)).strip()}"
            failed = {"failures": 1, "last_error": "".join(traceback.format_exception(error))[-_LONGEST_ERROR:]}
            return None
        finally:
            call.over = True
            self._count(calls=1, seconds=(clock.boot_us() - began) / 1_000_000, **failed)

    def _count(self, last_error: str | None = None, **more: float) -> None:
        with self._lock:
            for name, number in more.items():
                self._counts[name] += number
            if last_error is not None:
                self._counts["last_error"] = last_error

    def _warn(self, trouble: str) -> None:
        if self._warned:
            return
        self._warned = True
        # Where warnings are errors, this one stays a warning that nobody sees: the save or step that told the event has happened. Its trace is hook.stats.
        with suppress(Warning):
            warnings.warn(f"hook {self._name} at {self.event} {trouble:.500} (said once; see hook.stats)", RuntimeWarning, stacklevel=5)

    def _forked(self) -> None:
        """In the child of a fork: its thread is gone, and so is whoever held the lock."""
        self._lock = RLock()
        for worker in self._workers.values():
            worker.lost = True
        self._workers = {}


def _begin(call: _Call) -> Any:
    _within.set((*(c for c in _within.get() if not c.over), call))
    return call.work()


async def _awaited(result: Awaitable[Any]) -> Any:
    return await result


class Hooks:
    """All hooks of one store."""

    def __init__(self) -> None:
        self._by_event: dict[str, tuple[Hook, ...]] = {}
        self._numbers = count()
        self._lock = RLock()
        self._closed = False
        _living.add(self)

    def add(self, event: str, fn: Callable[[Event], Any], priority: int = 0, timeout: float | None = TIMEOUT) -> Hook:
        """Call `fn(event)` at each such event. Hooks of a higher priority come first, equal ones in the order in which they were added.

        `fn` may be async; it then runs in a loop of the hook's own. `timeout` is how many seconds the program waits for a call, waiting in line
        included; one that takes longer goes on by itself, and the hook is passed over until it is back. With `timeout=None` the
        function is called in the program's own thread (so it must bear with several threads), for as long as it takes.
        A hook is not called for events that it causes itself.
        """
        if not is_custom(event) and event not in EVENTS:
            raise InvalidArgument(f"{shown(event)} is no event", remedy=f"Use {', '.join(EVENTS)}, or custom:name for one that you emit.")
        if not callable(fn):
            raise InvalidArgument(f"{shown(fn)} cannot be called", remedy="Give a function, sync or async, that takes one Event.")
        if type(priority) is not int:
            raise InvalidArgument(
                f"priority={shown(priority)} is no whole number", remedy="Give an int; higher ones come first, 0 is usual."
            )
        if timeout is not None:
            check_number(timeout, "timeout", above=True, most=TIMEOUT_MAX)
        with self._lock:
            if self._closed:
                raise StoreClosed("the store is closed, and no hook can be added")
            hook = Hook(self, next(self._numbers), event, fn, priority, timeout)
            self._by_event[event] = tuple(sorted((*self._by_event.get(event, ()), hook), key=lambda h: -h.priority))
        return hook

    def wanted(self, name: str) -> bool:
        """Whether any hook waits for this event. Costs next to nothing; ask before you make an Event."""
        return name in self._by_event

    def fire(self, name: str, event: Event | Callable[[], Event]) -> None:
        """Tell the hooks of an event, and wait for each at most as long as it may take. What a hook raises stays here.

        `event` may be a function that makes it, called only if there is a hook. Ctrl-C passes through. Must not be
        called with a lock held that a hook may want.
        """
        hooks = self._by_event.get(name)
        if hooks is None:
            return
        refuse_inside()
        made: Any = event() if callable(event) else event
        for hook in hooks:
            hook._tell(made)

    def registered(self) -> list[Hook]:
        """All hooks, in the order in which they were added."""
        with self._lock:
            return sorted((hook for hooks in self._by_event.values() for hook in hooks), key=lambda h: h._number)

    def close(self) -> None:
        """Remove all hooks and let their threads end. Does not wait for calls that hang; does nothing the second time."""
        self._closed = True
        for hook in self.registered():
            hook.remove()
            for worker in hook._workers.values():
                if worker.thread is not current_thread() and not worker.hangs():
                    worker.thread.join(TIMEOUT)

    def _forget(self, hook: Hook) -> None:
        with self._lock:
            left = tuple(h for h in self._by_event.get(hook.event, ()) if h is not hook)
            if left:
                self._by_event[hook.event] = left
            else:
                self._by_event.pop(hook.event, None)

    def _forked(self) -> None:
        self._lock = RLock()
        for hooks in self._by_event.values():
            for hook in hooks:
                hook._forked()


_living: WeakSet[Hooks] = WeakSet()


def _close_all() -> None:
    for hooks in list(_living):
        hooks.close()


def _in_child() -> None:
    for hooks in list(_living):
        hooks._forked()


os.register_at_fork(after_in_child=_in_child)

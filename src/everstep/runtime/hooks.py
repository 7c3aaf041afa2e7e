"""Hooks: user functions that are called at events, and that cannot harm the run.

Each hook has its own thread, started at its first call and used for all calls, so that a call costs one handover. The caller waits for the
call, at most the hook's timeout. After that the caller continues, and the hook is skipped until that call has returned. Exceptions of a
hook are counted, never raised to the caller.

The caller holds no lock while it waits, so a hook may use the store, fire events and change hooks. A signal handler may fire events, too: the
few locks taken here are reentrant and never held during a call. Threads do not survive a fork, and one of them may hold a lock at that
moment, so the child starts with new locks.
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
    """The figures of a hook's calls so far.

    `calls` began; of those, `failures` raised and `timeouts` took too long for their caller (and may have ended well since).
    `skipped` never began: an earlier call was still hanging, the queue was too long, or the hook itself had caused the event.
    `seconds` is the time spent in calls that have ended; `last_error` is the traceback of the newest failure, as text.
    """

    calls: int = 0
    failures: int = 0
    timeouts: int = 0
    skipped: int = 0
    seconds: float = 0.0
    last_error: str | None = None


class _Call:
    """One call of one hook: `claim` is taken by the thread to run it or by the caller to withdraw it; `over` says whether it has ended."""

    __slots__ = ("claim", "context", "done", "hook", "left", "over", "trouble", "work")

    def __init__(self, hook: Hook, work: Callable[[], Any], context: Context):
        self.hook = hook
        self.work = work
        self.context = context
        self.claim = Lock()
        self.done = Lock()
        self.done.acquire()
        self.left = False  # its caller no longer waits
        self.over = False
        self.trouble: str | None = None

    def ends_within(self, seconds: float) -> bool:
        """Wait for the call to end. In slices: a Ctrl-C that comes just before a wait is handled only when that wait is over."""
        while seconds > 0:
            if self.done.acquire(timeout=min(seconds, _SLICE)):
                return True
            seconds -= _SLICE
        return False


_within: ContextVar[tuple[_Call, ...]] = ContextVar("everstep_hooks", default=())


class _Worker:
    """The thread of one hook. It refers to the hook only through its calls, so that an unused hook can be garbage-collected."""

    __slots__ = ("current", "ended", "inbox", "lost", "thread")

    def __init__(self, name: str):
        self.inbox: SimpleQueue[_Call | None] = SimpleQueue()
        self.current: _Call | None = None
        self.ended = False
        self.lost = False  # the thread did not survive a fork
        self.thread = Thread(target=self._serve, name=name, daemon=True)
        try:
            self.thread.start()
        except BaseException:  # Ctrl-C while it starts: no other object refers to this thread
            self.inbox.put(None)
            raise

    def stop(self) -> None:
        self.inbox.put(None)

    def hangs(self) -> bool:
        call = self.current
        return call is not None and call.left

    def give(self, call: _Call) -> None:
        """Queue a call. If the thread has ended already, the call is returned at once: done, and not over."""
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
                    del call  # or this frame would keep the call and its hook alive until the next one
        finally:
            self.ended = True  # set before the queue is emptied: a later caller sees it, and empties the queue again
            self._send_back()
            if self.lost:  # the hook forked, and this thread is the child's program: other hooks' threads must not keep it alive
                _close_all()
            elif runner is not None:
                runner.close()


class Hook:
    """A function that is called at an event. Made by `store.on`; `stats` has its figures, `remove` ends it."""

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
        """The figures of its calls so far; a copy that does not change."""
        with self._lock:
            return HookStats(**self._counts)

    def remove(self) -> None:
        """Stop calling it, also for an event that is being reported right now. A call that has begun continues. Calling this twice is harmless."""
        self._removed = True
        self._owner._forget(self)
        for worker in self._workers.values():
            worker.stop()

    def _tell(self, event: Event) -> None:
        """Call the function and wait for it, at most its timeout."""
        if self._removed:
            return
        if any(call.hook is self and not call.over for call in _within.get()):
            self._count(skipped=1)  # the hook caused the event: it would wait for itself, or loop forever
        elif self.timeout is None:
            self._tell_here(event)
        else:
            self._tell_there(_Call(self, partial(self.fn, event), copy_context()))

    def _tell_here(self, event: Event) -> None:
        """Call it in this thread. An awaitable result is awaited in the hook's thread: here, a loop may be running already."""
        call = _Call(self, partial(self.fn, event), copy_context())
        result = self._guarded(call, partial(call.context.run, _begin, call), Exception)
        if isawaitable(result):
            self._count(calls=-1)  # it continues in the other thread, as the same call
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
        """Stop waiting: withdraw the call if it has not begun, otherwise leave it running."""
        call.left = True
        if call.claim.acquire(blocking=False):
            self._count(skipped=1)
        else:
            self._count(timeouts=1)
            self._warn(f"took longer than its timeout of {self.timeout} s and is skipped until it returns")

    def _worker(self) -> _Worker | None:
        """Return the hook's thread, started if necessary; None if no thread can be started any more."""
        if sys.is_finalizing():
            return None  # other threads do not run any more, and the caller would wait forever
        worker = self._workers.get("")
        if worker is None:
            try:
                fresh = _Worker(f"everstep-hook-{self._name}")
            except RuntimeError as error:  # no more threads, or the interpreter is shutting down
                self._count(last_error=f"RuntimeError: {error}")
                self._warn(f"could not start a thread: {error}")
                return None
            worker = self._workers.setdefault("", fresh)
            if worker is not fresh:
                fresh.stop()
        return worker

    def _run(self, call: _Call, runner: Runner | None) -> Runner | None:
        """In the hook's thread: run a call to its end, whatever it raises. Its loop is kept for later calls."""

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
        """Do the work and count it. Return its result, or None if it raised."""
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
        # If warnings are errors, suppress this one: the save or step that fired the event has happened. hook.stats still shows it.
        with suppress(Warning):
            warnings.warn(f"hook {self._name} at {self.event} {trouble:.500} (reported once; see hook.stats)", RuntimeWarning, stacklevel=5)

    def _forked(self) -> None:
        """Reset in the child of a fork: the hook's thread does not exist there, nor the thread that may have held the lock."""
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
        """Call `fn(event)` at each such event. Hooks of a higher priority are called first, equal ones in the order in which they were added.

        `fn` may be async; it then runs in the hook's own event loop. `timeout` is how many seconds the program waits for a call, including the
        time in the queue. A call that takes longer continues on its own, and the hook is skipped until it returns. With `timeout=None` the
        function is called in the program's own thread (so it must be thread-safe), for as long as it takes.
        A hook is not called for events that it causes itself.
        """
        if not is_custom(event) and event not in EVENTS:
            raise InvalidArgument(f"unknown event {shown(event)}", remedy=f"Use {', '.join(EVENTS)}, or custom:name for one that you emit.")
        if not callable(fn):
            raise InvalidArgument(
                f"a hook must be callable, got {shown(fn)}", remedy="Give a function, sync or async, that takes one Event."
            )
        if type(priority) is not int:
            raise InvalidArgument(
                f"priority must be an integer, got {shown(priority)}",
                remedy="Give an integer: higher ones are called first, the default is 0.",
            )
        if timeout is not None:
            check_number(timeout, "timeout", above=True, most=TIMEOUT_MAX)
        with self._lock:
            if self._closed:
                raise StoreClosed("the store is closed, so no hook can be added")
            hook = Hook(self, next(self._numbers), event, fn, priority, timeout)
            self._by_event[event] = tuple(sorted((*self._by_event.get(event, ()), hook), key=lambda h: -h.priority))
        return hook

    def wanted(self, name: str) -> bool:
        """Whether any hook wants this event. Very cheap; ask before you make an Event."""
        return name in self._by_event

    def fire(self, name: str, event: Event | Callable[[], Event]) -> None:
        """Call the hooks of an event, and wait for each at most its timeout. Exceptions of hooks are not raised here.

        `event` may be a function that makes it, called only if there is a hook. Ctrl-C is raised as usual. Do not call this with a lock
        held that a hook may need.
        """
        hooks = self._by_event.get(name)
        if hooks is None:
            return
        refuse_inside()
        made: Any = event() if callable(event) else event
        for hook in hooks:
            hook._tell(made)

    def registered(self) -> list[Hook]:
        """Return all hooks, in the order in which they were added."""
        with self._lock:
            return sorted((hook for hooks in self._by_event.values() for hook in hooks), key=lambda h: h._number)

    def close(self) -> None:
        """Remove all hooks and end their threads. Does not wait for hanging calls; calling this twice is harmless."""
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

"""Durable tools: a decorated function runs once for each task and arguments, also across crashes of the process.

The result is attached to the checkpoint that the task follows, which is made durable first. A task that runs again, in this process or another,
gets the recorded result. If two processes run the same task at the same time, both call the function, and the second one to finish receives the
result of the first. An error is not recorded: the next attempt calls the function again. Outside of a graph, the function is called as it is.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable
from functools import wraps
from hashlib import sha256
from inspect import iscoroutinefunction, signature
from typing import Any, TypeVar, overload

from langgraph.config import get_config
from langgraph.runtime import ExecutionInfo, get_runtime
from langgraph.store.base import BaseStore
from langgraph.types import Command

import everstep
from everstep.adapters.langgraph.saver import Saver
from everstep.errors import InvalidArgument, Unstorable

F = TypeVar("F", bound=Callable[..., Any])
_CHECKPOINTER = "__pregel_checkpointer"  # LangGraph has no public name for these two keys of a task's config
_DURABILITY = "__pregel_durability"
_INJECTED = ("langgraph.", "langchain_core.", "langchain.")
_calls_lock = threading.Lock()


@overload
def durable(function: F, /) -> F: ...
@overload
def durable(*, name: str | None = None, key: Callable[..., Any] | None = None) -> Callable[[F], F]: ...


def durable(function: Any = None, /, *, name: str | None = None, key: Callable[..., Any] | None = None) -> Any:
    """Make a tool or any function that nodes call run once, also if the process is killed: `@durable`, below `@tool` if both are used.

    A call is identified by the task, `name` (default: the function's), its arguments, and how often the task has made the same call. `key` computes
    what identifies it from the arguments instead, for arguments that differ from attempt to attempt.
    """
    if function is None:
        return lambda found: durable(found) if name is None and key is None else _decorated(found, name, key)
    return _decorated(function, name, key)


def _decorated(function: Callable[..., Any], name: str | None, key: Callable[..., Any] | None) -> Any:
    if not callable(function):
        raise InvalidArgument(f"durable needs a function, got {function!r:.60}", remedy="Write @durable below @tool.")
    called = name or getattr(function, "__qualname__", None) or type(function).__name__

    if iscoroutinefunction(function):

        @wraps(function)
        async def acall(*args: Any, **kwargs: Any) -> Any:
            task = _Task.here()
            if task is None:
                return await function(*args, **kwargs)
            address = task.address(called, function, args, kwargs, key)
            found, value = await asyncio.to_thread(task.recorded, address)
            if found:
                return value
            return await asyncio.to_thread(task.record, address, await function(*args, **kwargs))

        return acall

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        task = _Task.here()
        if task is None:
            return function(*args, **kwargs)
        address = task.address(called, function, args, kwargs, key)
        found, value = task.recorded(address)
        return value if found else task.record(address, function(*args, **kwargs))

    return call


class _Task:
    """One attempt at a task of a graph, which the calling code is inside of."""

    def __init__(self, saver: Saver, about: ExecutionInfo):
        self._saver = saver
        self._thread = everstep.quote(str(about.thread_id))
        self._ns = saver.stored_ns(about.checkpoint_ns.rpartition("|")[0])
        self._id = about.checkpoint_id
        self._task = about.task_id
        self._attempt = (about.task_id, about.node_first_attempt_time, about.node_attempt)
        self._number = 0

    @classmethod
    def here(cls) -> _Task | None:
        """Return the task, or None outside of a graph."""
        try:
            conf = get_config().get("configurable") or {}
            runtime: Any = get_runtime()
        except (RuntimeError, KeyError):
            return None
        about = getattr(runtime, "execution_info", None)
        if about is None:
            return None
        saver = conf.get(_CHECKPOINTER)
        if not isinstance(saver, Saver):
            what = "no checkpointer" if saver is None else f"the checkpointer {type(saver).__name__}"
            raise InvalidArgument(
                f"a durable tool needs a graph with Everstep's Saver, got {what}",
                remedy="builder.compile(checkpointer=everstep.adapters.langgraph.Saver())",
            )
        if conf.get(_DURABILITY) == "exit":
            raise InvalidArgument(
                'a durable tool needs durability "sync" or "async", got "exit", which saves nothing before the end',
                remedy='graph.invoke(…, durability="sync")',
            )
        return cls(saver, about)

    def address(self, name: str, function: Any, args: Any, kwargs: Any, key: Callable[..., Any] | None) -> str:
        """Return what identifies a call in its task."""
        given = key(*args, **kwargs) if key is not None else _arguments(function, args, kwargs)
        digest = sha256(_stable(given).encode()).hexdigest()[:16]
        made = f"tool {name} {digest}/{self._task}"
        with _calls_lock:
            counts = _counts(self._attempt)
            counts[made] += 1
            return f"{made}/{counts[made]}"

    def recorded(self, address: str) -> tuple[bool, Any]:
        """Return whether the call was made, and its result. When this returns, the checkpoint that the task follows is durable."""
        self._number = self._saver.thread(self._thread).wait_for(self._ns, self._id)
        for one in self._saver.store.attached(self._thread, self._number, prefix=address):
            if one.name == address:
                return True, self._saver.decode(one.value)
        return False, None

    def record(self, address: str, result: Any) -> Any:
        """Attach the result of a call; return it, or that of another process which was faster."""
        try:
            stored = self._saver.encode(result, "result")
        except Unstorable as error:
            raise Unstorable(
                f"the result of the durable {address.rpartition(' ')[0]}", error.reason,
                remedy=f"It has run, and will run again if the task is repeated. {error.remedy}",
            ) from error  # fmt: skip
        if self._saver.thread(self._thread).attach(self._number, address, stored):
            return result
        return self.recorded(address)[1]


def _counts(attempt: Any) -> Counter[str]:
    """Return how often each call was made in an attempt at a task."""
    if attempt not in _attempts and len(_attempts) >= _MOST_ATTEMPTS:
        _attempts.pop(next(iter(_attempts)))
    return _attempts.setdefault(attempt, Counter())


_MOST_ATTEMPTS = 4_096
_attempts: dict[Any, Counter[str]] = {}


def _arguments(function: Any, args: Any, kwargs: Any) -> dict[str, Any]:
    """Return the arguments by name, without those that a framework has injected."""
    bound = signature(function).bind(*args, **kwargs)
    bound.apply_defaults()
    return {name: value for name, value in bound.arguments.items() if not _is_injected(name, value)}


def _is_injected(name: str, value: Any) -> bool:
    if name in ("config", "runtime", "store", "writer") and not isinstance(value, (str, int, float)):
        return True
    if isinstance(value, Command):
        return False
    return isinstance(value, BaseStore) or (type(value).__module__.startswith(_INJECTED) and not hasattr(value, "model_dump"))


def _stable(value: Any) -> str:
    """Return a text that is the same in every process for equal values."""
    if isinstance(value, dict):
        return "{" + ",".join(sorted(f"{_stable(key)}:{_stable(item)}" for key, item in value.items())) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(map(_stable, value)) + "]"
    if isinstance(value, (set, frozenset)):
        return "(" + ",".join(sorted(map(_stable, value))) + ")"
    if hasattr(value, "model_dump") and callable(value.model_dump):
        return f"{type(value).__qualname__}{_stable(value.model_dump())}"
    text = repr(value)
    shows: Any = type(value).__repr__
    if shows is object.__repr__:
        raise InvalidArgument(
            f"an argument of a durable tool must be comparable across processes, got {text:.100}",
            remedy="Say what identifies the call: @durable(key=lambda order, amount: order.id).",
        )
    return text

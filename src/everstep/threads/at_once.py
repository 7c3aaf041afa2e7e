"""Runs a coroutine that never waits for an event loop in this thread: code that is written once for threads and tasks runs in threads by
it.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def at_once(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine whose awaits all return immediately, and return its result. It can't raise StopIteration: Python turns that into a
    RuntimeError.
    """
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    coroutine.close()
    raise AssertionError(f"{coroutine!r} waited for an event loop in a thread that has none")

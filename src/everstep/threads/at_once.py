"""Runs a coroutine that never has to wait for an event loop, in this thread: what is written once for threads and tasks is run by it in threads."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def at_once(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine each of whose awaits returns at once. It can't raise StopIteration: Python makes a RuntimeError of that."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    coroutine.close()
    raise AssertionError(f"{coroutine!r} waited for an event loop in a thread that has none")

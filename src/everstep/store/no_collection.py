"""Keeps Python's garbage collector out while many containers come into being, none of them garbage: a fifth of the time of a load.

The collector belongs to the whole process. The first thread that needs it off switches it off, and the last one switches it on again, if it was
on before: a thread that looked for itself would find it off, and leave it so.
"""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class _Users:
    """How many threads need the collector off, and whether it was on before the first of them. A finalizer may load a state: RLock."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.count = 0
        self.was_on = False


_users = _Users()


@contextmanager
def no_collection() -> Iterator[None]:
    """Keep the garbage collector off until this thread, and every other one that asked for it, is done."""
    with _users.lock:
        if not _users.count:
            _users.was_on = gc.isenabled()
            gc.disable()
        _users.count += 1
    try:
        yield
    finally:
        with _users.lock:
            _users.count -= 1
            if not _users.count and _users.was_on:
                gc.enable()


def _after_fork() -> None:
    """In a forked child the other threads are gone, and none of them switches the collector on again."""
    global _users
    left, _users = _users, _Users()
    if left.count and left.was_on:
        gc.enable()


os.register_at_fork(after_in_child=_after_fork)

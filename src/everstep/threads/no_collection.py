"""Switch Python's garbage collector off while many containers are created, none of them garbage: this saves a fifth of the time of a load.

The collector belongs to the whole process. The first thread that needs it off switches it off, and the last one switches it on again, if it
was on before. A thread that checked only for itself would find it off and leave it off.
"""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class _Users:
    """The number of threads that need the collector off, and whether it was on before. RLock, because a finalizer may load a state."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.count = 0
        self.was_on = False


_users = _Users()


@contextmanager
def no_collection() -> Iterator[None]:
    """Keep the garbage collector off until this thread, and every other one inside this block, is done."""
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
    """Reset in a forked child: its other threads do not exist there, so none of them would switch the collector on again."""
    global _users
    left, _users = _users, _Users()
    if left.count and left.was_on:
        gc.enable()


os.register_at_fork(after_in_child=_after_fork)

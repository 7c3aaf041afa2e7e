"""Runs the store's blocking calls of async code in a few separate threads.

asyncio's default pool belongs to the program. If long plain steps filled it, no run could be opened or closed until one of them ended. It
would also start as many threads as its limit allows when a thousand runs are opened at once.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any, TypeVar

T = TypeVar("T")
THREADS = 8

_pool: ThreadPoolExecutor | None = None


def offload(function: Callable[..., T], *args: Any) -> asyncio.Future[T]:
    """Call a function that waits for the store, in another thread and in a copy of this context."""
    global _pool
    if _pool is None:
        _pool = ThreadPoolExecutor(THREADS, "everstep-io")
    context = copy_context()
    return asyncio.get_running_loop().run_in_executor(_pool, lambda: context.run(function, *args))


def _forget() -> None:
    """Forget the pool in a forked child, which has none of its parent's threads."""
    global _pool
    _pool = None


os.register_at_fork(after_in_child=_forget)

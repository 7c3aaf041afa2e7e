"""Jobs that run one after the other in a pool of threads, in the order in which they came: the saves of one run.

A job runs in the context of its caller, so that a driver is found. It runs to its end even if the caller is cancelled: a save whose outcome
is unknown would look like that of another process.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from typing import Any

_POOL = ThreadPoolExecutor(32, thread_name_prefix="everstep-agent-framework")


class Serial:
    """A queue of jobs."""

    def __init__(self) -> None:
        self._jobs: deque[Callable[[], None]] = deque()
        self._is_running = False
        self._lock = threading.Lock()

    async def run(self, function: Callable[..., Any], *args: Any) -> Any:
        """Run a function after the ones before it, and return its result."""
        done: Future[Any] = Future()
        context = copy_context()

        def job() -> None:
            try:
                done.set_result(context.run(function, *args))
            except BaseException as error:  # noqa: BLE001 - the caller gets it
                done.set_exception(error)

        with self._lock:
            self._jobs.append(job)
            starts, self._is_running = not self._is_running, True
        if starts:
            _POOL.submit(self._drain)
        return await asyncio.shield(asyncio.wrap_future(done))

    def _drain(self) -> None:
        while True:
            with self._lock:
                if not self._jobs:
                    self._is_running = False
                    return
                job = self._jobs.popleft()
            job()


async def in_thread(function: Callable[..., Any], *args: Any) -> Any:
    """Run a function in the pool: one that reads."""
    return await asyncio.get_running_loop().run_in_executor(_POOL, copy_context().run, function, *args)

"""Where a worker executes its runs: plain workflows in threads, async ones as tasks of one event loop.

One loop for all, because asyncio clients and locks belong to the loop that first used them, and because a thousand waiting runs should not
need a thousand threads. The price: code that blocks the loop stops all async runs of the worker, so `Crew.blocked` reports it.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
import traceback
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

BLOCKED_SECONDS = 5.0
_THREADS_OF_STEPS = 32


class Crew:
    """Threads and one event loop. Each starts when it is first needed and ends with the block."""

    def __init__(self, concurrency: int):
        self._concurrency = concurrency
        self._pool = ThreadPoolExecutor(concurrency, "everstep-run")
        self._loop: LoopThread | None = None

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, *problem: object) -> None:
        self._pool.shutdown()
        if self._loop is not None:
            self._loop.close()

    def thread(self, function: Callable[..., Any], *args: Any) -> None:
        """Call a function in a thread of its own."""
        self._pool.submit(function, *args)

    def task(self, function: Callable[..., Coroutine[Any, Any, Any]], *args: Any) -> None:
        """Run a coroutine function as a task of the event loop."""
        if self._loop is None:
            self._loop = LoopThread(max(self._concurrency, _THREADS_OF_STEPS))
        self._loop.start(function, *args)

    def blocked(self) -> str | None:
        """Return the line of code that has blocked the event loop for some seconds, once for each time it blocks."""
        return None if self._loop is None else self._loop.blocked()


class LoopThread:
    """A thread that runs an event loop until `close`."""

    def __init__(self, threads: int):
        self._loop = asyncio.new_event_loop()
        self._loop.set_default_executor(ThreadPoolExecutor(threads, "everstep-step"))  # where async runs call plain steps
        self._tasks: set[asyncio.Task[Any]] = set()
        self._closing = False
        self._asked = 0.0  # when the loop was asked to answer; 0 while no answer is pending
        self._reported = False
        self._thread = threading.Thread(target=self._serve, name="everstep-loop", daemon=True)
        self._thread.start()

    def start(self, function: Callable[..., Coroutine[Any, Any, Any]], *args: Any) -> None:
        def begin() -> None:
            task = self._loop.create_task(function(*args))
            self._tasks.add(task)  # the loop itself keeps only weak references
            task.add_done_callback(self._tasks.discard)

        self._loop.call_soon_threadsafe(begin)

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        while not self._closing:
            with suppress(
                BaseException
            ):  # a task that raises SystemExit or KeyboardInterrupt ends run_forever; the task keeps its exception
                self._loop.run_forever()

    def blocked(self) -> str | None:
        now = time.monotonic()
        if not self._asked:
            self._asked = now
            self._loop.call_soon_threadsafe(self._answer)
        elif now - self._asked > BLOCKED_SECONDS and not self._reported:
            self._reported = True
            return self._where()
        return None

    def _answer(self) -> None:
        self._asked, self._reported = 0.0, False

    def _where(self) -> str:
        """Return the innermost line that the loop's thread is executing, outside of the standard library if there is one."""
        frame = sys._current_frames().get(self._thread.ident or 0)
        lines = traceback.extract_stack(frame) if frame is not None else []
        home = asyncio.__file__.rpartition("asyncio")[0]
        own = [line for line in lines if not line.filename.startswith((home, "<"))] or lines
        return f"{own[-1].filename}:{own[-1].lineno} in {own[-1].name}" if own else "unknown"

    def close(self) -> None:
        """Cancel the remaining tasks, and return when the thread has ended."""
        asyncio.run_coroutine_threadsafe(self._wind_up(), self._loop).result()
        self._closing = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _wind_up(self) -> None:
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        await self._loop.shutdown_asyncgens()
        await self._loop.shutdown_default_executor()

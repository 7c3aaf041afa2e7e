"""Calls in separate threads, for tasks that wait for a database.

Does not use asyncio's pool: if all its threads waited for a lock, the owner of the lock would find no thread to release it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from typing import Any


def apart(function: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
    """Call a function in a separate thread and return its outcome. The call runs to its end even if no task waits for it."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()

    def tell(method: str, value: Any) -> None:
        if not future.done():
            getattr(future, method)(value)

    def work() -> None:
        try:
            said = ("set_result", function(*args))
        except BaseException as error:  # noqa: BLE001 - raised in the waiting task
            said = ("set_exception", error)
        with suppress(RuntimeError):  # the loop was closed, so no task waits
            loop.call_soon_threadsafe(tell, *said)

    threading.Thread(target=copy_context().run, args=(work,), name="everstep-apart", daemon=True).start()
    return future

"""Calls in threads of their own, for tasks that wait for a database.

Not in those of asyncio's pool: where all of these wait for a lock, whoever holds it would find no thread to let go of it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from typing import Any


def apart(function: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
    """The outcome of a call that a thread of its own makes, to its end, whether or not somebody still waits."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()

    def tell(method: str, value: Any) -> None:
        if not future.done():
            getattr(future, method)(value)

    def work() -> None:
        try:
            said = ("set_result", function(*args))
        except BaseException as error:  # noqa: BLE001 - it is raised where it is waited for
            said = ("set_exception", error)
        with suppress(RuntimeError):  # the loop was closed: nobody waits
            loop.call_soon_threadsafe(tell, *said)

    threading.Thread(target=copy_context().run, args=(work,), name="everstep-apart", daemon=True).start()
    return future

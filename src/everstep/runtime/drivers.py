"""Drivers: functions that continue runs which a framework drives, found by the workflow label of the run.

`resume`, `wake` and workers take the run's lease, record the answers that have come, and call the function with the open run. What lines of
that run append inside is saved through the lease. If the function returns while questions are open, the run waits; otherwise it has
succeeded with the returned value. Nothing is replayed: the framework continues from its own state.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from everstep.errors import InvalidArgument
from everstep.runtime.engine.context import current
from everstep.runtime.run import attempt_of
from everstep.runtime.waits.questions import settle_in, wait_in
from everstep.store.query import check_text
from everstep.threads.offload import offload


class Driver:
    """A function that continues runs with a workflow label. The engine runs it where it would run a workflow."""

    replays = False
    version = definition = policy = retry = budget = timeout = compatible = None

    def __init__(self, name: str, function: Callable[..., Any]):
        if not isinstance(name, str) or not name or check_text(name, "workflow") != name:
            raise InvalidArgument(f"workflow must be the label of runs, text that is not empty, got {name!r:.60}")
        if not callable(function):
            raise InvalidArgument(f"a driver must be a function that takes the open run, got {function!r:.60}")
        self.name = name
        self.given = function
        self.is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)
        self.function: Callable[[], Any] = self._await if self.is_async else self._call

    def __repr__(self) -> str:
        return f"<everstep driver of {self.name!r}>"

    def _call(self) -> Any:
        handle = current()
        settle_in(attempt_of(handle))
        result = self.given(handle)
        waiting = wait_in(attempt_of(handle))
        if waiting is not None:
            raise waiting
        return result

    async def _await(self) -> Any:
        handle = current()
        await offload(settle_in, attempt_of(handle))
        result = await self.given(handle)
        waiting = await offload(wait_in, attempt_of(handle))
        if waiting is not None:
            raise waiting
        return result


_known: dict[str, Driver] = {}


def drives(workflow: str, function: Any = None, /) -> Any:
    """Make `resume`, `wake` and the workers of this process continue runs with this workflow label by calling `function(run)`.

    `run` is open, with its lease; the function may be async. Also a decorator: `@everstep.drives("langgraph")`. A second one replaces the first.
    """
    if function is None:
        return lambda f: drives(workflow, f)
    _known[workflow] = Driver(workflow, function)
    return function


def driver_of(label: str | None) -> Driver | None:
    """Return the driver of runs with a label, if this process has one."""
    return None if label is None else _known.get(label)


def labels() -> list[str]:
    """Return the labels of all drivers of this process."""
    return list(_known)

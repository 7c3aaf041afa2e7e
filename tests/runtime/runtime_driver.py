"""One test body for sync and async: bodies are written with await, and a driver runs them in its own colour.

In the sync colour every awaited thing is ready at once, so that a body runs to its end without a loop; workflows and steps that
Everstep sees are then plain functions. In the async colour they are coroutine functions.
"""

import functools
import inspect
from collections.abc import Callable, Coroutine
from typing import Any

import everstep


class Crash(BaseException):
    """Breaks a program off, as the death of its process would."""


def finish(body: Coroutine[Any, Any, Any]) -> Any:
    """Run a body that never has to wait."""
    try:
        body.send(None)
    except StopIteration as done:
        return done.value
    body.close()
    raise AssertionError("a body of the sync colour waited")


async def ready(value: Any) -> Any:
    return value


class Face:
    """A run's handle whose methods are awaited in both colours."""

    AWAITED = ("step", "map", "gate", "sleep", "checkpoint", "flush")

    def __init__(self, handle: Any, is_async: bool):
        self.__dict__.update(handle=handle, is_async=is_async)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.handle, name)
        if name not in self.AWAITED or self.is_async:
            return found
        return lambda *args, **kwargs: ready(found(*args, **kwargs))

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.handle, name, value)


class Driver:
    """Makes workflows, steps and loops of one colour."""

    def __init__(self, is_async: bool):
        self.is_async = is_async

    def plain(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function in this driver's colour; it may be given in either."""
        if inspect.iscoroutinefunction(function) == self.is_async:
            return function
        if self.is_async:

            @functools.wraps(function)
            async def call(*args: Any, **kwargs: Any) -> Any:
                return function(*args, **kwargs)
        else:

            @functools.wraps(function)
            def call(*args: Any, **kwargs: Any) -> Any:
                return finish(function(*args, **kwargs))

        return call

    def workflow(self, body: Any = None, **options: Any) -> Any:
        if body is None:
            return lambda given: self.workflow(given, **options)
        return everstep.workflow(**options)(self.plain(body))

    def step(self, function: Any = None, **options: Any) -> Any:
        """A decorated step whose call is awaited; `.raw` is what Everstep made of it."""
        if function is None:
            return lambda given: self.step(given, **options)
        made = everstep.step(**options)(self.plain(function))

        def call(*args: Any, **kwargs: Any) -> Any:
            return self.called(made(*args, **kwargs))

        call.raw = made  # type: ignore[attr-defined]
        return call

    def called(self, outcome: Any) -> Any:
        return outcome if self.is_async else ready(outcome)

    @property
    def run(self) -> Any:
        return Face(everstep.current(), self.is_async)

    def gate(self, *args: Any, **options: Any) -> Any:
        return self.called(everstep.gate(*args, **options))

    def sleep(self, *args: Any, **options: Any) -> Any:
        return self.called(everstep.sleep(*args, **options))

    def child(self, flow: Any, *args: Any, **kwargs: Any) -> Any:
        return self.called(flow(*args, **kwargs))

    def loop(self, store: everstep.Store, id: str, body: Callable[[Any], Any], **options: Any) -> Any:
        """Run a body inside a loop of one's own."""
        if not self.is_async:
            with store.run(id, **options) as run:
                return finish(body(Face(run, False)))

        async def drive() -> Any:
            async with store.run(id, **options) as run:
                return await body(Face(run, True))

        import asyncio

        return asyncio.run(drive())


def addresses(store: everstep.Store, run: str) -> list[str]:
    return [step.address for step in store.steps(run)]


def kinds(store: everstep.Store, run: str) -> list[tuple[int, str]]:
    """Numbers and kinds of all checkpoints, oldest first."""
    return [(c.number, c.kind) for c in reversed(store.checkpoints(run))]


def names(store: everstep.Store, run: str) -> list[str]:
    return [event.name for event in store.events(run=run)]

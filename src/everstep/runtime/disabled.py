"""A run that is not recorded: the program works as if Everstep were absent. Never writes, never reads.

For programs and tests that turn Everstep off (`everstep.open(enabled=False)`, `policy=off`) without changing a line.
"""

from __future__ import annotations

import asyncio
import inspect
import random
import time
import uuid
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any, cast

from everstep.codec.values import decode, encode
from everstep.durations import to_seconds
from everstep.errors import InvalidArgument, Waiting
from everstep.ids import new_id
from everstep.records import Kind, Record
from everstep.runtime.engine import owner
from everstep.runtime.engine.context import Frame
from everstep.runtime.report import Report
from everstep.runtime.steps.call import no_function
from everstep.runtime.steps.options import ABSENT, StepOptions, check_items
from everstep.runtime.steps.retry import Retry, as_retry, chance
from everstep.runtime.waits.gates import NONE
from everstep.store.views import Checkpoint


def _nap(seconds: Any, until: Any) -> float:
    """Return how long to sleep; `until` is a datetime, or seconds since 1970."""
    if seconds is not None:
        return float(max(0.0, to_seconds(seconds, "seconds")))
    return float(max(0.0, (until if isinstance(until, (int, float)) else until.timestamp()) - time.time()))


class OffStep:
    """Has the interface of the ticket of `run.begin`; nothing is recorded, so `recorded` is always False."""

    recorded = False
    again = False

    def __init__(self, run: OffRun, name: str, retry: Retry | None):
        self.address = name
        self.key = run.step_key
        self.attempt = 1
        self._run = run
        self._retry = retry
        self._is_open = True

    @property
    def result(self) -> Any:
        raise InvalidArgument(f"step {self.address} has no recorded result: run it", remedy="Read result only if step.recorded is True.")

    def usage(self, tokens: int = 0, cost: float = 0.0) -> None:
        self._run.usage(tokens, cost)

    def complete(self, result: Any) -> None:
        self._end()

    def fail(self, error: Exception) -> float | None:
        self._end()
        if self._retry is None or not self._retry.again(self.attempt, error):
            return None
        self._is_open = True
        self.attempt += 1
        return self._retry.delay_after(self.attempt - 1, chance())

    def _end(self) -> None:
        if not self._is_open:
            raise InvalidArgument(f"step {self.address} has already ended", remedy="Call complete or fail once for each attempt.")
        self._is_open = False
        self._run.called(False, lambda: None, ABSENT, (), {})


class AsyncOffStep(OffStep):
    """An `OffStep` whose `complete` and `fail` are awaited."""

    async def complete(self, result: Any) -> None:  # type: ignore[override]
        self._end()

    async def fail(self, error: Exception) -> float | None:  # type: ignore[override]
        return super().fail(error)


async def _given(step: AsyncOffStep) -> AsyncOffStep:
    return step


class OffRun:
    """Has the methods of a run; a step is a plain call."""

    number = 0
    step_attempt = 1
    step_again = False

    def __init__(self, id: str | None, state: Any):
        self.id = id or new_id()
        self.state: Any = {} if state is None else decode(encode(state))
        self.report = Report(self.id)
        self.step_key = f"{self.id}-off"
        self.handle = self
        self.root = Frame(cast(Any, self), self)
        self._began = time.monotonic()
        self._used: dict[str, float] = {"steps": 0, "tokens": 0, "cost": 0.0}

    @property
    def used(self) -> dict[str, float]:
        """Seconds, steps, tokens and cost so far."""
        return {"seconds": time.monotonic() - self._began, **self._used}

    def __enter__(self) -> OffRun:
        owner.enter(self.root)
        return self

    def __exit__(self, *problem: Any) -> None:
        owner.leave(self.root)

    async def __aenter__(self) -> AsyncOffRun:
        self.root.handle = handle = AsyncOffRun(self)
        owner.enter(self.root)
        return handle

    async def __aexit__(self, *problem: Any) -> None:
        owner.leave(self.root)

    def called(self, awaited: bool, name: Any, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a decorated step, or a workflow inside another one."""
        self._used["steps"] += 1
        plain, options = getattr(name, "__everstep__", (name, None)) if function is ABSENT else (function, None)
        if isinstance(options, StepOptions) and options.transactional is not None:
            return options.transactional.call(plain, args, kwargs)
        return plain(*args, **kwargs)

    def step(
        self,
        name: Any = ABSENT,
        function: Any = ABSENT,
        /,
        *args: Any,
        key: Any = None,
        retry: Any = None,
        timeout: Any = None,
        **kwargs: Any,
    ) -> Any:
        called = function if isinstance(name, str) else name
        if not callable(called):
            raise no_function(name if isinstance(name, str) else None, called)
        self._used["steps"] += 1
        if isinstance(name, str):
            return function(*args, **kwargs)
        return name(**kwargs) if function is ABSENT else name(function, *args, **kwargs)

    def begin(self, name: str, /, *args: Any, key: Any = None, retry: Any = None, kind: str | None = None, **kwargs: Any) -> Any:
        return OffStep(self, name, None if retry is None else as_retry(retry))

    def map(
        self, function: Callable[..., Any], items: Iterable[Any], concurrency: int = 8, *, name: Any = None, retry: Any = None,
        timeout: Any = None,
    ) -> list[Any]:  # fmt: skip
        return [self.step(function, item) for item in check_items(items)]

    def checkpoint(self, note: Any = None, tags: Any = (), meta: Any = None, state: Any = None, *, tag: Any = None) -> Checkpoint:
        if state is not None:
            self.state = state
        return Checkpoint(
            Record(self.id, 0, Kind.CHECKPOINT.value, 0, time.time_ns() // 1000, 0, note, (), None, None, None, None, b"", b"")
        )

    def gate(self, name: str, ask: str | None = None, **options: Any) -> Any:
        condition = options.get("condition")
        if condition is not None:
            return bool(condition() if callable(condition) else condition)
        if options.get("default", NONE) is not NONE:
            return options["default"]
        raise Waiting(self.id, f"an answer at gate {name!r}, which cannot arrive because nothing is recorded here")

    def sleep(self, seconds: Any = None, *, until: Any = None) -> None:
        time.sleep(_nap(seconds, until))

    def now(self) -> datetime:
        return datetime.now(UTC)

    def random(self) -> float:
        return random.random()  # noqa: S311 - the same call that the program would make itself

    def uuid(self) -> uuid.UUID:
        return uuid.uuid4()

    def flush(self) -> None: ...

    def usage(self, tokens: int = 0, cost: float = 0.0) -> None:
        self._used["tokens"] += tokens
        self._used["cost"] += cost

    def progress(self, done: float, total: float) -> None: ...

    def emit(self, name: str, **data: Any) -> None: ...

    def milestone(self, name: str, note: str | None = None) -> None: ...


class AsyncOffRun:
    """An `OffRun` whose methods are awaited."""

    def __init__(self, run: OffRun):
        self.__dict__["_run"] = run

    def __getattr__(self, name: str) -> Any:
        return getattr(self._run, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._run, name, value)

    async def step(
        self,
        name: Any = ABSENT,
        function: Any = ABSENT,
        /,
        *args: Any,
        key: Any = None,
        retry: Any = None,
        timeout: Any = None,
        **kwargs: Any,
    ) -> Any:
        result = self._run.step(name, function, *args, **kwargs)
        return await result if inspect.isawaitable(result) else result

    def begin(self, name: str, /, *args: Any, key: Any = None, retry: Any = None, kind: str | None = None, **kwargs: Any) -> Any:
        return _given(AsyncOffStep(self._run, name, None if retry is None else as_retry(retry)))

    async def map(
        self, function: Callable[..., Any], items: Iterable[Any], concurrency: int = 8, *, name: Any = None, retry: Any = None,
        timeout: Any = None,
    ) -> list[Any]:  # fmt: skip
        return [await one if inspect.isawaitable(one) else one for one in self._run.map(function, items)]

    async def checkpoint(self, note: Any = None, tags: Any = (), meta: Any = None, state: Any = None, *, tag: Any = None) -> Checkpoint:
        made: Checkpoint = self._run.checkpoint(note, tags, meta, state)
        return made

    async def gate(self, name: str, ask: str | None = None, **options: Any) -> Any:
        condition = options.get("condition")
        if inspect.iscoroutinefunction(condition):
            options["condition"] = await condition()
        return self._run.gate(name, ask, **options)

    async def sleep(self, seconds: Any = None, *, until: Any = None) -> None:
        await asyncio.sleep(_nap(seconds, until))

    async def flush(self) -> None: ...

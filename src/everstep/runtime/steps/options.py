"""The options, name and key of a step, and the decorator that sets them. No I/O."""

from __future__ import annotations

import functools
import inspect
import os
import re
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, TypeVar, overload

from everstep.durations import to_seconds
from everstep.errors import InvalidArgument
from everstep.fields import Shape, replace
from everstep.runtime.engine.context import warn_if_stray
from everstep.runtime.engine.owner import current_frame
from everstep.runtime.steps.inside import made
from everstep.runtime.steps.retry import Retry, as_retry

if TYPE_CHECKING:
    from everstep.durations import Duration

F = TypeVar("F", bound=Callable[..., Any])
P = ParamSpec("P")
R = TypeVar("R")


class StepOptions(Shape, frozen=True):
    """How a step is run."""

    name: str | None = None
    key: str | int | None = None
    retry: Any = None  # a Retry; given also as a number of attempts
    timeout: Any = None  # in seconds; given as any duration
    kind: str | None = None
    at_most_once: bool = False
    ignore: tuple[str, ...] = ()
    transactional: Any = None  # an Inside: where the function runs, and what its record is committed with

    def __post_init__(self) -> None:
        if self.name is not None:
            check_name(self.name)
        if self.retry is not None and not isinstance(self.retry, Retry):
            object.__setattr__(self, "retry", as_retry(self.retry))
        if self.timeout is not None:
            object.__setattr__(self, "timeout", _check_timeout(self.timeout))
        if self.transactional is not None and self.at_most_once:
            raise InvalidArgument(
                "transactional and at_most_once cannot be combined",
                remedy="Leave at_most_once out: a transaction that was not committed has no effect.",
            )


def _check_timeout(timeout: Any) -> float:
    seconds = to_seconds(timeout, "timeout")
    if isinstance(seconds, (int, float)) and not isinstance(seconds, bool) and seconds > 0:
        return seconds
    raise InvalidArgument(f"timeout must be a number of seconds greater than 0, got {timeout!r:.60}", remedy='Give timeout=30, or "30s".')


PLAIN = StepOptions()


_fits = re.compile(r"[^#/@\x00-\x1f\ud800-\udfff]{1,200}").fullmatch  # no record can contain half of a surrogate pair


_fits_key = re.compile(r"[^/\ud800-\udfff]{1,200}", re.DOTALL).fullmatch


ABSENT: Any = type("Absent", (), {"__repr__": lambda self: "<none>"})()  # None may be an argument


def check_items(items: Any) -> Iterator[Any]:
    """Return an iterator for `run.map`; raise if items cannot be iterated."""
    try:
        return iter(items)
    except TypeError:
        raise InvalidArgument(f"items must be an iterable, got {items!r:.60}", remedy="Use run.map(function, [item, item]).") from None


def check_name(name: Any) -> str:
    if not isinstance(name, str) or _fits(name) is None:
        raise InvalidArgument(f"the name of a step or gate must be text of 1 to 200 characters without #, / and @, got {name!r:.60}")
    return name


def check_key(key: Any) -> str:
    if isinstance(key, int) and not isinstance(key, bool) and abs(key) < 10**199:
        return str(key)
    if not isinstance(key, str) or _fits_key(key) is None:
        shown = "a number that is too long" if type(key) is int else f"{key!r:.60}"
        raise InvalidArgument(f"key must be text of 1 to 200 characters without /, or an integer, got {shown}")
    return key


@overload
def step(
    function: F,
    /,
    *,
    name: str | None = None,
    key: str | int | None = None,
    retry: Retry | int | None = None,
    timeout: Duration | None = None,
    kind: str | None = None,
    at_most_once: bool = False,
    ignore: Iterable[str] | str = (),
    transactional: Literal[False] | None = None,
) -> F: ...


@overload
def step(
    *,
    name: str | None = None,
    key: str | int | None = None,
    retry: Retry | int | None = None,
    timeout: Duration | None = None,
    kind: str | None = None,
    at_most_once: bool = False,
    ignore: Iterable[str] | str = (),
    transactional: Literal[False] | None = None,
) -> Callable[[F], F]: ...


@overload
def step(
    *,
    transactional: Literal[True] | str | os.PathLike[str],
    name: str | None = None,
    key: str | int | None = None,
    retry: Retry | int | None = None,
    timeout: Duration | None = None,
    kind: str | None = None,
    ignore: Iterable[str] | str = (),
) -> Callable[[Callable[Concatenate[Any, P], R]], Callable[P, R]]: ...


def step(
    function: Any = None,
    /,
    *,
    name: str | None = None,
    key: str | int | None = None,
    retry: Retry | int | None = None,
    timeout: Duration | None = None,
    kind: str | None = None,
    at_most_once: bool = False,
    ignore: Iterable[str] | str = (),
    transactional: bool | str | os.PathLike[str] | None = None,
) -> Any:
    """Make a function a step: called inside a run, its result is recorded once. Outside of a run it is a plain call.

    `@everstep.step`, or with options:

    name           of the step; by default the name of the function
    key            identifies each call instead of its turn
    retry          a Retry, or a number of attempts
    timeout        of each attempt: seconds, a timedelta, or a string such as "30s"
    kind           "llm", "tool" or your own word, for policies
    at_most_once   record that the step begins, and ask at a gate if a process died inside it
    ignore         names of parameters that do not count as input
    transactional  True for the store's database, or the address of another one: the function gets a connection before its arguments, and its
                   writes are committed if, and only if, the step is recorded
    """
    chosen = StepOptions(
        name,
        key,
        retry,
        timeout,
        kind,
        at_most_once,
        (ignore,) if isinstance(ignore, str) else tuple(ignore),
        made(transactional),
    )
    return (lambda f: _as_step(f, chosen)) if function is None else _as_step(function, chosen)


def _as_step(function: Any, chosen: StepOptions) -> Any:
    if not callable(function):
        raise InvalidArgument(
            f"a step must be a function, got {function!r:.60}", remedy="Use @everstep.step, or @everstep.step(retry=...)."
        )
    is_async = inspect.iscoroutinefunction(function)
    _check_ignored(function, chosen.ignore)
    if chosen.name is None and getattr(function, "__name__", "").isidentifier():
        chosen = with_options(chosen, {"name": name_for(function, chosen)})  # once, not at every call

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        here = current_frame()
        if here is None:
            warn_if_stray(function.__name__)
            return function(*args, **kwargs)
        return here.run.called(is_async and here.awaits, call, ABSENT, args, kwargs)

    call.__everstep__ = (function, chosen)  # type: ignore[attr-defined]
    if is_async and hasattr(inspect, "markcoroutinefunction"):  # Python 3.12
        inspect.markcoroutinefunction(call)
    return call


def shape_of(function: Any, options: StepOptions) -> Any:
    """Return a function with the parameters that callers pass: the connection is not one of them."""
    return function if options.transactional is None else functools.partial(function, None)


def _check_ignored(function: Any, ignore: tuple[str, ...]) -> None:
    strange = [name for name in ignore if name not in inspect.signature(function).parameters] if ignore else []
    if strange:
        raise InvalidArgument(f"ignore must name parameters of {getattr(function, '__name__', function)!s:.60}, got {strange!r}")


def name_for(function: Any, options: StepOptions) -> str:
    if options.name is not None:
        return options.name
    while isinstance(function, functools.partial):
        function = function.func
    name = getattr(function, "__name__", None)
    if name is None or not name.isidentifier():
        raise InvalidArgument(f"{function!r:.60} has no usable name", remedy='Give one: run.step("name", function, ...).')
    return str(name)


def with_options(options: StepOptions, given: dict[str, Any]) -> StepOptions:
    return replace(options, **given)

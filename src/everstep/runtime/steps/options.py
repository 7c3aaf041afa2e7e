"""What a step is called and how it is run: its options, its name, its key, and the decorator that says them once. No I/O."""

from __future__ import annotations

import functools
import inspect
import os
import re
from collections.abc import Callable, Iterator
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar, overload

from everstep.errors import InvalidArgument
from everstep.fields import Shape, replace
from everstep.runtime.engine.context import warn_if_stray
from everstep.runtime.engine.owner import place
from everstep.runtime.steps.inside import made
from everstep.runtime.steps.retry import Retry

F = TypeVar("F", bound=Callable[..., Any])
P = ParamSpec("P")
R = TypeVar("R")


class StepOptions(Shape, frozen=True):
    """How a step is run."""

    name: str | None = None
    key: str | None = None
    retry: Retry | None = None
    timeout: float | None = None
    kind: str | None = None
    at_most_once: bool = False
    ignore: tuple[str, ...] = ()
    transactional: Any = None  # an Inside: where the function runs, and what its step is recorded with

    def __post_init__(self) -> None:
        if self.name is not None:
            check_name(self.name)
        if self.retry is not None and not isinstance(self.retry, Retry):
            raise InvalidArgument(f"retry={self.retry!r:.60} is no Retry", remedy="Give everstep.Retry(attempts=5).")
        if self.timeout is not None and not (isinstance(self.timeout, (int, float)) and self.timeout > 0):
            raise InvalidArgument(f"timeout must be a number of seconds above 0, got {self.timeout!r:.60}")
        if self.transactional is not None and self.at_most_once:
            raise InvalidArgument(
                "transactional and at_most_once exclude each other",
                remedy="Leave at_most_once out: nothing of a transaction that was not committed has happened.",
            )


PLAIN = StepOptions()


_fits = re.compile(r"[^#/@\x00-\x1f\ud800-\udfff]{1,200}").fullmatch  # half of a surrogate pair can stand in no record


_fits_key = re.compile(r"[^/\ud800-\udfff]{1,200}", re.DOTALL).fullmatch


ABSENT: Any = type("Absent", (), {"__repr__": lambda self: "<none>"})()  # None may be an argument


def check_items(items: Any) -> Iterator[Any]:
    """Refuse what `run.map` can't go through."""
    try:
        return iter(items)
    except TypeError:
        raise InvalidArgument(f"items must be an iterable, got {items!r:.60}", remedy="Use run.map(function, [item, item]).") from None


def check_name(name: Any) -> str:
    if not isinstance(name, str) or _fits(name) is None:
        raise InvalidArgument(f"{name!r:.60} is no name of a step: 1 to 200 characters, without #, / and @")
    return name


def check_key(key: Any) -> str:
    if isinstance(key, int) and not isinstance(key, bool) and abs(key) < 10**199:
        return str(key)
    if not isinstance(key, str) or _fits_key(key) is None:
        shown = "a long number" if type(key) is int else f"{key!r:.60}"
        raise InvalidArgument(f"key={shown} is no key: text of 1 to 200 characters without /, or a whole number")
    return key


@overload
def step(function: F, /) -> F: ...


@overload
def step(
    *,
    name: str | None = None,
    key: str | None = None,
    retry: Retry | None = None,
    timeout: float | None = None,
    kind: str | None = None,
    at_most_once: bool = False,
    ignore: tuple[str, ...] = (),
    transactional: Literal[False] | None = None,
) -> Callable[[F], F]: ...


@overload
def step(
    *,
    transactional: Literal[True] | str | os.PathLike[str],
    name: str | None = None,
    key: str | None = None,
    retry: Retry | None = None,
    timeout: float | None = None,
    kind: str | None = None,
    ignore: tuple[str, ...] = (),
) -> Callable[[Callable[Concatenate[Any, P], R]], Callable[P, R]]: ...


def step(function: Any = None, /, **options: Any) -> Any:
    """Make a function a step: called inside a run, its result is recorded once. Outside of a run it is simply called.

    `kind` ("llm", "tool", or a word of yours) is what policies look at; `ignore` names parameters that do not count as input;
    `at_most_once` writes down that the step begins, and asks at a gate when a process died inside it. `transactional` (True for the store's
    database, or the address of another one) hands the function a connection; what it writes holds if, and only if, the step is recorded.
    """
    if function is None:
        return lambda f: step(f, **options)
    if not callable(function):
        raise InvalidArgument(f"{function!r:.60} is no function", remedy="Use @everstep.step, or @everstep.step(retry=...).")
    if isinstance(options.get("ignore"), str):
        options["ignore"] = (options["ignore"],)
    chosen = StepOptions(**{**options, "ignore": tuple(options.get("ignore", ())), "transactional": made(options.get("transactional"))})

    is_async = inspect.iscoroutinefunction(function)
    _check_ignored(function, chosen.ignore)
    if chosen.name is None and getattr(function, "__name__", "").isidentifier():
        chosen = with_options(chosen, {"name": name_for(function, chosen)})  # once, not at every call

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        here = place()
        if here is None:
            warn_if_stray(function.__name__)
            return function(*args, **kwargs)
        return here.run.called(is_async and here.awaits, call, ABSENT, args, kwargs)

    call.__everstep__ = (function, chosen)  # type: ignore[attr-defined]
    if is_async and hasattr(inspect, "markcoroutinefunction"):  # Python 3.12
        inspect.markcoroutinefunction(call)
    return call


def shape_of(function: Any, options: StepOptions) -> Any:
    """A function as those who call the step see it: the connection is not theirs to give."""
    return function if options.transactional is None else functools.partial(function, None)


def _check_ignored(function: Any, ignore: tuple[str, ...]) -> None:
    strange = [name for name in ignore if name not in inspect.signature(function).parameters] if ignore else []
    if strange:
        raise InvalidArgument(f"ignore={strange!r} names no parameter of {function!r:.60}")


def name_for(function: Any, options: StepOptions) -> str:
    if options.name is not None:
        return options.name
    while isinstance(function, functools.partial):
        function = function.func
    name = getattr(function, "__name__", None)
    if name is None or not name.isidentifier():
        raise InvalidArgument(f"{function!r:.60} has no name that could be recorded", remedy='Give one: run.step("name", function, ...).')
    return str(name)


def with_options(options: StepOptions, given: dict[str, Any]) -> StepOptions:
    return replace(options, **given)

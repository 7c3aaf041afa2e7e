"""The types of `run.gate`: a class as schema, or choices, say what it returns. Only type checkers read this module."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeAlias, TypeVar, overload

from everstep.durations import Duration

T = TypeVar("T")
D = TypeVar("D")
Co: TypeAlias = Coroutine[Any, Any, T]
Wait: TypeAlias = "Duration | None"
Ask: TypeAlias = str | None
Choice: TypeAlias = Callable[[], Any] | Any

# fmt: off


class Asks:
    """`Run.gate`."""

    @overload
    def __call__(self, name: str, ask: Ask = None, *, schema: type[T], timeout: Wait = None) -> T: ...
    @overload
    def __call__(self, name: str, ask: Ask = None, *, schema: type[T], timeout: Wait = None, default: D) -> T | D: ...
    @overload
    def __call__(self, name: str, ask: Ask = None, *, choices: Iterable[T], timeout: Wait = None) -> T: ...
    @overload
    def __call__(self, name: str, ask: Ask = None, *, choices: Iterable[T], timeout: Wait = None, default: D) -> T | D: ...
    @overload
    def __call__(
        self, name: str, ask: Ask = None, *, schema: Any = None, choices: Any = None, timeout: Wait = None, default: Any = ...,
        condition: Any = None, on_pass: Choice = None, on_fail: Choice = None,
    ) -> Any: ...
    def __call__(self, name: str, ask: Ask = None, **options: Any) -> Any: ...


class AsyncAsks:
    """`AsyncRun.gate`: its functions may be async."""

    @overload
    def __call__(self, name: str, ask: Ask = None, *, schema: type[T], timeout: Wait = None) -> Co[T]: ...
    @overload
    def __call__(self, name: str, ask: Ask = None, *, schema: type[T], timeout: Wait = None, default: D) -> Co[T | D]: ...
    @overload
    def __call__(self, name: str, ask: Ask = None, *, choices: Iterable[T], timeout: Wait = None) -> Co[T]: ...
    @overload
    def __call__(self, name: str, ask: Ask = None, *, choices: Iterable[T], timeout: Wait = None, default: D) -> Co[T | D]: ...
    @overload
    def __call__(
        self, name: str, ask: Ask = None, *, schema: Any = None, choices: Any = None, timeout: Wait = None, default: Any = ...,
        condition: Any = None, on_pass: Choice = None, on_fail: Choice = None,
    ) -> Co[Any]: ...
    def __call__(self, name: str, ask: Ask = None, **options: Any) -> Any: ...

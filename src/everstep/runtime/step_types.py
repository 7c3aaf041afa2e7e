"""The types of `run.step`, which passes arguments on to a function. Only type checkers read this module.

A step has options of its own beside the arguments of the function; `queues.start_types` says why each call is declared twice. By mypy's declaration, a call
without options is checked exactly, and one with options has the right result.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, ParamSpec, TypeAlias, TypeVar, overload

from everstep.durations import Duration
from everstep.runtime.steps.retry import Retry

# mypy: disable-error-code="overload-cannot-match"
MYPY = False  # mypy takes this for True
P = ParamSpec("P")
T = TypeVar("T")
Key: TypeAlias = str | int
Again: TypeAlias = Retry | int
Co: TypeAlias = Coroutine[Any, Any, T]

# fmt: off


class CallsSteps:
    """`Run.step`."""

    if MYPY:
        @overload
        def __call__(self, name: str, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T: ...
        @overload
        def __call__(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T: ...
        @overload
        def __call__(self, name: str, function: Callable[..., T], /, *args: Any, key: Key | None, retry: Again | None = None, timeout: Duration | None = None, **kwargs: Any) -> T: ...
        @overload
        def __call__(self, name: str, function: Callable[..., T], /, *args: Any, retry: Again | None, timeout: Duration | None = None, **kwargs: Any) -> T: ...
        @overload
        def __call__(self, name: str, function: Callable[..., T], /, *args: Any, timeout: Duration | None, **kwargs: Any) -> T: ...
        @overload
        def __call__(self, function: Callable[..., T], /, *args: Any, key: Key | None, retry: Again | None = None, timeout: Duration | None = None, **kwargs: Any) -> T: ...
        @overload
        def __call__(self, function: Callable[..., T], /, *args: Any, retry: Again | None, timeout: Duration | None = None, **kwargs: Any) -> T: ...
        @overload
        def __call__(self, function: Callable[..., T], /, *args: Any, timeout: Duration | None, **kwargs: Any) -> T: ...
        def __call__(self, name: Any, function: Any = None, /, *args: Any, **kwargs: Any) -> Any: ...
    else:
        @overload
        def __call__(self, name: str, function: Callable[P, T], /, *args: P.args, key: Key | None = None, retry: Again | None = None, timeout: Duration | None = None, **kwargs: P.kwargs) -> T: ...  # pyright: ignore[reportGeneralTypeIssues]
        @overload
        def __call__(self, function: Callable[P, T], /, *args: P.args, key: Key | None = None, retry: Again | None = None, timeout: Duration | None = None, **kwargs: P.kwargs) -> T: ...  # pyright: ignore[reportGeneralTypeIssues]
        def __call__(self, name: Any, function: Any = None, /, *args: Any, **kwargs: Any) -> Any: ...


class AsyncCallsSteps:
    """`AsyncRun.step`: a plain function runs in a thread."""

    if MYPY:
        @overload
        def __call__(self, name: str, function: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> Co[T]: ...
        @overload
        def __call__(self, name: str, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Co[T]: ...
        @overload
        def __call__(self, function: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> Co[T]: ...
        @overload
        def __call__(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Co[T]: ...
        @overload
        def __call__(self, name: str, function: Callable[..., Awaitable[T]], /, *args: Any, key: Key | None, retry: Again | None = None, timeout: Duration | None = None, **kwargs: Any) -> Co[T]: ...
        @overload
        def __call__(self, name: str, function: Callable[..., Awaitable[T]], /, *args: Any, retry: Again | None, timeout: Duration | None = None, **kwargs: Any) -> Co[T]: ...
        @overload
        def __call__(self, name: str, function: Callable[..., Awaitable[T]], /, *args: Any, timeout: Duration | None, **kwargs: Any) -> Co[T]: ...
        @overload
        def __call__(self, name: str, function: Callable[..., T], /, *args: Any, key: Key | None, retry: Again | None = None, timeout: Duration | None = None, **kwargs: Any) -> Co[T]: ...
        @overload
        def __call__(self, name: str, function: Callable[..., T], /, *args: Any, retry: Again | None, timeout: Duration | None = None, **kwargs: Any) -> Co[T]: ...
        @overload
        def __call__(self, name: str, function: Callable[..., T], /, *args: Any, timeout: Duration | None, **kwargs: Any) -> Co[T]: ...
        @overload
        def __call__(self, function: Callable[..., Awaitable[T]], /, *args: Any, key: Key | None, retry: Again | None = None, timeout: Duration | None = None, **kwargs: Any) -> Co[T]: ...
        @overload
        def __call__(self, function: Callable[..., Awaitable[T]], /, *args: Any, retry: Again | None, timeout: Duration | None = None, **kwargs: Any) -> Co[T]: ...
        @overload
        def __call__(self, function: Callable[..., Awaitable[T]], /, *args: Any, timeout: Duration | None, **kwargs: Any) -> Co[T]: ...
        @overload
        def __call__(self, function: Callable[..., T], /, *args: Any, key: Key | None, retry: Again | None = None, timeout: Duration | None = None, **kwargs: Any) -> Co[T]: ...
        @overload
        def __call__(self, function: Callable[..., T], /, *args: Any, retry: Again | None, timeout: Duration | None = None, **kwargs: Any) -> Co[T]: ...
        @overload
        def __call__(self, function: Callable[..., T], /, *args: Any, timeout: Duration | None, **kwargs: Any) -> Co[T]: ...
        def __call__(self, name: Any, function: Any = None, /, *args: Any, **kwargs: Any) -> Any: ...
    else:
        @overload
        def __call__(self, name: str, function: Callable[P, Awaitable[T]], /, *args: P.args, key: Key | None = None, retry: Again | None = None, timeout: Duration | None = None, **kwargs: P.kwargs) -> Co[T]: ...  # pyright: ignore[reportGeneralTypeIssues]
        @overload
        def __call__(self, name: str, function: Callable[P, T], /, *args: P.args, key: Key | None = None, retry: Again | None = None, timeout: Duration | None = None, **kwargs: P.kwargs) -> Co[T]: ...  # pyright: ignore[reportGeneralTypeIssues]
        @overload
        def __call__(self, function: Callable[P, Awaitable[T]], /, *args: P.args, key: Key | None = None, retry: Again | None = None, timeout: Duration | None = None, **kwargs: P.kwargs) -> Co[T]: ...  # pyright: ignore[reportGeneralTypeIssues]
        @overload
        def __call__(self, function: Callable[P, T], /, *args: P.args, key: Key | None = None, retry: Again | None = None, timeout: Duration | None = None, **kwargs: P.kwargs) -> Co[T]: ...  # pyright: ignore[reportGeneralTypeIssues]
        def __call__(self, name: Any, function: Any = None, /, *args: Any, **kwargs: Any) -> Any: ...

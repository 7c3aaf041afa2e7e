"""The types of `store.start` and `store.enqueue`, which pass arguments on to a workflow. Only type checkers read this module.

Both have options of their own beside the arguments of the workflow. A `ParamSpec` allows no further keyword between its `*args` and `**kwargs`:
pyright reports that here, and then checks the calls exactly; mypy would check nothing in them. So each call is declared twice. By mypy's
declaration, `start` without an id is checked exactly, with an id its first three positional arguments are, and `enqueue` has the right result.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeAlias, TypeVar, overload

if TYPE_CHECKING:
    from everstep.durations import Duration
    from everstep.queues.enqueue import Enqueued
    from everstep.runtime.outcome import Outcome

# mypy: disable-error-code="overload-cannot-match"
MYPY = False  # mypy takes this for True
P = ParamSpec("P")
T = TypeVar("T")
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
Id: TypeAlias = str | None
Co: TypeAlias = Coroutine[Any, Any, T]

# fmt: off


class Starts:
    """`Store.start`."""

    if MYPY:
        @overload
        def __call__(self, workflow: Callable[P, Co[T]], /, *args: P.args, **kwargs: P.kwargs) -> Outcome[T]: ...
        @overload
        def __call__(self, workflow: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Outcome[T]: ...
        @overload
        def __call__(self, workflow: Callable[Concatenate[A, B, C, ...], Co[T]], a: A, b: B, c: C, /, *more: Any, id: Id, **kwargs: Any) -> Outcome[T]: ...
        @overload
        def __call__(self, workflow: Callable[Concatenate[A, B, C, ...], T], a: A, b: B, c: C, /, *more: Any, id: Id, **kwargs: Any) -> Outcome[T]: ...
        @overload
        def __call__(self, workflow: Callable[Concatenate[A, B, ...], Co[T]], a: A, b: B, /, *, id: Id, **kwargs: Any) -> Outcome[T]: ...
        @overload
        def __call__(self, workflow: Callable[Concatenate[A, B, ...], T], a: A, b: B, /, *, id: Id, **kwargs: Any) -> Outcome[T]: ...
        @overload
        def __call__(self, workflow: Callable[Concatenate[A, ...], Co[T]], a: A, /, *, id: Id, **kwargs: Any) -> Outcome[T]: ...
        @overload
        def __call__(self, workflow: Callable[Concatenate[A, ...], T], a: A, /, *, id: Id, **kwargs: Any) -> Outcome[T]: ...
        @overload
        def __call__(self, workflow: Callable[..., Co[T]], /, *, id: Id, **kwargs: Any) -> Outcome[T]: ...
        @overload
        def __call__(self, workflow: Callable[..., T], /, *, id: Id, **kwargs: Any) -> Outcome[T]: ...
        def __call__(self, workflow: Any, /, *args: Any, **kwargs: Any) -> Any: ...
    else:
        @overload
        def __call__(self, workflow: Callable[P, Co[T]], /, *args: P.args, id: Id = None, **kwargs: P.kwargs) -> Outcome[T]: ...  # pyright: ignore[reportGeneralTypeIssues]
        @overload
        def __call__(self, workflow: Callable[P, T], /, *args: P.args, id: Id = None, **kwargs: P.kwargs) -> Outcome[T]: ...  # pyright: ignore[reportGeneralTypeIssues]
        def __call__(self, workflow: Any, /, *args: Any, **kwargs: Any) -> Any: ...


class AsyncStarts:
    """`AsyncStore.start`."""

    if MYPY:
        @overload
        def __call__(self, workflow: Callable[P, Co[T]], /, *args: P.args, **kwargs: P.kwargs) -> Co[Outcome[T]]: ...
        @overload
        def __call__(self, workflow: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Co[Outcome[T]]: ...
        @overload
        def __call__(self, workflow: Callable[Concatenate[A, B, C, ...], Co[T]], a: A, b: B, c: C, /, *more: Any, id: Id, **kwargs: Any) -> Co[Outcome[T]]: ...
        @overload
        def __call__(self, workflow: Callable[Concatenate[A, B, C, ...], T], a: A, b: B, c: C, /, *more: Any, id: Id, **kwargs: Any) -> Co[Outcome[T]]: ...
        @overload
        def __call__(self, workflow: Callable[Concatenate[A, B, ...], Co[T]], a: A, b: B, /, *, id: Id, **kwargs: Any) -> Co[Outcome[T]]: ...
        @overload
        def __call__(self, workflow: Callable[Concatenate[A, B, ...], T], a: A, b: B, /, *, id: Id, **kwargs: Any) -> Co[Outcome[T]]: ...
        @overload
        def __call__(self, workflow: Callable[Concatenate[A, ...], Co[T]], a: A, /, *, id: Id, **kwargs: Any) -> Co[Outcome[T]]: ...
        @overload
        def __call__(self, workflow: Callable[Concatenate[A, ...], T], a: A, /, *, id: Id, **kwargs: Any) -> Co[Outcome[T]]: ...
        @overload
        def __call__(self, workflow: Callable[..., Co[T]], /, *, id: Id, **kwargs: Any) -> Co[Outcome[T]]: ...
        @overload
        def __call__(self, workflow: Callable[..., T], /, *, id: Id, **kwargs: Any) -> Co[Outcome[T]]: ...
        def __call__(self, workflow: Any, /, *args: Any, **kwargs: Any) -> Any: ...
    else:
        @overload
        def __call__(self, workflow: Callable[P, Co[T]], /, *args: P.args, id: Id = None, **kwargs: P.kwargs) -> Co[Outcome[T]]: ...  # pyright: ignore[reportGeneralTypeIssues]
        @overload
        def __call__(self, workflow: Callable[P, T], /, *args: P.args, id: Id = None, **kwargs: P.kwargs) -> Co[Outcome[T]]: ...  # pyright: ignore[reportGeneralTypeIssues]
        def __call__(self, workflow: Any, /, *args: Any, **kwargs: Any) -> Any: ...


class Enqueues:
    """`Store.enqueue`."""

    if MYPY:
        @overload
        def __call__(self, workflow: Callable[..., Co[T]], /, *args: Any, id: Id = None, queue: str = ..., priority: int = ..., delay: Duration | None = None, key: Id = None, dedupe: Id = None, connection: Any = None, **kwargs: Any) -> Enqueued[T]: ...
        @overload
        def __call__(self, workflow: Callable[..., T], /, *args: Any, id: Id = None, queue: str = ..., priority: int = ..., delay: Duration | None = None, key: Id = None, dedupe: Id = None, connection: Any = None, **kwargs: Any) -> Enqueued[T]: ...
        @overload
        def __call__(self, workflow: str, /, *args: Any, id: Id = None, queue: str = ..., priority: int = ..., delay: Duration | None = None, key: Id = None, dedupe: Id = None, connection: Any = None, **kwargs: Any) -> Enqueued[Any]: ...
        def __call__(self, workflow: Any, /, *args: Any, **kwargs: Any) -> Any: ...
    else:
        @overload
        def __call__(self, workflow: Callable[P, Co[T]], /, *args: P.args, id: Id = None, queue: str = ..., priority: int = ..., delay: Duration | None = None, key: Id = None, dedupe: Id = None, connection: Any = None, **kwargs: P.kwargs) -> Enqueued[T]: ...  # pyright: ignore[reportGeneralTypeIssues]
        @overload
        def __call__(self, workflow: Callable[P, T], /, *args: P.args, id: Id = None, queue: str = ..., priority: int = ..., delay: Duration | None = None, key: Id = None, dedupe: Id = None, connection: Any = None, **kwargs: P.kwargs) -> Enqueued[T]: ...  # pyright: ignore[reportGeneralTypeIssues]
        @overload
        def __call__(self, workflow: str, /, *args: Any, id: Id = None, queue: str = ..., priority: int = ..., delay: Duration | None = None, key: Id = None, dedupe: Id = None, connection: Any = None, **kwargs: Any) -> Enqueued[Any]: ...
        def __call__(self, workflow: Any, /, *args: Any, **kwargs: Any) -> Any: ...


class AsyncEnqueues:
    """`AsyncStore.enqueue`."""

    if MYPY:
        @overload
        def __call__(self, workflow: Callable[..., Co[T]], /, *args: Any, id: Id = None, queue: str = ..., priority: int = ..., delay: Duration | None = None, key: Id = None, dedupe: Id = None, connection: Any = None, **kwargs: Any) -> Co[Enqueued[T]]: ...
        @overload
        def __call__(self, workflow: Callable[..., T], /, *args: Any, id: Id = None, queue: str = ..., priority: int = ..., delay: Duration | None = None, key: Id = None, dedupe: Id = None, connection: Any = None, **kwargs: Any) -> Co[Enqueued[T]]: ...
        @overload
        def __call__(self, workflow: str, /, *args: Any, id: Id = None, queue: str = ..., priority: int = ..., delay: Duration | None = None, key: Id = None, dedupe: Id = None, connection: Any = None, **kwargs: Any) -> Co[Enqueued[Any]]: ...
        def __call__(self, workflow: Any, /, *args: Any, **kwargs: Any) -> Any: ...
    else:
        @overload
        def __call__(self, workflow: Callable[P, Co[T]], /, *args: P.args, id: Id = None, queue: str = ..., priority: int = ..., delay: Duration | None = None, key: Id = None, dedupe: Id = None, connection: Any = None, **kwargs: P.kwargs) -> Co[Enqueued[T]]: ...  # pyright: ignore[reportGeneralTypeIssues]
        @overload
        def __call__(self, workflow: Callable[P, T], /, *args: P.args, id: Id = None, queue: str = ..., priority: int = ..., delay: Duration | None = None, key: Id = None, dedupe: Id = None, connection: Any = None, **kwargs: P.kwargs) -> Co[Enqueued[T]]: ...  # pyright: ignore[reportGeneralTypeIssues]
        @overload
        def __call__(self, workflow: str, /, *args: Any, id: Id = None, queue: str = ..., priority: int = ..., delay: Duration | None = None, key: Id = None, dedupe: Id = None, connection: Any = None, **kwargs: Any) -> Co[Enqueued[Any]]: ...
        def __call__(self, workflow: Any, /, *args: Any, **kwargs: Any) -> Any: ...

"""Wrappers around a backend: `Traced` reports each call, `Counted` counts them. They pass every call on unchanged.

A store has one reference to its backend, so a wrapper that replaces it sees every call.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import Any


class Wrapped:
    """Passes everything on; subclasses override `call`. It has the capabilities of the backend that it wraps, and no others."""

    def __init__(self, backend: Any) -> None:
        self._backend = backend

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._backend, name)
        if not callable(found) or name == "seal":  # `seal` is a function that the store itself calls
            return found

        def call(*args: Any, **options: Any) -> Any:
            return self.call(name, found, args, options)

        return call

    def call(self, name: str, method: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        return method(*args, **options)


class Counted(Wrapped):
    """Counts the calls of each method, in `calls`."""

    def __init__(self, backend: Any) -> None:
        super().__init__(backend)
        self.calls: Counter[str] = Counter()

    def call(self, name: str, method: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        self.calls[name] += 1
        return method(*args, **options)


Tell = Callable[[float, str, tuple[Any, ...], dict[str, Any]], None]


class Traced(Wrapped):
    """Reports each call when it has ended: its milliseconds, its name and its arguments."""

    def __init__(self, backend: Any, tell: Tell) -> None:
        super().__init__(backend)
        self._tell = tell

    def call(self, name: str, method: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        begun = time.perf_counter()
        try:
            return method(*args, **options)
        finally:
            self._tell((time.perf_counter() - begun) * 1000, name, args, options)

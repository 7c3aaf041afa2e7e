"""Tells every call to a backend, with its time: what `--debug` shows. Masks the arguments; relies on `redact`. Changes no call."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from everstep.redact import Redactor

if TYPE_CHECKING:
    from everstep.backends.contract.core import Backend
    from everstep.store.store import BaseStore


class _Traced:
    """A backend around a backend that tells what is asked of it."""

    def __init__(self, backend: Backend, tell: Callable[[str], object]):
        self._backend = backend
        self._tell = tell
        self._masked = Redactor.default().text

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._backend, name)
        if not callable(found):
            return found

        def call(*args: Any, **options: Any) -> Any:
            begun = time.perf_counter()
            try:
                return found(*args, **options)
            finally:
                took = (time.perf_counter() - begun) * 1000
                said = ", ".join([*map(self._shown, args), *(f"{k}={self._shown(v)}" for k, v in options.items())])
                self._tell(f"{took:8.2f} ms  {name}({said})")

        return call

    def _shown(self, value: object) -> str:
        return self._masked(repr(value))[:40]  # masked first: half of a secret is not recognised as one


def trace(store: BaseStore, tell: Callable[[str], object]) -> None:
    """Have a store tell every call to its backend, in a line of text."""
    store.backend = cast("Backend", _Traced(store.backend, tell))

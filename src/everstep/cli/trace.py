"""`--debug`: every call to the backend on stderr, with its time."""

from __future__ import annotations

import sys
import time
from typing import Any

from everstep.cli.draw.text import safe
from everstep.redact import Redactor


class _Traced:
    """A backend around a backend that tells what is asked of it."""

    def __init__(self, backend: Any):
        self._backend = backend
        self._masked = Redactor.default().text

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._backend, name)
        if not callable(found) or name == "seal":  # a function that the store calls, not a call to the backend
            return found

        def call(*args: Any, **options: Any) -> Any:
            begun = time.perf_counter()
            try:
                return found(*args, **options)
            finally:
                took = (time.perf_counter() - begun) * 1000
                said = ", ".join([*map(self._shown, args), *(f"{k}={self._shown(v)}" for k, v in options.items())])
                sys.stderr.write(safe(f"debug: {took:8.2f} ms  {name}({said})") + "\n")

        return call

    def _shown(self, value: Any) -> str:
        return self._masked(repr(value))[:40]  # masked first: half of a secret looks like none


def traced(store: Any) -> None:
    """Have a store tell every call to its backend."""
    store.backend = _Traced(store.backend)

"""`--debug`: every call to the backend on stderr, with its time."""

from __future__ import annotations

import sys
from typing import Any

from everstep.backends.wrap import Traced
from everstep.cli.draw.text import safe
from everstep.redact import Redactor


def traced(store: Any) -> None:
    """Have a store tell every call to its backend."""
    masked = Redactor.default().text

    def shown(value: Any) -> str:
        return masked(repr(value))[:40]  # masked first: half of a secret looks like none

    def tell(took: float, name: str, args: tuple[Any, ...], options: dict[str, Any]) -> None:
        said = ", ".join([*map(shown, args), *(f"{k}={shown(v)}" for k, v in options.items())])
        sys.stderr.write(safe(f"debug: {took:8.2f} ms  {name}({said})") + "\n")

    store.backend = Traced(store.backend, tell)

"""Reports every call to a backend with its duration, for `--debug`. Masks the arguments; relies on `redact`. Changes no call."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from everstep.backends.wrap import Traced
from everstep.redact import Redactor

if TYPE_CHECKING:
    from everstep.backends.contract.core import Backend
    from everstep.store.store import BaseStore


def trace(store: BaseStore, tell: Callable[[str], object]) -> None:
    """Make a store report every call to its backend as a line of text."""
    masked = Redactor.default().text

    def shown(value: object) -> str:
        return masked(repr(value))[:40]  # mask first: half of a secret would not be recognised

    def tell_call(took: float, name: str, args: tuple[Any, ...], options: dict[str, Any]) -> None:
        said = ", ".join([*map(shown, args), *(f"{k}={shown(v)}" for k, v in options.items())])
        tell(f"{took:8.2f} ms  {name}({said})")

    store.backend = cast("Backend", Traced(store.backend, tell_call))

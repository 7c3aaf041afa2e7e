"""Tells every call to a backend, with its time: what `--debug` shows. Masks the arguments; relies on `redact`. Changes no call."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from everstep.backends.wrap import Traced
from everstep.redact import Redactor

if TYPE_CHECKING:
    from everstep.backends.contract.core import Backend
    from everstep.store.store import BaseStore


def trace(store: BaseStore, tell: Callable[[str], object]) -> None:
    """Have a store tell every call to its backend, in a line of text."""
    masked = Redactor.default().text

    def shown(value: object) -> str:
        return masked(repr(value))[:40]  # masked first: half of a secret is not recognised as one

    def tell_call(took: float, name: str, args: tuple[Any, ...], options: dict[str, Any]) -> None:
        said = ", ".join([*map(shown, args), *(f"{k}={shown(v)}" for k, v in options.items())])
        tell(f"{took:8.2f} ms  {name}({said})")

    store.backend = cast("Backend", Traced(store.backend, tell_call))

"""Hides secrets in all views. Relies on `redact`, which is imported with the first value to check."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from everstep.redact import Redactor


class Masking:
    """Hides secrets. `load` returns the configured redactor; without it, the default one is used."""

    def __init__(self, load: Callable[[], Redactor] | None = None):
        self._load = load
        self._redactor: Redactor | None = None

    @property
    def redactor(self) -> Redactor:
        if self._redactor is None:
            self._redactor = _default() if self._load is None else self._load()
        return self._redactor

    def __call__(self, value: Any, path: Sequence[object] = ()) -> Any:
        """Mask a stored value. A key above it, in `path`, may be enough to hide it."""
        if value is None or (isinstance(value, dict) and not value):  # nothing to hide: avoid the import
            return value
        from everstep.redact import MASK

        return MASK if any(self.redactor.hides(key, value) for key in path) else self.redactor.value(value)

    def text(self, text: str) -> str:
        """Mask a text."""
        return self.redactor.text(text)


def _default() -> Redactor:
    from everstep.redact import Redactor

    return Redactor.default()

"""Properties of a store: small texts by name, such as limits, retention, the time of the last verify. The docstrings are the contract."""

from __future__ import annotations

from typing import Protocol


class Properties(Protocol):
    """Stores properties (texts by name)."""

    def get_property(self, name: str) -> str | None:
        """Return the property with this name, such as the time of the last verify or the retention; None if it is not set."""

    def properties(self, prefix: str = "") -> dict[str, str]:
        """Return all properties whose names begin with `prefix`, by name."""

    def set_property(self, name: str, value: str | None) -> None:
        """Store a property durably; None removes it. It counts in the manifest with its `property_check`."""

"""Small things that a store is told to remember: limits, retention, when it was verified. The docstrings are the contract."""

from __future__ import annotations

from typing import Protocol


class Facts(Protocol):
    """Remembers texts by name."""

    def fact(self, name: str) -> str | None:
        """What the store was told to remember under a name: when it was last verified, what is to be kept."""

    def facts(self, prefix: str = "") -> dict[str, str]:
        """All facts whose names begin so, by name."""

    def set_fact(self, name: str, value: str | None) -> None:
        """Remember a fact, durably; None forgets it. Counts in the manifest with its `fact_check`."""

"""Wrapped keys of an encrypted store, as a capability. A backend keeps them and never unwraps one. The docstrings are the contract.

A family has one wrapped key. It is written by the commit that creates the family (`Commit.family_key`), and destroyed with the family's last
run, in the transaction of that deletion. A store without encryption has none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from everstep.records import Seal


class Keys(Protocol):
    """Keeps the wrapped keys of families, and what a store says about its encryption."""

    @property
    def header(self) -> str | None:
        """The property `encryption`; None if the store is not encrypted."""

    def encrypt(self, header: str) -> str | None:
        """Make an empty store an encrypted one, unless it is one already: set the property `encryption`.

        Returns the property as it is then: another process may have been first. None if the store is not encrypted and a run was ever created
        in it. From then on, no process that has the store open without encryption can write it, unless a server cannot tell them apart.
        """

    def set_seal(self, seal: Seal) -> None:
        """Use another seal from now on: that of the store's key, or one that refuses. Called once, before anything else is."""

    def family_keys(self, families: Sequence[bytes]) -> dict[bytes, bytes]:
        """Return the wrapped keys of those families that have one."""

    def key_page(self, after: bytes = b"", limit: int = 1000) -> list[tuple[bytes, bytes]]:
        """Return families beyond `after`, in order, with their wrapped keys."""

    def replace_keys(self, changes: Sequence[tuple[bytes, bytes, bytes]]) -> int:
        """Replace wrapped keys, given as family, the old one and the new one; return how many. One that is no longer the old one stays."""

    def replace_header(self, old: str, new: str) -> bool:
        """Replace the property `encryption`, unless another process changed it; return whether that was done."""

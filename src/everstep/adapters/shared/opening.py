"""The store of an adapter: given as a store or an address, and opened on first use. A store that was given stays open."""

from __future__ import annotations

from typing import Any

import everstep


class Opening:
    """Where an adapter keeps its runs. `opened()` returns the store for asyncio."""

    def __init__(self, given: Any):
        self._given = given
        self._owned: Any = None
        self._store: Any = None

    async def opened(self) -> Any:
        """Return the store, opened on first use."""
        if self._store is None:
            if self._given is None or isinstance(self._given, str) or hasattr(self._given, "__fspath__"):
                self._owned = everstep.open(self._given)
            found = self._owned or self._given
            self._store = await found.__aenter__() if isinstance(found, everstep.Store) else found
        return self._store

    async def close(self) -> None:
        """Close the store, if it was opened here."""
        owned, self._owned = self._owned, None
        if owned is not None:
            self._store = None
            await owned.__aexit__(None, None, None)

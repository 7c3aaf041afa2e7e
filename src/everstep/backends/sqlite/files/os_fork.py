"""Handles open stores when the process forks.

SQLite keeps, for each file, the locks that this process holds. A child inherits that table but not the locks: a store that it
opens again would run without locks, and the parent, when closing, would remove the WAL that the child uses. So before a fork all
stores pause, and the child closes the inherited connections; then its table is empty and its own handles take their own locks.
A connection that another thread was reading with cannot be closed in the child; the child then refuses to open that store.
"""

from __future__ import annotations

import itertools
import os
from typing import Protocol
from weakref import WeakValueDictionary

from everstep.errors import StoreError

_count = itertools.count()
_stores: WeakValueDictionary[int, Forkable] = WeakValueDictionary()
_resting: list[Forkable] = []
_unsafe: set[str] = set()


class Forkable(Protocol):
    """An open store, as a fork sees it."""

    def rest(self) -> None:
        """Wait until no thread is inside SQLite, as far as possible."""

    def resume(self) -> None:
        """End the pause, in the parent."""

    def abandon(self) -> str | None:
        """Close inherited connections, in the child; return the path if one could not be closed."""


def register(store: Forkable) -> None:
    _stores[next(_count)] = store


def refuse_unsafe(path: str) -> None:
    if path in _unsafe:
        raise StoreError(
            f"{path} cannot be opened in this process: it was forked while another thread was reading the store",
            remedy="Start the process with spawn or forkserver, or fork while no thread uses the store.",
        )


def _before() -> None:
    for _, store in sorted(_stores.items()):
        store.rest()
        _resting.append(store)


def _in_parent() -> None:
    while _resting:
        _resting.pop().resume()


def _in_child() -> None:
    while _resting:
        left = _resting.pop().abandon()
        if left is not None:
            _unsafe.add(left)
    _stores.clear()


os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)

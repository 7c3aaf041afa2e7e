"""Ids as they are listed: long ones cut to a beginning that still names one run of the whole store."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from everstep.api import Store

_LONG, _LEAST = 24, 12


def shortened(store: Store, id: str) -> str:
    """An id, or a beginning of it that only this run has."""
    if len(id) <= _LONG:
        return id
    length = _LEAST
    while length < len(id):
        if len(store.runs(prefix=id[:length], limit=2)) == 1:
            return id[:length]
        length += 6
    return id

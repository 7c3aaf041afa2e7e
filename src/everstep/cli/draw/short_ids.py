"""Shortens long ids in lists to a prefix that is still unique in the store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from everstep.cli.draw.text import cell
from everstep.ids import unquote

if TYPE_CHECKING:
    from everstep.api import Store

_LONG, _LEAST = 24, 12


def shortened(store: Store, id: str) -> str:
    """Return the text that an id was made of, the id, or a prefix of it that is unique."""
    if unquote(id) != id:
        return cell(unquote(id), 200)
    if len(id) <= _LONG:
        return id
    length = _LEAST
    while length < len(id):
        if len(store.runs(prefix=id[:length], limit=2)) == 1:
            return id[:length]
        length += 6
    return id

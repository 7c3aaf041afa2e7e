"""Differences between checkpoints."""

from __future__ import annotations

from everstep.backends.contract.core import Backend
from everstep.codec.values import revived
from everstep.records import RunRow
from everstep.snapshot.diff import Change, between
from everstep.store.load import load_two


def diff(backend: Backend, a: tuple[RunRow, int], b: tuple[RunRow, int]) -> list[Change]:
    """Return the changes from one checkpoint to another: the differences of the two states, whatever happened in between."""
    old, new = load_two(backend, a, b)
    found = between(old.value, new.value)
    if not old.objects and not new.objects:
        return found
    return [Change(c.path, c.kind, revived(c.before), revived(c.after)) for c in found]

"""Pending writes: what tasks have written before their superstep ends. They are attached to the checkpoint that they follow.

One entry holds the writes of a call. A write is identified by its task and its index: the first one counts. Writes to LangGraph's special
channels have entries of their own, and the newest counts. No I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from langgraph.checkpoint.base import WRITES_IDX_MAP, PendingWrite, writes_sort_key

PREFIX = "$writes/"  # commands for people don't show names with `$`
_SPECIAL = "$writes/special/"


class Entries:
    """The entries of one call of put_writes."""

    def __init__(self, values: dict[str, Any], replace: bool):
        self.values = values
        self.replace = replace


def entries_of(task: str, path: str, writes: Sequence[tuple[str, Any]], encode: Callable[[Any, str], Any]) -> Entries:
    """Return what to attach for the writes of a task."""
    found, indexes, only_special = [], "", True
    for i, (channel, value) in enumerate(writes):
        index = WRITES_IDX_MAP.get(channel)
        if index is None:
            index, only_special = i, False
        found.append([index, channel, encode(value, channel)])
        indexes += f",{index}" if i else str(index)
    if only_special:
        return Entries({f"{_SPECIAL}{task}/{one[0]}": {"task": task, "path": path, "writes": [one]} for one in found}, True)
    return Entries({f"{PREFIX}{task}/{indexes}": {"task": task, "path": path, "writes": found}}, False)


def entry_of(task: str, path: str, writes: Sequence[tuple[int, str, Any]]) -> dict[str, Any]:
    """Return what to attach for writes that have their indexes and are encoded already."""
    return {
        f"{PREFIX}{task}/{','.join(str(one[0]) for one in writes)}": {"task": task, "path": path, "writes": [list(one) for one in writes]}
    }


def merged(attached: Iterable[Any]) -> list[tuple[str, str, int, str, Any]]:
    """Return task, path, index, channel and stored value of all writes to a checkpoint, in the order in which LangGraph applies them."""
    found: dict[tuple[str, int], tuple[str, str, int, str, Any]] = {}
    for special in (True, False):
        for one in attached:
            if one.name.startswith(PREFIX) and one.name.startswith(_SPECIAL) is special:
                _add(found, one.value)
    return sorted(found.values(), key=lambda write: writes_sort_key(write[1], write[0], write[2]))


def _add(found: dict[tuple[str, int], tuple[str, str, int, str, Any]], value: Mapping[str, Any]) -> None:
    for index, channel, stored in value["writes"]:
        found.setdefault((value["task"], index), (value["task"], value["path"], index, channel, stored))


def pending_writes(attached: Iterable[Any], decode: Callable[[Any], Any]) -> list[PendingWrite]:
    """Return the writes to a checkpoint as LangGraph expects them."""
    return [(task, channel, decode(stored)) for task, _, _, channel, stored in merged(attached)]

"""What happened to a state: differences between checkpoints, and which checkpoint last changed a path."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from everstep.backends.base import Backend
from everstep.codec.values import revived
from everstep.errors import NotFound
from everstep.records import Pruned, Record, RunRow
from everstep.snapshot.delta import SPLICE, Op, fields_of, inside, same
from everstep.snapshot.diff import Change, between, changes
from everstep.store.model import Checkpoint
from everstep.store.reading import checkpoint_record, deltas_of, load, prune_mark


def diff(backend: Backend, a: tuple[RunRow, int], b: tuple[RunRow, int]) -> list[Change]:
    """The changes from one checkpoint to another. Those of neighbours are the stored delta itself."""
    (row, number), (other, target) = a, b
    old = load(backend, row, number)
    objects = old.objects
    found: list[Change] | None = None
    if row.id == other.id and target == number + 1:
        ops = deltas_of(backend, row, target, target)[0][1]
        if ops is not None:
            found = changes(old.value, ops)
            objects = True
    if found is None:
        new = load(backend, other, target)
        objects = objects or new.objects
        found = between(old.value, new.value)
    if not objects:
        return found
    return [Change(c.path, c.kind, revived(c.before), revived(c.after)) for c in found]


def blame(backend: Backend, row: RunRow, number: int, path: Sequence[Any]) -> Checkpoint:
    """The checkpoint that last changed the value at a path, read from the deltas backwards.

    A splice before it in the same list moves the path with it, so blame follows an item and not a position. What was set to what it
    had been is no change. What happened at a pruned checkpoint is blamed on the next one that was kept: there it shows.
    """
    try:
        state = load(backend, row, number).value
        wanted = _absolute(state, path)
    except (KeyError, IndexError, TypeError, AttributeError):
        raise NotFound(f"{row.id}@{number} has nothing at {list(path)!r:.100}", remedy="Look at the state: store.load(ref).") from None
    value, last = inside(state, wanted), number
    mark = prune_mark(backend, row)
    kept: Record | None = None
    while last >= 1:
        first = max(1, last - 255)
        for record, ops in reversed(deltas_of(backend, row, first, last)):
            if mark is not None and not mark.has_state(record.number):
                continue
            kept, above = record, kept
            if above is not None and above.number > record.number + 1 and _differs(backend, row, record.number, wanted, value):
                return Checkpoint(above)
            moved = None if ops is None else _before(ops, wanted)
            if moved is not None:
                wanted = moved
            elif record.number == 1 or _changed(backend, row, record.number, wanted, value, mark):
                return Checkpoint(record)
        last = first - 1
    return Checkpoint(kept if kept is not None else checkpoint_record(backend, row, 1))


def _absolute(value: Any, path: Sequence[Any]) -> tuple[Any, ...]:
    """A path whose positions all count from the beginning. Raises like a look-up if it leads nowhere."""
    out: list[Any] = []
    for step in path:
        value = fields_of(value)
        out.append(range(len(value))[step] if isinstance(value, list) else step)
        value = value[step]
    return tuple(out)


def _before(ops: list[Op], path: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """Where the value at a path stood before a delta, or None if the delta touched it."""
    for op in reversed(ops):
        target = tuple(op[1])
        depth = len(target)
        if op[0] != SPLICE:
            if target[: len(path)] == path[:depth] and (depth <= len(path) or target[: len(path)] == path):
                return None
            continue
        if target == path or target[: len(path)] == path:
            return None
        if path[:depth] == target and len(path) > depth:
            start, deleted, inserted = op[2], op[3], len(op[4])
            position = path[depth]
            if start <= position < start + inserted:
                return None
            if position >= start + inserted:
                path = (*target, position - inserted + deleted, *path[depth + 1 :])
    return path


def _changed(backend: Backend, row: RunRow, number: int, path: tuple[Any, ...], value: Any, mark: Pruned | None) -> bool:
    """Whether a checkpoint made a path what it is: by looking at the one before, if that was kept."""
    return (mark is None or mark.has_state(number - 1)) and _differs(backend, row, number - 1, path, value)


def _differs(backend: Backend, row: RunRow, number: int, path: tuple[Any, ...], value: Any) -> bool:
    """Whether a checkpoint has another value at a path."""
    try:
        return not same(inside(load(backend, row, number).value, path), value)
    except (KeyError, IndexError, TypeError, AttributeError):
        return True

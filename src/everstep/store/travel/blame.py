"""Finds the checkpoint that last changed a value: reads deltas backwards, across pruned checkpoints and forks.

A splice before the value in the same list moves its path, so blame follows an item and not a position. Setting a value to what it was is
not a change. If states in between were pruned, or the parent of a fork was deleted, the result says what is unknown. Relies on
`store.load`, which proves everything that is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from everstep.backends.contract.core import Backend
from everstep.errors import NotFound
from everstep.records import CHILD, Pruned, Record, RunRow
from everstep.snapshot.delta import SPLICE, Op, difference, fields_of, inside, same
from everstep.store.journal.entries import said_in
from everstep.store.load import checked, checkpoint_record, deltas_of, load, prune_mark
from everstep.store.refs import verified
from everstep.store.views import Checkpoint

_AT_ONCE = 256
_NOWHERE = (KeyError, IndexError, TypeError, AttributeError)


class Blame(Checkpoint):
    """The oldest checkpoint known to have the current value, and whether it is certain to be the one that changed it."""

    __slots__ = ("after", "exact")

    def __init__(self, record: Record, exact: bool, after: str | None = None):
        super().__init__(record)
        self.exact = exact
        """False if an older checkpoint, whose state is missing, may have changed the value."""
        self.after = after
        """The newest ref known to have another value, unless it is the checkpoint just before; None if nothing older is known."""

    def __str__(self) -> str:
        if self.exact:
            return self.ref
        return f"{self.ref} or earlier" if self.after is None else f"between {self.after} and {self.ref}"

    def __repr__(self) -> str:
        return f"Blame({str(self)!r}, note={self.note!r}, tags={self.tags!r})"


class _Older(NamedTuple):
    """The next older checkpoint that has a state; `near` if no checkpoint is between."""

    run: _Run
    number: int
    near: bool


class _Run:
    """One run on the way back: its deltas, read in batches, and its prune mark."""

    def __init__(self, backend: Backend, row: RunRow):
        self.backend = backend
        self.row = row
        self._mark: Pruned | None = prune_mark(backend, row)
        self._deltas: dict[int, tuple[Record, list[Op] | None]] = {}

    def has_state(self, number: int) -> bool:
        return self._mark is None or self._mark.has_state(number)

    def delta(self, number: int) -> tuple[Record, list[Op] | None]:
        if number not in self._deltas:
            found = deltas_of(self.backend, self.row, max(1, number - _AT_ONCE + 1), number)
            self._deltas = {record.number: (record, ops) for record, ops in found}
        return self._deltas[number]

    def state(self, number: int) -> Any:
        return load(self.backend, self.row, number).value

    def older(self, number: int) -> tuple[_Older | None, bool]:
        """Return the next older checkpoint with a state, in this run or its parent; if there is none, whether there never was one."""
        kept = next((n for n in range(number - 1, 0, -1) if self.has_state(n)), None)
        if kept is not None:
            return _Older(self, kept, kept == number - 1), True
        origin = _origin(self.backend, self.row)
        if origin is None:
            return None, number == 1
        parent, fork = origin
        if parent is None:
            return None, False
        if parent.has_state(fork):
            return _Older(parent, fork, number == 1), True
        found, _ = parent.older(fork)
        return (None, False) if found is None else (_Older(found.run, found.number, False), True)


def _origin(backend: Backend, row: RunRow) -> tuple[_Run | None, int] | None:
    """Return where a run was forked: None if it is not a fork; without the run if that was deleted, or if its id now belongs to another
    one.
    """
    if row.parent is None or row.parent_number == CHILD:
        return None
    said = said_in(checked(backend, row, 1, 1)[0])
    number, digest = said.get("number"), said.get("digest")
    if not number:
        return None  # it began before the first checkpoint
    parent = backend.run(row.parent)
    if parent is None or number > verified(parent, backend.seal).checkpoints or checkpoint_record(backend, parent, number).digest != digest:
        return None, number
    return _Run(backend, parent), number


def blame(backend: Backend, row: RunRow, number: int, path: Sequence[Any]) -> Blame:
    """Return the checkpoint, up to a number, that last changed the value at a path."""
    run = _Run(backend, row)
    try:
        state = run.state(number)
        wanted = _absolute(state, path)
    except _NOWHERE:
        ref = f"{row.id}@{number}"
        raise NotFound(f"{ref} has no value at {list(path)!r:.100}", remedy=f"Print the state: store.load({ref!r}).") from None
    value = inside(state, wanted)
    while True:
        record, ops = run.delta(number)
        older, known = run.older(number)
        if older is None:
            return Blame(record, known)
        told = ops if older.near and older.run is run else None
        moved = None if told is None else _before(told, wanted)
        if moved is None:
            moved = _found(older.run.state(older.number), None if told is not None else run.state(number), wanted, value)
        if moved is None:
            return Blame(record, older.near, None if older.near else f"{older.run.row.id}@{older.number}")
        wanted, run, number = moved, older.run, older.number


def _absolute(value: Any, path: Sequence[Any]) -> tuple[Any, ...]:
    """Return a path whose list positions all count from the beginning. Raises the error of a look-up if it leads nowhere."""
    out: list[Any] = []
    for step in path:
        value = fields_of(value)
        out.append(range(len(value))[step] if isinstance(value, list) else step)
        value = value[step]
    return tuple(out)


def _found(old: Any, new: Any, path: tuple[Any, ...], value: Any) -> tuple[Any, ...] | None:
    """Find the path at which an older state has the value of a path in a newer one: the same path, or where their difference says; else
    None.

    Without the newer state only the same path counts: the delta between them is known, and it touched the value.
    """
    if _has(old, path, value):
        return path
    if new is None:
        return None
    ops: list[Op] = []
    difference(old, new, (), ops)
    moved = _before(ops, path)
    return moved if moved is not None and _has(old, moved, value) else None


def _has(state: Any, path: tuple[Any, ...], value: Any) -> bool:
    try:
        return same(inside(state, path), value)
    except _NOWHERE:
        return False


def _before(ops: list[Op], path: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """Return where the value at a path was before a delta, or None if the delta touched it."""
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

"""Which checkpoint last changed a value: read backwards from the deltas, over pruned checkpoints and behind forks.

A splice before it in the same list moves the path with it, so blame follows an item and not a position. A value that was set to what it had
been is no change. Where the states in between were pruned, or the run that this one was forked from was deleted, the answer says what it
does not know. Relies on `store.load`, which proves all that is read.
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
    """The checkpoint at which a value is first seen as it is now, and whether it is known to be the one that changed it."""

    __slots__ = ("after", "exact")

    def __init__(self, record: Record, exact: bool, after: str | None = None):
        super().__init__(record)
        self.exact = exact
        """False where the checkpoint that changed the value may also be an older one, whose state is gone."""
        self.after = after
        """The newest ref that is known to have had another value, unless it is the checkpoint just before, or nothing older is known."""

    def __str__(self) -> str:
        if self.exact:
            return self.ref
        return f"{self.ref} or earlier" if self.after is None else f"between {self.after} and {self.ref}"

    def __repr__(self) -> str:
        return f"Blame({str(self)!r}, note={self.note!r}, tags={self.tags!r})"


class _Older(NamedTuple):
    """The next older checkpoint whose state is there; `near` if none lies between."""

    run: _Run
    number: int
    near: bool


class _Run:
    """One run on the way back: its deltas, read in batches, and what was pruned of it."""

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
        """The next older checkpoint with a state, here or where this run was forked; without one, whether that is because there never was one."""
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
    """Where a run was forked: None of one that was not; without the run if that is gone, or if its id belongs to another one by now."""
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
    """The checkpoint, up to a number, that last changed the value at a path."""
    run = _Run(backend, row)
    try:
        state = run.state(number)
        wanted = _absolute(state, path)
    except _NOWHERE:
        raise NotFound(f"{row.id}@{number} has nothing at {list(path)!r:.100}", remedy="Look at the state: store.load(ref).") from None
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
    """A path whose positions all count from the beginning. Raises like a look-up if it leads nowhere."""
    out: list[Any] = []
    for step in path:
        value = fields_of(value)
        out.append(range(len(value))[step] if isinstance(value, list) else step)
        value = value[step]
    return tuple(out)


def _found(old: Any, new: Any, path: tuple[Any, ...], value: Any) -> tuple[Any, ...] | None:
    """Where an older state has the value of a path in a newer one: there, or where the difference of both says; else None.

    Without the newer one only that path counts: what led from one to the other is known, and it touched the value.
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
    """Where the value at a path was before a delta, or None if the delta touched it."""
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
